// Pairs of samples that are mixed: Pipeline::mix_pairs().
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <tuple>
#include <vector>

#include "data/loading/global_batch.h"
#include "data/pipeline/mixed.h"
#include "reigen/base/error.h"
#include "reigen/data/loader.h"
#include "reigen/data/pipeline.h"

namespace reigen::data::mixing_test {
namespace {

using ::testing::ElementsAre;

DatasetPtr numbers(std::int64_t from, std::int64_t size) {
  return in_memory(at::arange(from, from + size), at::arange(size), fmt::format("from {}", from));
}

// Samples of 3 x 4 x 5 values; value = 100 times the index, target = the index.
Pipeline flat_pictures(std::int64_t size) {
  return Pipeline(numbers(0, size)).map([](Sample& sample, Random&) {
    const auto index = sample.tensor("input").item<std::int64_t>();
    sample.set("input", at::full({3, 4, 5}, 100.0 * static_cast<double>(index), at::kFloat));
  });
}

// For each sample of two epochs: its mixed values, partner and weight.
using MixedSamples =
    std::map<std::pair<std::int64_t, std::int64_t>, std::tuple<std::vector<float>, std::int64_t, float>>;
struct MixedOptions {
  std::int64_t global_batch = 7;
  std::int64_t max_bad = 0;
};
MixedSamples mixed_of(const DatasetPtr& data, int ranks, int workers, const MixedOptions& options = {}) {
  MixedSamples all;
  for (int rank = 0; rank < ranks; ++rank) {
    const Loader loader(data,
                        {.global_batch = options.global_batch,
                         .shuffle = true,
                         .seed = 5,
                         .max_bad = options.max_bad,
                         .workers = workers},
                        Member(rank, ranks));
    for (const std::int64_t epoch : {0, 1}) {
      for (auto& batch : loader.epoch(epoch)) {
        for (std::int64_t row = 0; row < batch.count; ++row) {
          const at::Tensor one = batch.input[row].contiguous();
          const auto* values = one.const_data_ptr<float>();
          all[{epoch, batch.indices[static_cast<std::size_t>(row)]}] = {
              {values, values + one.numel()},
              batch.at("mixed_target")[row].item<std::int64_t>(),
              batch.at("mixed_weight")[row].item<float>()};
        }
      }
    }
  }
  return all;
}

TEST(Mixing, MixesPairsOfAGlobalBatchForAnyRanks) {
  for (const Mixing mixing : {Mixing{.mixup = 0.4}, Mixing{.cutmix = 1}, Mixing{.mixup = 0.4, .cutmix = 1}}) {
    const DatasetPtr data = flat_pictures(26).mix_pairs(mixing);
    const MixedSamples expected = mixed_of(data, 1, 0);
    ASSERT_EQ(expected.size(), 52U);
    std::set<float> weights;
    int alone = 0;
    for (const auto& [sample, mixed] : expected) {
      const auto& [values, partner, weight] = mixed;
      weights.insert(weight);
      const auto own = static_cast<float>(100 * sample.second);
      const auto other = static_cast<float>(100 * partner);
      alone += partner == sample.second ? 1 : 0;
      EXPECT_EQ(std::get<1>(expected.at({sample.first, partner})), sample.second);
      // The mean is that of both, in the share that the weight says; cutmix has only values of one of the two.
      const double mean = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
      EXPECT_NEAR(mean, weight * own + (1 - weight) * other, 1e-3);
      for (const float value : values) {
        EXPECT_TRUE(mixing.mixup > 0 || value == own || value == other);
        EXPECT_TRUE(mixing.cutmix > 0 || value == values[0]);
      }
    }
    EXPECT_GT(weights.size(), 8U);
    EXPECT_EQ(alone, 2 * 4);  // the last sample of each batch, of 7, 7, 7 and 5
    for (const int ranks : {2, 3, 5}) EXPECT_EQ(mixed_of(data, ranks, 2), expected) << ranks;
    // What `train.verify` computes on one rank.
    const Loader loader(data, {.global_batch = 7, .shuffle = true, .seed = 5}, Member(0, 1));
    for (auto& batch : loader.epoch(1)) {
      const Samples all =
          global_batch(*data, {.seed = 5, .epoch = 1}, batch.indices, batch.position - batch.global_count);
      EXPECT_TRUE(all.input.equal(batch.input) && all.at("mixed_weight").equal(batch.at("mixed_weight")));
    }
  }
}

// Of 12 samples in batches of 6, two ranks have three each: the middle pair of a batch lies on both.
TEST(Mixing, ASampleWhosePartnerIsDamagedStaysAsItIs) {
  for (const Mixing mixing : {Mixing{.mixup = 1}, Mixing{.cutmix = 1}}) {
    const MixedSamples whole = mixed_of(flat_pictures(12).mix_pairs(mixing), 1, 1, {.global_batch = 6});
    for (std::int64_t bad = 0; bad < 12; ++bad) {
      const DatasetPtr data = flat_pictures(12)
                                  .map([bad](Sample& sample, Random&) {
                                    if (sample.index() == bad) throw DataError("damaged");
                                  })
                                  .mix_pairs(mixing);
      MixedSamples expected = whole;
      for (const std::int64_t epoch : {0, 1}) {
        const std::int64_t partner = std::get<1>(whole.at({epoch, bad}));
        ASSERT_NE(partner, bad);
        expected.erase({epoch, bad});
        const std::vector<float> own(3 * 4 * 5, static_cast<float>(100 * partner));
        expected.at({epoch, partner}) = {own, partner, 1.0F};
      }
      for (const int ranks : {1, 2, 3}) {
        EXPECT_EQ(mixed_of(data, ranks, 1, {.global_batch = 6, .max_bad = 1}), expected) << ranks << " " << bad;
      }
    }
  }
}

// Pictures so small that the sizes do not tell channels from rows or columns.
TEST(Mixing, MixesPicturesInTheLayoutOfTheOutput) {
  for (const image::Size size : {image::Size{2, 5}, {5, 2}, {2, 2}, {7, 9}}) {
    const Pipeline pictures = Pipeline(numbers(0, 8)).map([size](Sample& sample, Random&) {
      auto drawn = std::make_shared<image::Picture>(image::Picture{.width = size.width, .height = size.height});
      for (int i = 0; i < 3 * size.width * size.height; ++i)
        drawn->pixels.push_back(static_cast<std::uint8_t>(i * 29 + 17 * static_cast<int>(sample.index())));
      sample.set("input", image::Draft(std::shared_ptr<const image::Picture>(drawn), sample.where()));
    });
    const auto batch_of = [&](image::Layout layout) {
      const Loader loader(pictures.output({.layout = layout}).mix_pairs({.cutmix = 1}), {.batch_size = 8, .seed = 3});
      for (auto& batch : loader.epoch(0)) return Samples(batch);
      return Samples();
    };
    const Samples planes = batch_of(image::Layout::kPlanes);
    const Samples last = batch_of(image::Layout::kChannelsLast);
    ASSERT_EQ(last.input.sizes(), (std::vector<std::int64_t>{8, size.height, size.width, 3}));
    EXPECT_TRUE(last.input.permute({0, 3, 1, 2}).equal(planes.input)) << size.width << " x " << size.height;
    EXPECT_TRUE(last.at("mixed_weight").equal(planes.at("mixed_weight")));
  }
}

// A tensor is [channels, height, width], also where it has more channels than columns.
TEST(Mixing, MixesTensorsInTheirLastTwoSizes) {
  const DatasetPtr data = Pipeline(numbers(0, 8))
                              .map([](Sample& sample, Random&) {
                                sample.set("input", at::full({64, 32, 16}, sample.index(), at::kFloat));
                              })
                              .mix_pairs({.cutmix = 1});
  const Loader loader(data, {.batch_size = 8, .seed = 3});
  int cut = 0;
  for (auto& batch : loader.epoch(0)) {
    for (std::int64_t row = 0; row < 8; ++row) {
      const at::Tensor one = batch.input[row];
      EXPECT_TRUE(one.equal(one[0].expand({64, 32, 16})));  // the same box in every channel
      const float weight = batch.at("mixed_weight")[row].item<float>();
      const auto own = one[0].eq(batch.indices[static_cast<std::size_t>(row)]).sum().item<std::int64_t>();
      EXPECT_NEAR(static_cast<double>(own) / (32 * 16), weight, 1e-6);
      cut += weight < 1 ? 1 : 0;
    }
  }
  EXPECT_GT(cut, 4);
}

TEST(Mixing, ABatchOfDamagedSamplesHasTheTensorsOfMixedOnes) {
  const DatasetPtr data = flat_pictures(6)
                              .map([](Sample& sample, Random&) {
                                if (sample.index() == 2) throw DataError("damaged");
                              })
                              .mix_pairs({.cutmix = 1});
  const Loader loader(data, {.batch_size = 1, .max_bad = 1, .workers = 1}, Member(0, 2));
  std::vector<std::int64_t> counts;
  for (auto& batch : loader.epoch(0)) {
    counts.push_back(batch.count);
    EXPECT_EQ(batch.at("mixed_weight").sizes(), std::vector<std::int64_t>{1});
    EXPECT_EQ(batch.at("mixed_target").sizes(), std::vector<std::int64_t>{1});
  }
  EXPECT_THAT(counts, ElementsAre(1, 0, 1));
}

TEST(Mixing, APartnerOfAnotherSizeIsRefusedOnAnyRanks) {
  const DatasetPtr data = Pipeline(numbers(0, 6))
                              .map([](Sample& sample, Random&) {
                                sample.set("input", at::full({3, 4, sample.index() < 3 ? 5 : 6}, 1.0, at::kFloat));
                              })
                              .mix_pairs({.mixup = 1});
  for (const int ranks : {1, 2}) {
    const Loader loader(data, {.global_batch = 6, .workers = 1}, Member(0, ranks));
    EXPECT_THROW(static_cast<void>(loader.epoch(0).next()), InvalidArgument) << ranks;
  }
}

TEST(Mixing, TheWeightsOfMixedPairsHaveTheirDistribution) {
  // Beta(a, a) has the mean 1/2 and the variance 1 / (4 (2a + 1)).
  for (const double a : {0.2, 1.0, 3.0}) {
    double sum = 0;
    double squares = 0;
    const int count = 20'000;
    for (int pair = 0; pair < count; ++pair) {
      const double own = pair_mix({.mixup = a}, {.seed = 3}, pair).own;
      ASSERT_TRUE(own >= 0 && own <= 1);
      sum += own;
      squares += (own - 0.5) * (own - 0.5);
    }
    EXPECT_NEAR(sum / count, 0.5, 0.01) << a;
    EXPECT_NEAR(squares / count, 1 / (4 * (2 * a + 1)), 0.004) << a;
  }
}

}  // namespace
}  // namespace reigen::data::mixing_test
