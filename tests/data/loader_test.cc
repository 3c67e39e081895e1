#include "reigen/data/loader.h"

#include <ATen/ops/arange.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "data/loading/worker_need.h"
#include "reigen/base/error.h"

namespace reigen::data::loader_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Indices = std::vector<std::int64_t>;

// Sample i: input [i, i + 0.5], target i.
DatasetPtr numbers(std::int64_t size) {
  const auto target = torch::arange(size, torch::kLong);
  const auto input = torch::stack({target.to(torch::kFloat), target.to(torch::kFloat) + 0.5}, 1);
  return in_memory(input, target, "numbers");
}

// A dataset that a test can make fail or slow.
class Scripted : public Dataset {
 public:
  explicit Scripted(std::int64_t size) : numbers_(numbers(size)) {}
  std::int64_t size() const override { return numbers_->size(); }
  const std::string& name() const override { return numbers_->name(); }
  Samples gather(std::span<const std::int64_t> indices) const override {
    calls.fetch_add(1);
    if (std::find(indices.begin(), indices.end(), broken) != indices.end()) throw DataError("sample is broken");
    if (slow > std::chrono::milliseconds(0)) std::this_thread::sleep_for(slow);
    return numbers_->gather(indices);
  }

  mutable std::atomic<int> calls{0};
  std::int64_t broken = -1;
  std::chrono::milliseconds slow{0};

 private:
  DatasetPtr numbers_;
};

Indices to_vector(const at::Tensor& tensor) {
  const auto* data = tensor.const_data_ptr<std::int64_t>();
  return {data, data + tensor.numel()};
}

// Checks that hold for every batch, with any options.
void check_batch(const Batch& batch, int ranks) {
  ASSERT_EQ(static_cast<std::int64_t>(batch.indices.size()), batch.count);
  ASSERT_EQ(batch.input.size(0), std::max<std::int64_t>(batch.count, 1));
  ASSERT_EQ(batch.target.size(0), batch.input.size(0));
  EXPECT_DOUBLE_EQ(batch.weight, static_cast<double>(batch.count * ranks) / static_cast<double>(batch.global_count));
  const Indices targets = to_vector(batch.target);
  if (batch.count > 0) {
    EXPECT_EQ(targets, batch.indices);
  }
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i);
    EXPECT_EQ(batch.input[row][0].item<double>(), static_cast<double>(targets[i]));
    EXPECT_EQ(batch.input[row][1].item<double>(), static_cast<double>(targets[i]) + 0.5);
  }
}

// The indices of each step of an epoch, joined over all ranks.
std::vector<Indices> steps_of(const DatasetPtr& data, LoaderOptions options, int ranks, std::int64_t epoch,
                              std::int64_t start = 0) {
  std::vector<Indices> steps;
  for (int rank = 0; rank < ranks; ++rank) {
    const Loader loader(data, options, {rank, ranks});
    std::size_t step = 0;
    std::int64_t position = start;
    for (auto& batch : loader.epoch(epoch, start)) {
      check_batch(batch, ranks);
      if (steps.size() <= step) steps.emplace_back();
      steps[step].insert(steps[step].end(), batch.indices.begin(), batch.indices.end());
      position += batch.global_count;
      EXPECT_EQ(batch.position, position);
      EXPECT_EQ(batch.epoch, epoch);
      EXPECT_EQ(batch.step, start / loader.global_batch() + static_cast<std::int64_t>(step));
      ++step;
      if (rank == ranks - 1) {
        EXPECT_EQ(loader.global_indices(batch), steps[step - 1]);
      }
    }
    EXPECT_EQ(static_cast<std::int64_t>(step), loader.steps(start));
    EXPECT_EQ(step, steps.size());
  }
  return steps;
}

Indices joined(const std::vector<Indices>& steps) {
  Indices all;
  for (const auto& step : steps) all.insert(all.end(), step.begin(), step.end());
  return all;
}

TEST(Loader, EverySampleOnceInTheSameOrderForAnyNumberOfRanks) {
  for (const std::int64_t size : {1, 2, 5, 16, 97}) {
    const auto data = numbers(size);
    for (const std::int64_t global_batch : {1, 2, 3, 7, 16, 200}) {
      for (const bool shuffle : {false, true}) {
        const LoaderOptions options{.global_batch = global_batch, .shuffle = shuffle, .seed = 9, .workers = 0};
        const auto one = steps_of(data, options, 1, 2);
        Indices all = joined(one);
        std::sort(all.begin(), all.end());
        ASSERT_EQ(all, to_vector(torch::arange(size, torch::kLong)));
        for (const int ranks : {2, 3, 4, 5}) {
          EXPECT_EQ(steps_of(data, options, ranks, 2), one) << size << ' ' << global_batch << ' ' << ranks;
        }
      }
    }
  }
}

TEST(Loader, GoesOnFromAnyPositionWithAnyNumberOfRanks) {
  const auto data = numbers(23);
  const LoaderOptions options{.global_batch = 6, .shuffle = true, .seed = 4, .workers = 0};
  const Indices whole = joined(steps_of(data, options, 1, 7));
  for (std::int64_t start = 0; start <= 23; ++start) {
    for (const int ranks : {1, 3}) {
      EXPECT_EQ(joined(steps_of(data, options, ranks, 7, start)), Indices(whole.begin() + start, whole.end())) << start;
    }
  }
}

TEST(Loader, BatchSizeIsPerRank) {
  const Loader loader(numbers(100), {.batch_size = 8, .workers = 0}, {1, 3});
  EXPECT_EQ(loader.global_batch(), 24);
  EXPECT_EQ(loader.steps(), 5);
  auto epoch = loader.epoch(0);
  const Batch* batch = epoch.next();
  ASSERT_NE(batch, nullptr);
  EXPECT_THAT(batch->indices, ElementsAre(8, 9, 10, 11, 12, 13, 14, 15));
  EXPECT_EQ(batch->weight, 1.0);
}

TEST(Loader, LastBatchOfOneSampleOnThreeRanks) {
  const auto data = numbers(7);
  double weights = 0;
  int counted = 0;
  for (int rank = 0; rank < 3; ++rank) {
    const Loader loader(data, {.batch_size = 2}, {rank, 3});
    auto epoch = loader.epoch(0);
    ASSERT_NE(epoch.next(), nullptr);
    const Batch* last = epoch.next();
    ASSERT_NE(last, nullptr);
    EXPECT_EQ(last->global_count, 1);
    EXPECT_EQ(last->input.size(0), 1);
    EXPECT_EQ(last->target.item<std::int64_t>(), 6) << "the stand-in is a sample of this batch";
    EXPECT_EQ(last->position, 7);
    counted += static_cast<int>(last->count);
    weights += last->weight;
    EXPECT_EQ(last->weight, last->count == 1 ? 3.0 : 0.0);
    EXPECT_EQ(epoch.next(), nullptr);
    EXPECT_EQ(epoch.next(), nullptr) << "the end stays the end";
  }
  EXPECT_EQ(counted, 1);
  EXPECT_EQ(weights / 3, 1.0);
}

// The promise in loader.h: the ranks' average of weight · (mean over own samples) is the mean over the global batch.
TEST(Loader, WeightedAverageIsTheGlobalMean) {
  const auto data = numbers(29);
  for (const int ranks : {1, 2, 3, 5}) {
    std::vector<double> averages;
    for (int rank = 0; rank < ranks; ++rank) {
      std::size_t step = 0;
      const Loader loader(data, {.global_batch = 7, .shuffle = true}, {rank, ranks});
      for (auto& batch : loader.epoch(0)) {
        averages.resize(std::max(averages.size(), ++step));
        averages[step - 1] += batch.weight * batch.input.to(torch::kDouble).mean().item<double>() / ranks;
      }
    }
    std::size_t step = 0;
    const Loader alone(data, {.global_batch = 7, .shuffle = true});
    for (auto& batch : alone.epoch(0)) {
      EXPECT_NEAR(averages.at(step++), batch.input.to(torch::kDouble).mean().item<double>(), 1e-12);
    }
    EXPECT_EQ(step, averages.size());
  }
}

// Sample i has 1 + i % 4 terms, each with the sample's value.
class Texts : public Dataset {
 public:
  explicit Texts(std::int64_t size) : numbers_(numbers(size)) {}
  std::int64_t size() const override { return numbers_->size(); }
  const std::string& name() const override { return numbers_->name(); }
  Samples gather(std::span<const std::int64_t> indices) const override { return numbers_->gather(indices); }
  std::int64_t terms(std::int64_t index) const override { return 1 + index % 4; }
  double sum(const at::Tensor& targets) const {
    double total = 0;
    for (const std::int64_t i : to_vector(targets)) total += static_cast<double>(i * terms(i));
    return total;
  }

 private:
  DatasetPtr numbers_;
};

// The promise in loader.h about parts: their sum, averaged over the ranks, is the mean over the terms of the global
// batch.
TEST(Loader, PartsAddUpToTheGlobalMeanWhateverTheirTerms) {
  const auto data = std::make_shared<Texts>(29);
  for (const int ranks : {1, 2, 3, 5}) {
    for (const std::int64_t micro : {1, 2, 3, 100}) {
      std::vector<double> averages;
      std::vector<double> expected;
      std::vector<std::size_t> parts;
      for (int rank = 0; rank < ranks; ++rank) {
        std::size_t step = 0;
        const Loader loader(data, {.global_batch = 7, .shuffle = true, .micro_batch = micro}, {rank, ranks});
        for (auto& batch : loader.epoch(0)) {
          if (rank == 0) {
            averages.push_back(0);
            parts.push_back(batch.parts.size());
            double sum = 0;
            for (const std::int64_t i : loader.global_indices(batch)) sum += static_cast<double>(i * data->terms(i));
            expected.push_back(sum / static_cast<double>(batch.global_terms));
          }
          EXPECT_EQ(batch.parts.size(), parts[step]) << "on every rank as many";
          Indices seen;
          for (const MicroBatch& part : batch.parts) {
            EXPECT_LE(part.count, micro);
            ASSERT_EQ(part.input.size(0), std::max<std::int64_t>(part.count, 1));
            if (part.count == 0) {
              EXPECT_EQ(part.weight, 0);
              continue;
            }
            const Indices own = to_vector(part.target);
            seen.insert(seen.end(), own.begin(), own.end());
            const double mean = data->sum(part.target) / static_cast<double>(part.terms);
            averages[step] += part.weight * mean / ranks;
          }
          EXPECT_EQ(seen, batch.indices);
          ++step;
        }
      }
      for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(averages[i], expected[i], 1e-12) << ranks << micro;
    }
  }
}

TEST(Loader, ThreadsGiveTheSameBatches) {
  const auto data = numbers(203);
  const auto expected = steps_of(data, {.global_batch = 10, .shuffle = true, .workers = 0}, 2, 1);
  for (const int workers : {1, 2, 4}) {
    for (const int prefetch : {1, 2, 5}) {
      const LoaderOptions options{.global_batch = 10, .shuffle = true, .workers = workers, .prefetch = prefetch};
      EXPECT_EQ(steps_of(data, options, 2, 1), expected) << workers << ' ' << prefetch;
    }
  }
}

TEST(Loader, LimitAndDropLast) {
  const auto data = numbers(100);
  const LoaderOptions limited{.global_batch = 4, .shuffle = true, .limit = 10};
  Indices all = joined(steps_of(data, limited, 2, 0));
  std::sort(all.begin(), all.end());
  EXPECT_THAT(all, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
  EXPECT_EQ(Loader(data, {.batch_size = 1, .limit = 1000}).size(), 100);
  EXPECT_EQ(joined(steps_of(data, {.global_batch = 4, .drop_last = true, .limit = 10}, 2, 0)).size(), 8u);
}

TEST(Loader, PrefetchIsBounded) {
  const auto data = std::make_shared<Scripted>(1000);
  const Loader loader(data, {.batch_size = 1, .workers = 2, .prefetch = 3});
  auto epoch = loader.epoch(0);
  epoch.next();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (data->calls < 4 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // gives a faulty loader time to read too far ahead
  EXPECT_EQ(data->calls, 4) << "one handed out and three ahead";
}

TEST(Loader, LeavingEarlyAtAnyPoint) {
  const auto data = std::make_shared<Scripted>(50);
  for (const int workers : {0, 1, 3}) {
    const Loader loader(data, {.batch_size = 1, .workers = workers});
    for (int leave = 0; leave < 12; ++leave) {
      int seen = 0;
      for ([[maybe_unused]] auto& batch : loader.epoch(0)) {
        if (seen++ == leave) break;
      }
      EXPECT_EQ(seen, leave + 1);
    }
    { auto untouched = loader.epoch(0); }
    auto moved_from = loader.epoch(0);
    auto moved_to = std::move(moved_from);
    EXPECT_NE(moved_to.next(), nullptr);
    moved_to = loader.epoch(1);
    EXPECT_NE(moved_to.next(), nullptr);
  }
}

TEST(Loader, AnEpochOutlivesItsLoader) {
  auto epoch = Loader(numbers(10), {.batch_size = 3}).epoch(0);
  int steps = 0;
  while (epoch.next() != nullptr) ++steps;
  EXPECT_EQ(steps, 4);
}

TEST(Loader, WhatTheDatasetThrowsReachesTheConsumerAtItsBatch) {
  const auto data = std::make_shared<Scripted>(20);
  data->broken = 9;
  for (const int workers : {0, 1, 3}) {
    const Loader loader(data, {.batch_size = 2, .workers = workers});
    auto epoch = loader.epoch(0);
    for (int i = 0; i < 4; ++i) EXPECT_NE(epoch.next(), nullptr);
    try {
      epoch.next();
      FAIL() << "no error with " << workers << " workers";
    } catch (const DataError& error) {
      EXPECT_THAT(error.what(), HasSubstr("sample is broken"));
    }
    EXPECT_EQ(epoch.next(), nullptr);
  }
}

TEST(Loader, WaitingIsMeasured) {
  const auto data = std::make_shared<Scripted>(4);
  data->slow = std::chrono::milliseconds(5);
  for (const int workers : {0, 1}) {
    const Loader loader(data, {.batch_size = 2, .workers = workers});
    EXPECT_EQ(loader.wait_seconds(), 0.0);
    for ([[maybe_unused]] auto& batch : loader.epoch(0)) {
    }
    EXPECT_GT(loader.wait_seconds(), workers == 0 ? 0.0099 : 0.0);
  }
}

// The workers after some batches, of which the first does not count. The loop computes for `computes` ms with each, and
// waits for `waits(workers)` ms.
template <class Waits>
int workers_after(int batches, int computes, Waits waits, int workers, int most) {
  WorkerNeed need(most);
  auto now = WorkerNeed::Time{} + std::chrono::hours(1);
  for (int i = 0; i < batches; ++i) {
    const auto asked = now + std::chrono::milliseconds(computes);
    now = asked + std::chrono::microseconds(std::llround(1000 * (i == 0 ? 5000 : waits(workers))));
    workers = need.after(asked, now, workers, i == 0);
  }
  return workers;
}

TEST(WorkerNeed, FollowsFromTheShareOfTheTimeThatTheLoopWaits) {
  const auto always = [](double milliseconds) { return [milliseconds](int /*workers*/) { return milliseconds; }; };
  EXPECT_EQ(workers_after(8, 0, always(100), 1, 64), 1) << "too few batches to know";
  EXPECT_EQ(workers_after(9, 96, always(4), 1, 64), 1) << "a little";
  EXPECT_EQ(workers_after(9, 0, always(0.09), 1, 64), 1) << "shorter than a thread takes to wake up";
  EXPECT_EQ(workers_after(9, 94, always(6), 1, 64), 2);
  EXPECT_EQ(workers_after(9, 50, always(50), 1, 64), 2);
  EXPECT_EQ(workers_after(9, 75, always(25), 6, 64), 8) << "six workers make a batch in 100 ms, the loop takes 75 ms";
  EXPECT_EQ(workers_after(9, 1, always(99), 4, 64), 8) << "at most the double at once";
  EXPECT_EQ(workers_after(17, 1, always(99), 4, 64), 16);
  EXPECT_EQ(workers_after(999, 1, always(99), 4, 64), 16) << "twice in vain";
  EXPECT_EQ(workers_after(999, 1, always(99), 4, 7), 7);
  EXPECT_EQ(workers_after(999, 1, always(99), 4, 0), 4) << "no more than at the beginning";
}

TEST(WorkerNeed, FindsAsManyAsTheLoopNeeds) {
  // A worker makes a batch in 300 ms.
  for (const int computes : {10, 20, 50, 100, 200}) {
    const auto waits = [&](int workers) { return std::max(0.0, 300.0 / workers - computes); };
    const int found = workers_after(200, computes, waits, 1, 64);
    EXPECT_GE(found, 0.95 * 300 / computes) << computes;
    EXPECT_LE(found, 2 * 300 / computes) << computes;
  }
}

TEST(Loader, HasMoreWorkersWhileTheLoopWaits) {
  const auto data = std::make_shared<Scripted>(200);
  data->slow = std::chrono::milliseconds(3);
  const Loader loader(data, {.batch_size = 1, .workers = 1, .most_workers = 5});
  EXPECT_EQ(loader.workers(), 1);
  std::int64_t seen = 0;
  for (auto& batch : loader.epoch(0)) {
    check_batch(batch, 1);
    EXPECT_EQ(batch.indices, Indices{seen++});
  }
  EXPECT_EQ(seen, 200);
  EXPECT_EQ(loader.workers(), 4) << "the most that each hold a batch";
  data->slow = {};
  // Epochs of five steps add up.
  const auto few = std::make_shared<Scripted>(5);
  few->slow = std::chrono::milliseconds(3);
  const Loader short_epochs(few, {.batch_size = 1, .workers = 1, .most_workers = 3});
  for (int epoch = 0; epoch < 20; ++epoch) {
    for (auto& batch : short_epochs.epoch(epoch)) check_batch(batch, 1);
  }
  EXPECT_EQ(short_epochs.workers(), 3);
  auto second = loader.epoch(1);
  EXPECT_NE(second.next(), nullptr);
  EXPECT_EQ(loader.workers(), 4) << "an epoch begins with those of the one before";
}

TEST(Loader, BatchesStayGoodAfterTheLoop) {
  std::vector<at::Tensor> kept;
  const Loader loader(numbers(12), {.batch_size = 3});
  for (auto& batch : loader.epoch(0)) kept.push_back(batch.target);
  EXPECT_THAT(to_vector(torch::cat(kept)), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));
}

struct FakeGroup {
  int rank() const { return 2; }
  int size() const { return 4; }
};

TEST(Loader, TakesRankAndSizeFromAGroup) {
  const Loader loader(numbers(16), {.batch_size = 2, .workers = 0}, FakeGroup{});
  auto epoch = loader.epoch(0);
  EXPECT_THAT(epoch.next()->indices, ElementsAre(4, 5));
}

TEST(Loader, RefusesWhatMakesNoSense) {
  const auto data = numbers(10);
  const auto make = [&](const LoaderOptions& options, int rank = 0, int ranks = 1) {
    Loader(data, options, {rank, ranks});
  };
  EXPECT_THROW(make({}), InvalidArgument);
  EXPECT_THROW(make({.batch_size = 0}), InvalidArgument);
  EXPECT_THROW(make({.batch_size = -5}), InvalidArgument);
  EXPECT_THROW(make({.global_batch = 0}), InvalidArgument);
  EXPECT_THROW(make({.batch_size = 1, .global_batch = 1}), InvalidArgument);
  EXPECT_THROW(make({.batch_size = std::numeric_limits<std::int64_t>::max()}, 0, 2), InvalidArgument);
  EXPECT_THROW(make({.batch_size = 1, .limit = -1}), InvalidArgument);
  EXPECT_THROW(make({.batch_size = 1, .micro_batch = -1}), InvalidArgument);
  EXPECT_THROW(make({.batch_size = 1, .workers = -1}), InvalidArgument);
  EXPECT_THROW(make({.batch_size = 1, .workers = 0, .most_workers = 2}), InvalidArgument);
  EXPECT_THROW(make({.batch_size = 1, .workers = 3, .most_workers = 2}), InvalidArgument);
  EXPECT_THROW(make({.batch_size = 1, .most_workers = 2000}), InvalidArgument);
  EXPECT_THROW(make({.batch_size = 1, .prefetch = 0}), InvalidArgument);
  EXPECT_THROW(make({.batch_size = 1}, 1, 1), InvalidArgument);
  EXPECT_THROW(make({.batch_size = 1}, -1, 1), InvalidArgument);
  EXPECT_THROW(make({.batch_size = 1}, 0, 0), InvalidArgument);
  EXPECT_THROW(make({.batch_size = 11, .drop_last = true}), DataError);
  EXPECT_THROW(Loader(nullptr, {.batch_size = 1}), InvalidArgument);
  EXPECT_THROW(Loader(data, {.batch_size = 1}).epoch(-1), InvalidArgument);
  EXPECT_THROW(Loader(data, {.batch_size = 1}).epoch(0, 11), InvalidArgument);
  try {
    make({.batch_size = 0});
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kConfiguration);
    EXPECT_THAT(error.what(), HasSubstr("batch_size must be at least 1, got 0"));
  }
}

// Sample i: input i, "both" [i, -i], target 10 i, "square" i².
DatasetPtr several(std::int64_t size) {
  const auto i = torch::arange(size, torch::kLong);
  return in_memory({{"input", i}, {"both", torch::stack({i, -i}, 1)}, {"target", 10 * i}, {"square", i * i}},
                   "several");
}

TEST(Loader, SamplesOfSeveralTensorsStayTogether) {
  for (const int ranks : {1, 2, 3}) {
    Indices seen;
    for (int rank = 0; rank < ranks; ++rank) {
      const Loader loader(several(20), {.global_batch = 7, .shuffle = true, .micro_batch = 2}, {rank, ranks});
      for (auto& batch : loader.epoch(3)) {
        ASSERT_EQ(batch.more.size(), 2U);
        std::vector<at::Tensor> firsts;
        for (const MicroBatch& part : batch.parts) {
          EXPECT_TRUE(at::equal(part.at("input"), part.input));
          EXPECT_TRUE(at::equal(part.at("both").select(1, 0), part.input));
          EXPECT_TRUE(at::equal(part.at("both").select(1, 1), -part.input));
          EXPECT_TRUE(at::equal(part.target, 10 * part.input));
          EXPECT_TRUE(at::equal(part.at("square"), part.input * part.input));
          if (part.count > 0) firsts.push_back(part.input);
        }
        if (batch.count == 0) continue;
        const Indices ids = to_vector(torch::cat(firsts));
        EXPECT_EQ(ids, batch.indices);
        seen.insert(seen.end(), ids.begin(), ids.end());
      }
    }
    std::sort(seen.begin(), seen.end());
    EXPECT_EQ(seen, to_vector(torch::arange(20, torch::kLong))) << ranks << " ranks";
  }
}

TEST(Loader, ANameThatIsNotThereIsToldWithThoseThatAre) {
  const Loader loader(several(4), {.batch_size = 2});
  auto epoch = loader.epoch(0);
  try {
    static_cast<void>(epoch.next()->at("bohts"));
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("got: bohts   expected: input, target, both, square"));
  }
}

// A dataset of a user, which may give wrong samples.
class Given : public Dataset {
 public:
  explicit Given(Samples samples) : samples_(std::move(samples)) {}
  std::int64_t size() const override { return 2; }
  const std::string& name() const override { return name_; }
  Samples gather(std::span<const std::int64_t>) const override { return samples_; }

 private:
  Samples samples_;
  std::string name_ = "given";
};

TEST(Loader, RefusesSamplesWithoutARowForEachIndex) {
  const auto rows = [](std::int64_t count) { return torch::zeros({count, 3}); };
  const auto text_of = [](const Samples& samples) -> std::string {
    try {
      Loader(std::make_shared<Given>(samples), {.batch_size = 2, .workers = 0}).epoch(0).next();
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(text_of({.input = rows(2)}), "");  // a dataset that is only viewed has no target
  EXPECT_EQ(text_of({.more = {{"a", rows(2)}, {"b", rows(2)}}}), "");
  EXPECT_THAT(text_of({}), HasSubstr("the dataset 'given' gave no tensor"));
  EXPECT_THAT(text_of({rows(2), rows(1)}), HasSubstr("gave 2 samples' target without a row for each"));
  EXPECT_THAT(text_of({.input = rows(2), .more = {{"mask", rows(3)}}}),
              HasSubstr("mask without a row for each\n  got: shape [3, 3]"));
  EXPECT_THAT(text_of({.input = rows(2), .more = {{"mask", at::Tensor()}}}), HasSubstr("an undefined tensor"));
}

TEST(InMemory, RefusesWhatDoesNotFit) {
  const auto three = torch::zeros({3, 2});
  EXPECT_THROW(in_memory(three, torch::zeros({4})), InvalidArgument);
  EXPECT_THROW(in_memory(three, at::Tensor()), InvalidArgument);
  EXPECT_THROW(in_memory(torch::zeros({}), torch::zeros({})), InvalidArgument);
  EXPECT_THROW(in_memory(torch::zeros({0, 2}), torch::zeros({0})), InvalidArgument);
  EXPECT_THROW(in_memory(std::vector<NamedTensor>{}), InvalidArgument);
  EXPECT_THROW(in_memory({{"input", three}, {"a", torch::zeros({4})}, {"target", three}}), InvalidArgument);
  EXPECT_THROW(in_memory({{"a", three}, {"a", three}}), InvalidArgument);
}

TEST(InMemory, TakesNonContiguousTensorsAndRowsOfNothing) {
  const auto input = torch::arange(12, torch::kDouble).view({3, 4}).t();
  const auto data = in_memory(input, torch::zeros({4, 0}));
  const Indices order = {3, 0};
  const Samples samples = data->gather(order);
  EXPECT_TRUE(samples.input.equal(input.index_select(0, torch::tensor(order))));
  EXPECT_EQ(samples.target.sizes().vec(), (std::vector<std::int64_t>{2, 0}));
}

}  // namespace
}  // namespace reigen::data::loader_test
