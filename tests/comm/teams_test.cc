// Groups that are split off one group are cheap. They share one thread, need no calls of the store, and end together.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "harness/ranks.h"
#include "reigen/base/error.h"

namespace reigen::testing {
namespace {

using ::testing::HasSubstr;

int threads_of_this_process() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<int>(std::distance(begin(tasks), end(tasks)));
}

class Teams : public ::testing::TestWithParam<std::string> {
 protected:
  RankOptions options(int ranks) const {
    return {.ranks = ranks, .backend = GetParam(), .machines = GetParam() == "hierarchical" ? 2 : 0};
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, Teams, ::testing::Values("shared_memory", "tcp", "hierarchical"),
                         [](const auto& one) { return one.param; });

// A waiting thread or the thread of the context drives the operations, for several groups at the same time.
TEST_P(Teams, WorkBesideEachOther) {
  run_ranks(options(4), [](Rank& r) {
    std::vector<Communicator> groups;
    for (int i = 0; i < 6; ++i) groups.push_back(*r.world().split(i % 2 == 0 ? 0 : r.rank() % 2, r.rank()));
    constexpr std::size_t kCount = 50000;
    std::vector<std::vector<float>> data(groups.size(), std::vector<float>(kCount, 1.0F));
    for (int round = 0; round < 20; ++round) {
      std::vector<Work> works;
      for (std::size_t i = 0; i < groups.size(); ++i) {
        std::fill(data[i].begin(), data[i].end(), static_cast<float>(round));
        works.push_back(
            groups[i].start_all_reduce(data[i].data(), data[i].data(), kCount, DataType::kFloat32, ReduceOp::kSum));
      }
      // In half of the rounds only the context's thread drives the calls until they are done.
      if (round % 2 == 0) {
        while (!std::all_of(works.begin(), works.end(), [](const Work& w) { return w.is_completed(); })) {
          std::this_thread::sleep_for(std::chrono::microseconds(100));
        }
      }
      for (std::size_t i = groups.size(); i-- > 0;) works[i].wait();
      for (std::size_t i = 0; i < groups.size(); ++i) {
        ASSERT_EQ(data[i][kCount - 1], static_cast<float>(round * groups[i].size())) << "group " << i;
      }
    }
  });
}

// Hierarchical groups have a second thread, which communicates with the store.
TEST(TeamsOfOneMachine, HaveOneThreadARank) {
  for (const char* backend : {"shared_memory", "tcp", "hierarchical"}) {
    run_ranks({.ranks = 4, .backend = backend, .machines = std::string(backend) == "hierarchical" ? 2 : 0},
              [](Rank& r) {
                r.world().barrier();
                const int before = threads_of_this_process();
                r.world().barrier();
                std::vector<Communicator> groups;
                for (int i = 0; i < 10; ++i) {
                  groups.push_back(*r.world().split(0, r.rank()));
                  groups.back().start_barrier().wait();
                }
                EXPECT_EQ(threads_of_this_process(), before) << r.world().backend();
                r.world().barrier();
              });
  }
}

// Ranks 0 and 1 share "left", 1 and 2 "middle", 2 and 3 "right". An end in "left" reaches rank 3 through two ranks that
// wait for others.
struct Chain {
  explicit Chain(Rank& r)
      : left(r.world().split(r.rank() < 2 ? 0 : -1)),
        middle(r.world().split(r.rank() == 1 || r.rank() == 2 ? 0 : -1)),
        right(r.world().split(r.rank() > 1 ? 0 : -1)) {}
  std::optional<Communicator> left;
  std::optional<Communicator> middle;
  std::optional<Communicator> right;
};

template <class Body>
std::string error_of(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

void expect_end(Rank& r, const std::string& cause, const std::function<void(Chain&)>& in_left) {
  Chain chain(r);
  r.world().barrier();
  meet(r, "left the barrier");
  const auto begin = std::chrono::steady_clock::now();
  const std::string text = error_of([&] {
    if (r.rank() < 2) in_left(chain);
    if (r.rank() == 2) chain.middle->barrier();
    if (r.rank() == 3) chain.right->barrier();
  });
  const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begin;
  EXPECT_THAT(text, HasSubstr(cause)) << "rank " << r.rank();
  EXPECT_LT(waited.count(), 10) << "rank " << r.rank();  // on a quiet machine: one second
  // The other groups end too, whether a thread waits in them or not.
  EXPECT_THAT(error_of([&] {
                for (int i = 0; i < 2000; ++i) {
                  r.world().barrier();
                  std::this_thread::sleep_for(std::chrono::milliseconds(1));
                }
              }),
              HasSubstr(cause));
}

TEST_P(Teams, AnAbortInOneEndsAll) {
  run_ranks(options(4), [](Rank& r) {
    expect_end(r, "out of coffee", [&](Chain& chain) {
      if (r.rank() == 0) chain.left->abort("out of coffee");
      chain.left->barrier();
    });
  });
}

TEST_P(Teams, AMismatchInOneEndsAll) {
  run_ranks(options(4), [](Rank& r) {
    expect_end(r, "kettle", [&](Chain& chain) {
      float x = 0;
      if (r.rank() == 0)
        chain.left->barrier({.tag = "kettle"});
      else
        chain.left->all_reduce(&x, &x, 1, DataType::kFloat32, ReduceOp::kSum, {.tag = "pot"});
    });
  });
}

TEST(TeamsOfProcesses, ADeathInOneEndsAll) {
  for (const char* backend : {"shared_memory", "tcp"}) {
    run_ranks({.ranks = 4, .kind = RankKind::kProcesses, .fault = kill(rank(0)).at_step(1), .backend = backend},
              [](Rank& r) {
                expect_end(r, "rank 0", [&](Chain& chain) {
                  r.step(1);
                  chain.left->barrier();
                });
              });
  }
}

// A message that is not received ends no other group either, unless a rank waits for it.
TEST_P(Teams, OneThatIsLeftWithSomethingPendingEndsNoOther) {
  run_ranks(options(2), [](Rank& r) {
    std::vector<float> data(1 << 20);
    {
      auto part = r.world().split(0);
      if (r.rank() == 0) (void)part->start_send(data.data(), data.size(), DataType::kFloat32, 1);
      if (r.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(3500));
    }
    r.world().barrier();
    std::this_thread::sleep_for(std::chrono::milliseconds(700));
    r.world().barrier();
  });
}

// A rank that leaves a group keeps its other groups.
TEST_P(Teams, OneThatIsLeftEndsNoOther) {
  run_ranks(options(3), [](Rank& r) {
    for (int i = 0; i < 3; ++i) {
      auto part = r.world().split(r.rank() == 2 ? -1 : 0);
      if (part) part->barrier();
    }
    r.world().barrier();
  });
}

// Counts the calls of the store.
class CountingStore final : public store::Store {
 public:
  void set(const std::string& key, const std::string& value) override { ++calls, inner_->set(key, value); }
  std::string get(const std::string& key, const Deadline& deadline) override {
    ++calls;
    return inner_->get(key, deadline);
  }
  std::optional<std::string> try_get(const std::string& key) override { return ++calls, inner_->try_get(key); }
  std::vector<std::optional<std::string>> try_get_all(const std::vector<std::string>& keys) override {
    return ++calls, inner_->try_get_all(keys);
  }
  std::int64_t add(const std::string& key, std::int64_t delta) override { return ++calls, inner_->add(key, delta); }
  std::string compare_and_set(const std::string& key, const std::optional<std::string>& expected,
                              const std::string& desired) override {
    return ++calls, inner_->compare_and_set(key, expected, desired);
  }
  bool erase(const std::string& key) override { return ++calls, inner_->erase(key); }

  std::atomic<int> calls{0};

 private:
  const std::shared_ptr<store::Store> inner_ = store::make_memory_store();
};

// The number of calls of the group that a split makes.
std::size_t rounds_of_split(const std::string& backend, int ranks) {
  std::atomic<std::size_t> most{0};
  run_ranks({.ranks = ranks, .backend = backend, .machines = backend == "hierarchical" ? 2 : 0}, [&](Rank& r) {
    const std::size_t before = r.world().history().size();
    const auto part = r.world().split(r.rank() % 2);
    const std::size_t calls = r.world().history().size() - before;
    for (std::size_t known = most; calls > known && !most.compare_exchange_weak(known, calls);) {
    }
  });
  return most;
}

TEST_P(Teams, ASplitCostsAsManyRoundsHoweverManyRanksThereAre) {
  const std::size_t of_few = rounds_of_split(GetParam(), 4);
  EXPECT_LE(rounds_of_split(GetParam(), 16), of_few + of_few / 2) << "4 ranks: " << of_few;
  std::cout << GetParam() << ": " << of_few << " calls a split\n";
}

// The number of store calls of each rank, for a group and this many groups that are split off it.
double calls_a_rank(int ranks, int groups) {
  const auto counted = std::make_shared<CountingStore>();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const Communicator world({.rank = rank, .size = ranks, .store = counted});
      std::vector<Communicator> parts;
      for (int i = 0; i < groups; ++i) parts.push_back(*world.split(rank % (i + 1), rank));
    });
  }
  for (std::thread& thread : threads) thread.join();
  return static_cast<double>(counted->calls.load()) / ranks;
}

TEST(TeamsAndTheStore, ARankAsksAsOftenHoweverManyThereAre) {
  const double of_few = calls_a_rank(4, 0);
  EXPECT_LE(calls_a_rank(32, 0), of_few + 1);
  EXPECT_LE(calls_a_rank(32, 10), of_few + 1) << "groups that are split off meet in the group";
}

}  // namespace
}  // namespace reigen::testing
