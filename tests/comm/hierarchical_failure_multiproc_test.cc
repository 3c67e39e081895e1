// Failures between the levels of a group over several machines, and while groups form.
#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "comm/forming/round_store.h"
#include "harness/ranks.h"
#include "reigen/base/error.h"

namespace reigen::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::Not;
using Clock = std::chrono::steady_clock;

// A store that kills this rank when the rank uses a key with a given word.
class DeadlyStore : public store::Store {
 public:
  DeadlyStore(store::Store& store, std::string word) : store_(store), word_(std::move(word)) {}
  void set(const std::string& key, const std::string& value) override {
    look("set " + key);
    store_.set(key, value);
  }
  std::string get(const std::string& key, const Deadline& deadline) override { return store_.get(key, deadline); }
  std::optional<std::string> try_get(const std::string& key) override { return store_.try_get(key); }
  std::int64_t add(const std::string& key, std::int64_t delta) override {
    look("add " + key);
    return store_.add(key, delta);
  }
  std::string compare_and_set(const std::string& key, const std::optional<std::string>& expected,
                              const std::string& desired) override {
    return store_.compare_and_set(key, expected, desired);
  }
  bool erase(const std::string& key) override { return store_.erase(key); }

 private:
  void look(const std::string& what) const {
    if (what.find(word_) != std::string::npos) ::raise(SIGKILL);
  }

  store::Store& store_;
  const std::string word_;
};

std::shared_ptr<store::Store> store_of(Rank& r) {
  return {&r.store(), [](store::Store*) {}};
}

// The ranks below `border` are on one machine, the others on another; `victim` dies at `word` while groups form.
comm::GroupOptions group_of(Rank& r, int border, int victim, const std::string& word) {
  comm::GroupOptions options{.rank = r.rank(), .size = r.size(), .store = store_of(r), .name = "g"};
  options.backend = "hierarchical";
  options.machine_id = r.rank() < border ? "a" : "b";
  options.join_timeout = 20s;
  if (r.rank() == victim) options.store = std::make_shared<DeadlyStore>(r.store(), word);
  return options;
}

void expect_lost(int rank, const std::function<void()>& action) {
  const auto begin = Clock::now();
  try {
    action();
    ADD_FAILURE() << "complete without rank " << rank;
  } catch (const PeerLost& error) {
    EXPECT_EQ(error.rank(), rank) << error.what();
  }
  EXPECT_LT(Clock::now() - begin, 10s);
}

RankOptions with_fault(int ranks, int victim) {
  return {.ranks = ranks, .kind = RankKind::kProcesses, .fault = kill(rank(victim)).at_step(99)};
}

// A rank that has done its part may end, with or without a farewell, while others still exchange data.
void leave_early(const std::string& backend, bool says_so) {
  run_ranks({.ranks = 3, .kind = RankKind::kProcesses, .backend = backend, .ranks_a_machine = 2}, [&](Rank& r) {
    Communicator& world = r.world();
    constexpr std::size_t kLarge = 100 << 20;
    const std::vector<std::size_t> counts{1, 1, kLarge};
    std::vector<std::uint8_t> input(counts[static_cast<std::size_t>(r.rank())], 1);
    std::vector<std::uint8_t> output(r.rank() == 0 ? kLarge + 2 : 0);
    world.barrier();
    const Work work = world.start_gather_v(input.data(), output.data(), counts, DataType::kUint8, 0,
                                           {.progress = comm::Progress::kCaller});
    if (r.rank() == 2) {
      for (const auto begin = Clock::now(); Clock::now() - begin < 30ms;) world.poll();
      std::this_thread::sleep_for(700ms);
    }
    work.wait();
    ASSERT_EQ(r.rank() == 0 ? output[kLarge + 1] : 1, 1);
    if (says_so && r.rank() == 1) r.leave();
    if (r.rank() == 1) ::_exit(0);
  });
}

}  // namespace

TEST(HierarchicalFailure, WhoHasDoneItsPartMayLeave) { leave_early("hierarchical", true); }
TEST(HierarchicalFailure, WhoHasDoneItsPartMayEndWithoutAWord) { leave_early("hierarchical", false); }

TEST(HierarchicalFailure, AMessageInsideAMachineSeesAnAbortFromAnother) {
  run_ranks({.ranks = 3, .backend = "hierarchical", .ranks_a_machine = 2}, [](Rank& r) {
    Communicator& world = r.world();
    world.barrier();
    meet(r, "left the barrier");
    float x = 0;
    if (r.rank() == 1) {
      EXPECT_THROW(world.recv(&x, 1, DataType::kFloat32, 0), Aborted);
      r.store().set("seen", "");
    }
    if (r.rank() == 2) world.abort("enough");
    if (r.rank() == 0) r.store().get("seen", Deadline::after(10s));
  });
}

// There are three machines, and one is late. The others wait so long that they check their peers.
TEST(HierarchicalFailure, AMismatchThatIsSeenWhileWaitingNamesTheCalls) {
  run_ranks({.ranks = 3, .backend = "hierarchical", .machines = 3}, [](Rank& r) {
    Communicator& world = r.world();
    world.barrier();
    std::vector<float> x(1000);
    try {
      if (r.rank() == 1) world.barrier({.tag = "the end"});
      if (r.rank() == 2) std::this_thread::sleep_for(1s);
      world.all_reduce(x.data(), x.data(), x.size(), DataType::kFloat32, ReduceOp::kSum, {.tag = "step 9"});
      ADD_FAILURE() << "different calls were accepted";
    } catch (const CollectiveMismatch& error) {
      EXPECT_THAT(error.what(), HasSubstr("all_reduce(1000 float32, sum) \"step 9\""));
      EXPECT_THAT(error.what(), HasSubstr("barrier \"the end\""));
      EXPECT_THAT(error.what(), Not(HasSubstr("place0")));
    }
  });
}

TEST(HierarchicalFailure, ADifferenceThatIsNotOfTheCallsIsNamedToo) {
  run_ranks({.ranks = 2}, [](Rank& r) {
    comm::GroupOptions options{.rank = r.rank(), .size = 2, .store = store_of(r), .name = "g"};
    options.backend = "hierarchical";
    options.machine_id = std::to_string(r.rank());
    if (r.rank() == 1) options.algorithms = "all_reduce:ring";
    Communicator group(options);
    float x = 1;
    try {
      group.all_reduce(&x, &x, 1, DataType::kFloat32, ReduceOp::kSum);
      ADD_FAILURE() << "different algorithms were accepted";
    } catch (const CollectiveMismatch& error) {
      EXPECT_THAT(error.what(), HasSubstr("differ in the algorithm"));
    }
  });
}

TEST(Forming, ARankThatIsStoppedBeforeItJoinsIsNamed) {
  for (const char* backend : {"auto", "shared_memory", "tcp"}) {
    run_ranks({.ranks = 2, .kind = RankKind::kProcesses, .fault = stop(rank(1)).at_step(99)}, [&](Rank& r) {
      comm::GroupOptions options{.rank = r.rank(), .size = 2, .store = store_of(r), .name = backend};
      options.backend = backend;
      options.heartbeat_timeout = 1s;
      options.join_timeout = 30s;
      r.store().set("process/count", "2");
      r.store().set("process/" + std::to_string(r.rank()), std::to_string(::getpid()));
      if (r.rank() == 1) r.step(99);
      r.store().get("process/1", Deadline::after(10s));
      expect_lost(1, [&] { Communicator group(options); });
    });
  }
}

// Rank 1 of the split-off group is another rank of the job. So it does not matter that the job's rank 1 is stopped.
TEST(Forming, AGroupThatWasSplitOffHasOtherRanksThanTheJob) {
  run_ranks({.ranks = 2, .kind = RankKind::kProcesses, .fault = stop(rank(1)).at_step(99)}, [&](Rank& r) {
    r.store().set("process/count", "2");
    r.store().set("process/" + std::to_string(r.rank()), std::to_string(::getpid()));
    if (r.rank() == 1) r.step(99);
    r.store().get("process/1", Deadline::after(10s));
    comm::GroupOptions options{.rank = 0, .size = 2, .store = store_of(r), .name = "world/0.1"};
    options.backend = "shared_memory";
    options.heartbeat_timeout = 200ms;
    options.join_timeout = 3s;
    EXPECT_THROW(Communicator group(options), Timeout);
  });
}

TEST(Forming, ARankThatDiesOnItsMachineIsNamedOnAll) {
  run_ranks(with_fault(4, 3), [](Rank& r) {
    const auto options = group_of(r, 2, 3, "set group/g.machine1/opened");
    expect_lost(3, [&] { Communicator group(options); });
  });
}

// This rank takes part in a split like split() itself, and dies after `rounds` rounds.
void die_in_split(Communicator& group, int color, int rounds) {
  const std::int64_t wish[] = {color, 0};
  std::vector<std::int64_t> wishes(2 * static_cast<std::size_t>(group.size()));
  group.all_gather(wish, wishes.data(), 2, DataType::kInt64, {.tag = "split"});
  comm::RoundStore meeting(group);
  for (int i = 0; i < rounds; ++i) meeting.add("a word of mine", 1);
  ::raise(SIGKILL);
}

// The new group and its machines have other numbers for the rank. The error names its number in the group that is
// split, also on ranks that get no new group.
TEST(Forming, ARankThatDiesInASplitHasItsNumberOfTheGroupThatSplits) {
  for (const int rounds : {0, 1, 4}) {
    run_ranks(with_fault(5, 4), [&](Rank& r) {
      Communicator group(group_of(r, 2, -1, ""));
      if (r.rank() == 4) die_in_split(group, 1, rounds);
      expect_lost(4, [&] { group.split(r.rank() % 2 == 0 ? 1 : -1); });
    });
  }
}

TEST(Forming, WhoWaitsForNoneOfItsLevelsHearsOfALossInAnother) {
  for (const int rounds : {0, 2, 8}) {
    run_ranks(with_fault(4, 3), [&](Rank& r) {
      Communicator group(group_of(r, 3, -1, ""));
      if (r.rank() == 3) die_in_split(group, 0, rounds);
      expect_lost(3, [&] { group.split(0); });
    });
  }
}

// The last rank that has all connections dies before it can report them. The first call must report the loss, without
// waiting for a timeout.
TEST(Forming, ARankThatDiesAsTheLastOneIsLostInTheFirstCall) {
  for (const char* backend : {"shared_memory", "tcp"}) {
    run_ranks(with_fault(3, 2), [&](Rank& r) {
      comm::GroupOptions options{.rank = r.rank(), .size = 3, .store = store_of(r), .name = backend};
      options.backend = backend;
      if (r.rank() == 2) {
        options.store = std::make_shared<DeadlyStore>(r.store(), std::string("add group/") + backend + "/opened");
      }
      expect_lost(2, [&] { Communicator(options).barrier(); });
    });
  }
}

}  // namespace reigen::testing
