// The store as control channel. Ranks are threads without an engine, which wait for calls that never complete.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>

#include "comm/control/rank_state.h"
#include "comm/control/store_control.h"
#include "reigen/base/error.h"

namespace reigen::testing {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

comm::control::RankState state_with(const std::vector<comm::Call>& calls) {
  comm::control::RankState state{.beat = 3, .calls = calls.size()};
  for (std::size_t i = 0; i < calls.size(); ++i) state.records.push_back({i, comm::signature_of(calls[i])});
  return state;
}

comm::Call all_reduce(std::size_t count, const std::string& tag) {
  return {.kind = comm::OperationKind::kAllReduce, .count = count, .type = DataType::kFloat32, .tag = tag};
}

TEST(Control, AStateSurvivesTheStore) {
  const auto state = state_with({all_reduce(7, "step 3\nwith spaces "), {}});
  const auto copy = comm::control::decode_state(encode(state));
  EXPECT_EQ(copy.beat, 3U);
  EXPECT_EQ(copy.calls, 2U);
  EXPECT_EQ(copy.records, state.records);
  EXPECT_EQ(copy.last_call(), "its last call was #1 barrier");
  EXPECT_EQ(comm::control::decode_state("").calls, 0U);
  const comm::AbortCause cause{comm::AbortCause::Kind::kPeerLost, 3, "two\nlines"};
  const auto same = comm::control::decode_cause(comm::control::encode(cause));
  EXPECT_EQ(same.kind, cause.kind);
  EXPECT_EQ(same.rank, 3);
  EXPECT_EQ(same.text, cause.text);
}

TEST(Control, CountsSurviveTheStoreAndAreNamed) {
  comm::Call uneven{.kind = comm::OperationKind::kAllGatherV, .type = DataType::kFloat32, .counts = {3, 4, 5, 6, 7}};
  const auto a = state_with({uneven});
  EXPECT_EQ(comm::control::decode_state(encode(a)).records, a.records);
  std::swap(uneven.counts[0], uneven.counts[1]);
  const auto mismatch = comm::control::find_mismatch({a, state_with({uneven})}, "world");
  ASSERT_TRUE(mismatch);
  EXPECT_THAT(mismatch->cause.text, HasSubstr("differ in the counts"));
  EXPECT_THAT(mismatch->cause.text, HasSubstr("rank 1: all_gather_v(25 float32 in blocks of 4, 3, 5, 6, ...)"));
}

TEST(Control, TheFirstDifferingCallIsNamed) {
  const auto a = state_with({all_reduce(7, ""), all_reduce(8, "x")});
  const auto b = state_with({all_reduce(7, ""), all_reduce(9, "x"), {}});
  EXPECT_FALSE(comm::control::find_mismatch({a, a, {}}, "world"));
  EXPECT_FALSE(comm::control::find_mismatch({{}, {}}, "world"));
  const auto mismatch = comm::control::find_mismatch({{}, a, b}, "world");
  ASSERT_TRUE(mismatch);
  EXPECT_EQ(mismatch->compared_with, 1);
  EXPECT_THAT(mismatch->cause.text, HasSubstr("call #1: ranks 1 and 2 differ in the count"));
  EXPECT_THAT(mismatch->cause.text, HasSubstr("rank 2: all_reduce(9 float32, sum) \"x\""));
}

TEST(Control, HashesOfDifferingCallsDiffer) {
  const auto hash = [](const comm::Call& call, std::uint64_t sequence) {
    return comm::hash_of(comm::signature_of(call), sequence);
  };
  const std::uint64_t first = hash(all_reduce(7, ""), 5);
  EXPECT_EQ(hash(all_reduce(7, ""), 5), first);
  EXPECT_NE(hash(all_reduce(8, ""), 5), first);
  EXPECT_NE(hash(all_reduce(7, " "), 5), first);
  EXPECT_NE(hash(all_reduce(7, ""), 6), first);
}

// One rank of a group, with a loop of checks like the Engine's.
class Member {
 public:
  Member(int rank, int size, const std::shared_ptr<store::Store>& store) : control_(options(rank, size, store)) {
    control_.join("rank " + std::to_string(rank));
    control_.agree("");
    control_.start();
  }
  void call(const comm::Call& call) { control_.called(last_ = call, calls_++); }
  // Repeats the checks until one throws, as if the last call were waiting.
  void wait() {
    const auto begin = Deadline::Clock::now();
    for (;;) {
      const auto waited = Deadline::Clock::now() - begin;
      control_.check(last_, calls_ - 1, waited);
      ASSERT_LT(waited, 20s) << "nothing was thrown";
      std::this_thread::sleep_for(5ms);
    }
  }
  comm::control::StoreControl& control() { return control_; }

 private:
  static comm::GroupOptions options(int rank, int size, const std::shared_ptr<store::Store>& store) {
    comm::GroupOptions options{.rank = rank, .size = size, .store = store};
    options.heartbeat_timeout = 1500ms;
    options.timeout = 4s;
    return options;
  }

  comm::control::StoreControl control_;
  comm::Call last_;
  std::uint64_t calls_ = 0;
};

void run_members(int size, const std::function<void(int, Member&)>& body) {
  const auto store = store::make_memory_store();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      Member member(rank, size, store);
      body(rank, member);
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST(StoreControl, DifferingCallsAreNamedToAll) {
  run_members(3, [](int rank, Member& member) {
    member.call(all_reduce(rank == 2 ? 8 : 7, "step 3"));
    member.control().look_for_mismatch();
    try {
      member.wait();
    } catch (const CollectiveMismatch& error) {
      EXPECT_THAT(error.what(), HasSubstr("call #0: ranks 0 and 2 differ in the count"));
    }
  });
}

TEST(StoreControl, AStallOfDifferingCallsIsSeenWithoutTheEngine) {
  run_members(2, [](int rank, Member& member) {
    member.call(rank == 0 ? all_reduce(7, "") : comm::Call{});
    EXPECT_THROW(member.wait(), CollectiveMismatch);
  });
}

TEST(StoreControl, ARankThatLeftIsNamed) {
  run_members(3, [](int rank, Member& member) {
    member.call(all_reduce(1, "last words"));
    if (rank == 1) return member.control().leave();
    member.call({});
    try {
      member.wait();
    } catch (const PeerLost& error) {
      EXPECT_EQ(error.rank(), 1);
      EXPECT_THAT(error.what(), HasSubstr("left the group"));
      EXPECT_THAT(error.what(), HasSubstr("last words"));
    }
  });
}

TEST(StoreControl, AnAbortReachesAllWithItsCause) {
  run_members(3, [](int rank, Member& member) {
    member.call({});
    if (rank == 0) return member.control().publish_abort({comm::AbortCause::Kind::kAborted, -1, "the disk burns"});
    try {
      member.wait();
    } catch (const Aborted& error) {
      EXPECT_STREQ(error.what(), "the disk burns");
    }
  });
}

TEST(StoreControl, WhoDoesNotComeIsATimeout) {
  run_members(2, [](int rank, Member& member) {
    member.call({.tag = "first"});
    if (rank == 1) return std::this_thread::sleep_for(6s);
    member.call({.tag = "second"});
    try {
      member.wait();
    } catch (const Timeout& error) {
      EXPECT_THAT(error.what(), HasSubstr("barrier \"second\": waited 4 s"));
      EXPECT_THAT(error.what(), HasSubstr("rank 1: its last call was #0 barrier \"first\""));
    }
  });
}

// A memory store whose serving process is stopped: set, add, try_get and compare_and_set answer only when it goes on.
class StoppedStore : public store::Store {
 public:
  void stop() { stopped_ = true; }
  void go_on() { stopped_ = false; }
  void set(const std::string& key, const std::string& value) override { return await(), inner_->set(key, value); }
  std::string get(const std::string& key, const Deadline& deadline) override { return inner_->get(key, deadline); }
  std::optional<std::string> try_get(const std::string& key) override { return await(), inner_->try_get(key); }
  std::int64_t add(const std::string& key, std::int64_t delta) override { return await(), inner_->add(key, delta); }
  std::string compare_and_set(const std::string& key, const std::optional<std::string>& expected,
                              const std::string& desired) override {
    return await(), inner_->compare_and_set(key, expected, desired);
  }
  bool erase(const std::string& key) override { return inner_->erase(key); }

 private:
  void await() const {
    while (stopped_) std::this_thread::sleep_for(5ms);
  }
  std::shared_ptr<store::Store> inner_ = store::make_memory_store();
  std::atomic<bool> stopped_{false};
};

TEST(StoreControl, AStoreThatDoesNotAnswerHoldsUpNobody) {
  const auto store = std::make_shared<StoppedStore>();
  std::thread other([&] { Member member(1, 2, store); });
  {
    Member member(0, 2, store);
    other.join();
    store->stop();
    member.call({});
    EXPECT_THROW(member.wait(), PeerLost);
  }
  store->go_on();
}

}  // namespace
}  // namespace reigen::testing
