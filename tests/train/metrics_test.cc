// Figures that add up over batches and ranks.
#include "reigen/train/metrics.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "reigen/base/error.h"
#include "reigen/data/sampler.h"
#include "reigen/nn/init.h"
#include "reigen/runtime/init.h"

namespace reigen::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct Largest {
  double most = -1;
  void merge(const Largest& other) { most = std::max(most, other.most); }
  double value() const { return most; }
};

constexpr std::int64_t kSamples = 1009;
constexpr std::int64_t kClasses = 5;

at::Tensor drawn(std::vector<std::int64_t> shape, const char* name) {
  const at::Tensor tensor = at::empty(shape, at::kDouble);
  nn::fill_uniform(tensor, name, 7, 1.0);
  return tensor;
}

struct Drawn {
  at::Tensor scores = drawn({kSamples, kClasses}, "scores");
  at::Tensor target = drawn({kSamples}, "target").add(1).mul(kClasses / 2.0).floor().to(at::kLong);
  at::Tensor losses = drawn({kSamples}, "losses");
};

// Adds the samples of a rank in batches of `batch`, as one step each.
void add_share(Metrics& metrics, const Drawn& data, const data::Range& range, std::int64_t batch) {
  for (std::int64_t at = range.begin; at < range.end; at += batch) {
    const std::int64_t count = std::min(batch, range.end - at);
    const auto of = [&](const at::Tensor& all) { return all.narrow(0, at, count); };
    metrics.begin_batch(count);
    metrics.add("loss", of(data.losses).mean());
    metrics.add("accuracy", accuracy(of(data.scores), of(data.target)));
    metrics.add("top3", accuracy(of(data.scores), of(data.target), 3));
    metrics.add("matrix", ConfusionMatrix(of(data.scores), of(data.target)));
    metrics.add("largest", Largest{of(data.losses).max().item<double>()});
    metrics.add("terms", Sum{static_cast<double>(count)});
    metrics.add("perplexity",
                Perplexity{.loss = {.sum = of(data.losses).sum().item<double>(), .count = static_cast<double>(count)}});
    metrics.finish(metrics.take());
  }
}

TEST(Metrics, AreExactOverAnyNumberOfRanks) {
  const Drawn data;
  const at::Tensor right = data.scores.argmax(1).eq(data.target);
  const at::Tensor among = std::get<1>(data.scores.topk(3, 1)).eq(data.target.unsqueeze(1)).any(1);
  for (const int ranks : {1, 2, 3, 4, 7}) {
    for (const bool uneven : {false, true}) {
      run_threads(ranks, [&](Communicator& world) {
        // Uneven: the last rank has nothing, and the others' shares differ.
        data::Range mine = data::share_of({0, kSamples}, world.rank(), world.size());
        if (uneven && ranks > 1) {
          const std::int64_t first = kSamples - 3 * (ranks - 2);
          const bool is_last = world.rank() == ranks - 1;
          mine = world.rank() == 0 ? data::Range{0, first}
                                   : data::Range{first + 3 * (world.rank() - 1),
                                                 is_last ? first + 3 * (world.rank() - 1) : first + 3 * world.rank()};
        }
        Metrics metrics;
        add_share(metrics, data, mine, 64);
        const Figures all = metrics.gather(world);
        EXPECT_EQ(all.terms, kSamples);
        EXPECT_EQ(all.at("terms"), kSamples);
        EXPECT_EQ(all.at("accuracy"), right.sum().item<double>() / kSamples);
        EXPECT_EQ(all.at("matrix"), all.at("accuracy"));
        EXPECT_EQ(all.at("top3"), among.sum().item<double>() / kSamples);
        EXPECT_EQ(all.at("largest"), data.losses.max().item<double>());
        EXPECT_NEAR(all.at("loss"), data.losses.mean().item<double>(), 1e-12);
        EXPECT_NEAR(all.at("perplexity"), std::exp(data.losses.mean().item<double>()), 1e-12);
        EXPECT_TRUE(metrics.gather(world).values.empty()) << "gather() begins anew";
      });
    }
  }
}

TEST(Metrics, AStepGivesTheFiguresOfItsOwnBatches) {
  Metrics metrics;
  metrics.begin_batch(3);
  metrics.add("a", 1.0);
  metrics.begin_batch(1);
  metrics.add("a", 5.0);
  metrics.begin_batch(0);  // a repeated sample
  metrics.add("a", 1e9);
  using Figures = std::vector<std::pair<std::string, double>>;
  EXPECT_EQ(metrics.finish(metrics.take()), (Figures{{"a", 2.0}}));
  metrics.begin_batch(1);
  metrics.add("a", 100.0);
  EXPECT_EQ(metrics.finish(metrics.take(), /*counts=*/false), (Figures{{"a", 100.0}}));  // a skipped step
  run_threads(1, [&](Communicator& world) { EXPECT_EQ(metrics.gather(world).at("a"), 2.0); });
}

TEST(Metrics, GoOnFromTheirState) {
  Metrics first;
  first.begin_batch(2);
  first.add("mean", 3.0);
  first.add("most", Largest{4});
  first.add("before", Sum{7});
  first.finish(first.take());
  Metrics second;
  second.restore(first.state());
  EXPECT_EQ(second.state(), first.state());
  second.begin_batch(2);
  second.add("mean", 5.0);
  second.add("most", Largest{1});
  second.finish(second.take());
  run_threads(1, [&](Communicator& world) {
    const Figures all = second.gather(world);
    EXPECT_EQ(all.terms, 4);
    EXPECT_EQ(all.at("mean"), 4.0);
    EXPECT_EQ(all.at("most"), 4.0);
    EXPECT_EQ(all.at("before"), 7.0);
  });
  EXPECT_THROW(second.restore("abc"), DataError);
}

TEST(Metrics, ANameOfSomeRanksOnlyIsAnErrorOnAllRanks) {
  for (const bool other_type : {false, true}) {
    std::vector<std::string> said(3);
    run_threads(3, [&](Communicator& world) {
      Metrics metrics;
      metrics.begin_batch(1);
      metrics.add("loss", 1.0);
      if (world.rank() == 1 && !other_type) metrics.add("extra", 1.0);
      if (other_type) {
        if (world.rank() == 1)
          metrics.add("extra", Sum{1});
        else
          metrics.add("extra", 1.0);
      }
      metrics.finish(metrics.take());
      try {
        metrics.gather(world);
      } catch (const InvalidArgument& error) {
        EXPECT_TRUE(error.is_common());
        said[static_cast<std::size_t>(world.rank())] = error.what();
      }
    });
    for (const std::string& one : said)
      EXPECT_THAT(one, AllOf(HasSubstr("log(\"extra\")"), HasSubstr("rank 1"), HasSubstr("rank 0")));
  }
}

TEST(Metrics, WrongValuesAreRefused) {
  Metrics metrics;
  metrics.begin_batch(2);
  metrics.add("a", 1.0);
  EXPECT_THROW(metrics.add("a", Sum{1}), InvalidArgument);
  EXPECT_THROW(metrics.add("b", at::zeros({2})), InvalidArgument);
  EXPECT_THROW(metrics.add("b", at::Tensor()), InvalidArgument);
  EXPECT_THROW(accuracy(at::zeros({2, 3}), at::zeros({3}, at::kLong)), InvalidArgument);
  EXPECT_THROW(accuracy(at::zeros({2, 3}), at::zeros({2}, at::kLong), 4), InvalidArgument);
  EXPECT_THROW(ConfusionMatrix(at::zeros({2, 3}), at::full({2}, 3, at::kLong)), DataError);
  EXPECT_THROW((Figures{.values = {{"loss", 1}}}.at("los")), InvalidArgument);
}

TEST(Metrics, TargetsThatAreIgnoredDoNotCount) {
  const at::Tensor scores = at::eye(3, at::kDouble);
  const at::Tensor target = at::tensor({0, -100, 1}, at::kLong);
  const BatchMean all = accuracy(scores, target);
  EXPECT_EQ(all.sum.item<std::int64_t>(), 1);
  EXPECT_EQ(all.count.item<std::int64_t>(), 2);
  const ConfusionMatrix matrix(scores, target);
  EXPECT_EQ(matrix.count(0, 0), 1);
  EXPECT_EQ(matrix.count(1, 2), 1);
  EXPECT_EQ(matrix.value(), 0.5);
}

}  // namespace
}  // namespace reigen::train
