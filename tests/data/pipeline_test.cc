#include "reigen/data/pipeline.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <stdexcept>
#include <tuple>

#include "container/sample.h"
#include "format/temporary_folder.h"
#include "reigen/base/error.h"
#include "reigen/container/container.h"
#include "reigen/container/pack.h"
#include "reigen/container/writer.h"
#include "reigen/data/loader.h"
#include "reigen/format/hash.h"
#include "reigen/image/encode.h"
#include "reigen/image/operations.h"

namespace reigen::data::pipeline_test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

image::Picture picture(int number) {
  image::Picture made{.width = 40 + number % 7, .height = 50 - number % 5};
  made.pixels.resize(3 * static_cast<std::size_t>(made.width * made.height));
  for (std::size_t i = 0; i < made.pixels.size(); ++i) {
    made.pixels[i] = static_cast<std::uint8_t>((i * 7 + static_cast<std::size_t>(number) * 31) % 251);
  }
  return made;
}

void write(const fs::path& path, const std::vector<std::byte>& bytes) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

constexpr int kPictures = 23;

// A folder of 23 pictures in 3 classes, and copies of it in other containers.
class Pictures {
 public:
  Pictures() {
    for (int i = 0; i < kPictures; ++i) {
      const int label = 3 * i / kPictures;
      write(path() / fmt::format("class{}/{:02}.jpg", label, i), image::encode_jpeg(picture(i), 90));
    }
  }
  fs::path path() const { return folder_.path() / "pictures"; }
  fs::path packed(const std::string& name) const {
    const fs::path target = folder_.path() / name;
    container::pack(*container::open(path()), target, {.kind = container::kind_of_target(target), .workers = 2});
    return target;
  }

 private:
  tests::TemporaryFolder folder_;
};

Pipeline augmented(const fs::path& path) {
  return open(path)
      .map(image::random_resized_crop(16))
      .map(image::random_flip())
      .map(image::colour_jitter({.brightness = 0.4, .hue = 0.1}));
}

std::uint64_t hash_of(const Samples& samples, std::int64_t row) {
  format::Hash64 hash;
  samples.for_each([&](std::string_view, const at::Tensor& tensor) {
    const at::Tensor one = tensor[row].contiguous();
    hash.update(static_cast<const std::byte*>(one.const_data_ptr()), one.nbytes());
  });
  return hash.value();
}

// The hash of each sample of two epochs.
using Hashes = std::map<std::pair<std::int64_t, std::int64_t>, std::uint64_t>;

Hashes hashes_of(const DatasetPtr& data, int ranks, int workers, int prefetch, const Shuffle& shuffle = true) {
  Hashes hashes;
  for (int rank = 0; rank < ranks; ++rank) {
    const Loader loader(data,
                        {.global_batch = 6, .shuffle = shuffle, .seed = 3, .workers = workers, .prefetch = prefetch},
                        Member(rank, ranks));
    for (const std::int64_t epoch : {0, 1}) {
      for (auto& batch : loader.epoch(epoch)) {
        for (std::size_t row = 0; row < batch.indices.size(); ++row) {
          hashes[{epoch, batch.indices[row]}] = hash_of(batch, static_cast<std::int64_t>(row));
        }
      }
    }
  }
  return hashes;
}

TEST(Pipeline, ASampleHasTheSameBytesForAnyWorkersPrefetchRanksAndContainer) {
  const Pictures pictures;
  const Hashes expected = hashes_of(augmented(pictures.path()), 1, 0, 1);
  ASSERT_EQ(expected.size(), 2U * kPictures);
  EXPECT_NE((expected.at({0, 5})), (expected.at({1, 5})));  // another epoch draws other numbers
  const std::map<std::string, const char*> packages = {{"LMDB", "liblmdb-dev"}, {"HDF5", "libhdf5-dev"}};
  std::string missing;
  for (const std::string name : {"", "p.lmdb", "p.h5", "p.tfrecord", "p.tar"}) {
    const std::string library = name == "p.lmdb" ? "LMDB" : name == "p.h5" ? "HDF5" : "";
    const auto libraries = container::libraries();
    const bool is_missing = std::any_of(libraries.begin(), libraries.end(),
                                        [&](const auto& one) { return one.version.empty() && one.name == library; });
    if (is_missing) {
      missing += fmt::format(" {} ({})", library, packages.at(library));
      continue;
    }
    const DatasetPtr data = augmented(name.empty() ? pictures.path() : pictures.packed(name));
    for (const int workers : {0, 1, 2, 7}) {
      for (const int prefetch : {1, 4}) {
        EXPECT_EQ(hashes_of(data, 1, workers, prefetch), expected) << name << " " << workers << " " << prefetch;
      }
    }
    for (const int ranks : {2, 3, 5}) EXPECT_EQ(hashes_of(data, ranks, 2, 2), expected) << name << " " << ranks;
    EXPECT_EQ(hashes_of(data, 2, 1, 2, Shuffle::kBlocks), expected);  // the order is no part of a sample
  }
  if (!missing.empty()) GTEST_SKIP() << "THIS BUILD LACKS" << missing << "; the other containers were compared";
}

TEST(Pipeline, ResumesInTheMiddleOfAnEpochOnOtherRanks) {
  const Pictures pictures;
  const DatasetPtr data = augmented(pictures.path());
  const Hashes expected = hashes_of(data, 1, 0, 1);
  Hashes rest;
  for (int rank = 0; rank < 3; ++rank) {
    const Loader loader(data, {.global_batch = 4, .shuffle = true, .seed = 3, .workers = 2}, Member(rank, 3));
    for (auto& batch : loader.epoch(1, 12)) {
      for (std::size_t row = 0; row < batch.indices.size(); ++row) {
        rest[{1, batch.indices[row]}] = hash_of(batch, static_cast<std::int64_t>(row));
      }
    }
  }
  EXPECT_EQ(rest.size(), kPictures - 12U);
  for (const auto& [sample, hash] : rest) EXPECT_EQ(hash, expected.at(sample));
}

TEST(Pipeline, AStepDrawsFromItsOwnPlace) {
  const DatasetPtr numbers = in_memory(at::arange(4), at::arange(4), "numbers");
  const auto draw = [](const char* name) {
    return Step([name](Sample& sample, Random& random) {
      sample.set(name, at::full({}, static_cast<std::int64_t>(random.next()), at::kLong));
    });
  };
  const Pipeline both = Pipeline(numbers).map(draw("a")).map(draw("b"));
  const Pipeline more =
      Pipeline(numbers).map(draw("a")).map([](Sample&, Random& random) { random.next(); }).map(draw("c"));
  for (std::int64_t i = 0; i < 4; ++i) {
    Sample one = both.sample(i, {.seed = 9, .epoch = 2});
    Sample two = more.sample(i, {.seed = 9, .epoch = 2});
    EXPECT_TRUE(one.tensor("a").equal(two.tensor("a")));
    EXPECT_FALSE(one.tensor("a").equal(one.tensor("b")));
    EXPECT_FALSE(one.tensor("b").equal(two.tensor("c")));  // of another place
    Random random({.seed = 9, .epoch = 2, .sample = i, .place = 1});
    EXPECT_EQ(one.tensor("b").item<std::int64_t>(), random.next());
  }
}

DatasetPtr numbers(std::int64_t from, std::int64_t size) {
  return in_memory(at::arange(from, from + size), at::arange(size), fmt::format("from {}", from));
}

std::vector<std::int64_t> inputs_of(const Pipeline& pipeline) {
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < pipeline.size(); ++i)
    all.push_back(pipeline.sample(i).tensor("input").item<std::int64_t>());
  return all;
}

TEST(Pipeline, ChoosesAndJoinsSamples) {
  const Pipeline ten(numbers(0, 10));
  EXPECT_THAT(inputs_of(ten.subset(3, 6)), ElementsAre(3, 4, 5));
  EXPECT_THAT(inputs_of(ten.subset({7, 1, 7})), ElementsAre(7, 1, 7));
  EXPECT_THAT(inputs_of(concat({ten.subset(0, 2), numbers(100, 2)})), ElementsAre(0, 1, 100, 101));
  EXPECT_THAT(inputs_of(mix({{numbers(0, 2), 3}, {numbers(100, 9), 1}}, 8)), ElementsAre(0, 1, 100, 0, 1, 0, 101, 1));
  const auto parts = ten.split({0.7, 0.2, 0.1}, 4);
  ASSERT_EQ(parts.size(), 3U);
  EXPECT_EQ(parts[0].size(), 7);
  EXPECT_EQ(parts[1].size(), 2);
  EXPECT_EQ(parts[2].size(), 1);
  std::vector<std::int64_t> all;
  for (const Pipeline& part : parts) {
    for (const std::int64_t value : inputs_of(part)) all.push_back(value);
  }
  EXPECT_NE(all, inputs_of(ten));
  EXPECT_NE(inputs_of(ten.split({0.7, 0.3}, 5)[0]), inputs_of(parts[0]));
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all, inputs_of(ten));
}

TEST(Pipeline, MakesBatchesWithoutATrainer) {
  const Loader loader = Pipeline(numbers(0, 10))
                            .map([](Sample& sample, Random&) { sample.set("twice", sample.tensor("input") * 2); })
                            .shuffle({.seed = 1})
                            .shard(Member(1, 2))
                            .batch(2)
                            .prefetch(3, 2)
                            .loader();
  EXPECT_EQ(loader.global_batch(), 4);
  std::int64_t samples = 0;
  for (auto& batch : loader.epoch(0)) {
    samples += batch.count;
    EXPECT_TRUE(batch.at("twice").equal(batch.input * 2));
  }
  EXPECT_EQ(samples, 5);
  EXPECT_THAT([] { DatasetPtr data = Pipeline(numbers(0, 10)).batch(2); },
              ThrowsMessage<InvalidArgument>(HasSubstr("which the trainer or the Loader decides")));
}

TEST(Pipeline, CollatesSamplesOfDifferentSizes) {
  const auto ragged = Pipeline(numbers(1, 6)).map([](Sample& sample, Random&) {
    const auto length = sample.tensor("input").item<std::int64_t>();
    sample.set("input", at::full({length}, length, at::kLong));
  });
  EXPECT_THAT(
      [&] {
        DatasetPtr(ragged)->gather_in({}, std::vector<std::int64_t>{0, 1});
      },
      ThrowsMessage<InvalidArgument>(
          AllOf(HasSubstr("from 1, sample 1 does not fit into a batch with from 1, sample 0"),
                HasSubstr("input Long [2]; target Long []"), HasSubstr("collate()"))));
  const auto padded = ragged.collate([](std::span<const Samples> samples) {
    std::int64_t longest = 0;
    for (const Samples& one : samples) longest = std::max(longest, one.input.size(0));
    Samples all{.input = at::full({static_cast<std::int64_t>(samples.size()), longest}, -1, at::kLong)};
    std::vector<at::Tensor> targets;
    for (std::size_t row = 0; row < samples.size(); ++row) {
      all.input[static_cast<std::int64_t>(row)].narrow(0, 0, samples[row].input.size(0)).copy_(samples[row].input);
      targets.push_back(samples[row].target);
    }
    all.target = at::stack(targets);
    return all;
  });
  const Loader loader(padded, {.batch_size = 3, .workers = 2});
  std::vector<std::int64_t> widths;
  for (auto& batch : loader.epoch(0)) widths.push_back(batch.input.size(1));
  EXPECT_THAT(widths, ElementsAre(3, 6));
}

// Samples of which some are damaged.
Pipeline damaged(std::vector<std::int64_t> bad) {
  return Pipeline(numbers(0, 12)).map([bad = std::move(bad)](Sample& sample, Random&) {
    if (std::find(bad.begin(), bad.end(), sample.index()) == bad.end()) return;
    throw DataError(sample.where() + " is damaged");
  });
}

TEST(Pipeline, LeavesOutDamagedSamplesWithWeightZero) {
  for (const int workers : {0, 2}) {
    for (const int ranks : {1, 3}) {
      double weighted = 0;
      std::vector<std::int64_t> seen;
      std::int64_t bad = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const Loader loader(damaged({4, 5, 6, 7}), {.global_batch = 6, .max_bad = 4, .workers = workers},
                            Member(rank, ranks));
        for (auto& batch : loader.epoch(0)) {
          ASSERT_EQ(batch.input.size(0), std::max<std::int64_t>(batch.count, 1));
          ASSERT_EQ(batch.terms, batch.count);
          for (const std::int64_t index : batch.indices) seen.push_back(index);
          if (batch.count > 0) {
            const auto sum = std::accumulate(batch.indices.begin(), batch.indices.end(), std::int64_t{0});
            EXPECT_EQ(batch.input.sum().item<std::int64_t>(), sum);
          }
          const double mean = batch.input.to(at::kDouble).mean().item<double>();
          weighted += mean * batch.weight / ranks;
        }
        bad += loader.bad_samples();
      }
      std::sort(seen.begin(), seen.end());
      EXPECT_THAT(seen, ElementsAre(0, 1, 2, 3, 8, 9, 10, 11));
      EXPECT_EQ(bad, 4);
      EXPECT_NEAR(weighted, (0 + 1 + 2 + 3 + 8 + 9 + 10 + 11) / 6.0, 1e-12);  // two batches of six, four terms are 0
    }
  }
}

TEST(Pipeline, RefusesMoreDamagedSamplesThanMayBe) {
  const auto run = [](std::int64_t most, int epochs) {
    const Loader loader(damaged({4, 9}), {.global_batch = 6, .max_bad = most, .workers = 0});
    for (int epoch = 0; epoch < epochs; ++epoch) {
      for (auto& batch : loader.epoch(epoch)) EXPECT_GT(batch.count, 0);
    }
  };
  EXPECT_NO_THROW(run(2, 3));  // the same two in each epoch
  EXPECT_THAT([&] { run(1, 1); },
              ThrowsMessage<DataError>(AllOf(HasSubstr("sample 9 of 'from 0' is damaged, and no more may be"),
                                             HasSubstr("at most 1"), HasSubstr("data.max_bad"))));
  EXPECT_THAT([&] { run(0, 1); }, ThrowsMessage<DataError>(HasSubstr("from 0, sample 4 is damaged")));
}

TEST(Pipeline, NamesTheSampleAndTheStepThatThrew) {
  const auto thrower = [](std::int64_t at) {
    return Pipeline(numbers(0, 12)).map([](Sample&, Random&) {}).map([at](Sample& sample, Random&) {
      if (sample.index() == at) throw std::runtime_error("no such colour");
    });
  };
  for (const int workers : {0, 3}) {
    const Loader loader(thrower(7), {.batch_size = 4, .workers = workers});
    EXPECT_THAT(
        [&] {
          for (auto& batch : loader.epoch(0)) EXPECT_EQ(batch.step, 0);
        },
        ThrowsMessage<Error>(AllOf(HasSubstr("map() number 2 of the pipeline"), HasSubstr("from 0, sample 7"),
                                   HasSubstr("no such colour"))));
  }
}

// The type and the exit code of an error decide what a caller does, so they stay.
TEST(Pipeline, AnErrorOfAStepKeepsItsTypeAndGetsItsPlace) {
  const auto text_of = [](const Pipeline& pipeline, auto expected, ExitCode code) -> std::string {
    try {
      pipeline.sample(5);
    } catch (const decltype(expected)& error) {
      EXPECT_EQ(error.exit_code(), code);
      return error.what();
    }
    ADD_FAILURE() << "no error of this type";
    return {};
  };
  const Pipeline two = Pipeline(numbers(0, 12)).map([](Sample&, Random&) {});
  const std::string damaged =
      text_of(two.map([](Sample&, Random&) { throw DataError("no such colour"); }), DataError(""), ExitCode::kBadData);
  EXPECT_EQ(damaged, "map() number 2 of the pipeline threw for from 0, sample 5: no such colour");
  const std::string gone =
      text_of(two.map([](Sample&, Random&) { throw IoError("no table", ExitCode::kInputMissing); }), IoError(""),
              ExitCode::kInputMissing);
  EXPECT_THAT(gone, AllOf(HasSubstr("map() number 2"), HasSubstr("sample 5"), HasSubstr("no table")));
  // A sample that is named already is not named again.
  const std::string named =
      text_of(two.map([](Sample& sample, Random&) { sample.tensor("mask"); }).map([](Sample&, Random&) {}),
              InvalidArgument(""), ExitCode::kConfiguration);
  EXPECT_THAT(named, ::testing::StartsWith("map() number 2 of the pipeline: from 0, sample 5 has no tensor 'mask'"));
}

TEST(Pipeline, AnErrorOfCollateNamesTheSamplesOfTheBatch) {
  const auto collated = [](const std::function<void()>& fails) {
    return Pipeline(numbers(0, 30)).collate([fails](std::span<const Samples> samples) {
      fails();
      return samples[0];
    });
  };
  for (const int workers : {0, 2}) {
    const auto first_batch = [workers](const DatasetPtr& data, std::int64_t size) {
      const Loader loader(data, {.batch_size = size, .workers = workers});
      static_cast<void>(loader.epoch(0, 3).next());
    };
    EXPECT_THAT([&] { first_batch(collated([] { throw std::runtime_error("ragged"); }), 3); },
                ThrowsMessage<Error>(AllOf(HasSubstr("collate() of the pipeline"),
                                           HasSubstr("samples 3, 4, 5 of 'from 0'"), HasSubstr("ragged"))));
    EXPECT_THAT(
        [&] { first_batch(collated([] { throw InvalidArgument("ragged"); }), 12); },
        ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("samples 3, 4, 5, 6, 7, 8, 9, 10, ... of 'from 0': ragged"))));
  }
}

// A text beside each picture, as in many sets of others, has no place in a batch.
TEST(Pipeline, BytesOfDifferentLengthsAreTakenOnlyByName) {
  const tests::TemporaryFolder folder;
  const fs::path path = folder.path() / "a.tar";
  const std::vector<container::Field> fields = {{.name = "input", .kind = container::FieldKind::kPicture},
                                                {.name = "target", .kind = container::FieldKind::kLabel},
                                                {.name = "json", .kind = container::FieldKind::kBytes}};
  const auto writer = container::make_writer(path, {.kind = container::ContainerKind::kTar, .fields = fields});
  for (int i = 0; i < 4; ++i) {
    container::RecordParts parts(3);
    parts.own(image::encode_jpeg(picture(i), 90));
    parts.label(i);
    parts.own(std::vector<std::byte>(static_cast<std::size_t>(i), std::byte{'x'}));
    writer->add(parts.build());
  }
  writer->finish();
  const std::vector<std::int64_t> all = {0, 1, 2, 3};
  const Samples batch = open(path).map(image::resize(8, 8)).dataset()->gather_in({}, all);
  EXPECT_EQ(batch.input.sizes(), (std::vector<std::int64_t>{4, 3, 8, 8}));
  EXPECT_TRUE(batch.more.empty());
  const Pipeline named = open(path, {.fields = {{"input", "jpg"}, {"target", "cls"}, {"json", "json"}}});
  EXPECT_EQ(named.sample(3).tensor("json").numel(), 3);
  EXPECT_THAT([&] { named.map(image::resize(8, 8)).dataset()->gather_in({}, all); },
              ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("json Byte [1]"), HasSubstr(".fields"))));
}

TEST(Pipeline, ATensorOfABatchIsUsedAgainOnlyWhenNobodyHasIt) {
  const DatasetPtr data = Pipeline(numbers(0, 40)).map([](Sample&, Random&) {});
  const Loader loader(data, {.batch_size = 4, .workers = 2, .prefetch = 2});
  std::vector<at::Tensor> kept;
  std::set<const void*> places;
  for (int epoch = 0; epoch < 4; ++epoch) {
    for (auto& batch : loader.epoch(0)) {
      if (epoch == 0 && batch.step < 3) kept.push_back(batch.input.narrow(0, 1, 2));
      places.insert(batch.input.const_data_ptr());
    }
  }
  for (std::size_t i = 0; i < kept.size(); ++i) {
    EXPECT_EQ(kept[i][0].item<std::int64_t>(), static_cast<std::int64_t>(4 * i + 1));
  }
  EXPECT_LE(places.size(), 3U + 5U);  // three that are kept, and those that are made, handed out and waited for
}

TEST(Pipeline, AnUnknownValueIsNamedWithThoseThatAreThere) {
  const Pipeline ten(numbers(0, 10));
  EXPECT_THAT([&] { ten.map(image::random_flip()).sample(3); },
              ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("from 0, sample 3 has no picture 'input'"),
                                                   HasSubstr("input (tensor), target (tensor)"))));
}

}  // namespace
}  // namespace reigen::data::pipeline_test
