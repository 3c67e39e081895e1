// The store that the ranks of a group keep while they split it.
#include "comm/forming/round_store.h"

#include <gmock/gmock.h>

#include <chrono>
#include <stdexcept>

#include "harness/ranks.h"
#include "reigen/base/error.h"

namespace reigen::testing {
namespace {

using ::testing::StartsWith;

// Rank 1 leaves with the error, while the others wait for its key.
void expect_told(const std::exception_ptr& why, base::ErrorRecord::Kind kind, int lost) {
  run_ranks({.ranks = 3}, [&](Rank& r) {
    comm::RoundStore meeting(r.world());
    meeting.set("of " + std::to_string(r.rank()), "here");
    const auto began = std::chrono::steady_clock::now();
    if (r.rank() != 1) {
      EXPECT_EQ(meeting.get("of 0", Deadline::after(std::chrono::seconds(60))), "here");
      EXPECT_THROW(meeting.get("more of 1", Deadline::after(std::chrono::seconds(60))), comm::MeetingEnded);
    }
    meeting.end(r.rank() == 1 ? why : nullptr);
    EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(20));
    EXPECT_FALSE(meeting.failure());
    ASSERT_TRUE(meeting.error()) << "rank " << r.rank();
    EXPECT_EQ(meeting.error()->kind, kind);
    EXPECT_EQ(meeting.error()->rank, lost) << "the number of a lost rank is not translated";
    EXPECT_THAT(meeting.error()->text, StartsWith("rank 1 of 3: "));
    r.world().barrier();  // the group that is split goes on
  });
}

TEST(RoundStore, WhoWaitsForARankThatFailedIsTold) {
  using Kind = base::ErrorRecord::Kind;
  expect_told(std::make_exception_ptr(PeerLost(2, "rank 2 is gone")), Kind::kPeerLost, 2);
  expect_told(std::make_exception_ptr(Timeout("too late")), Kind::kTimeout, -1);
  expect_told(std::make_exception_ptr(std::runtime_error("something else")), Kind::kInternalError, -1);
}

TEST(RoundStore, WithoutAnErrorNobodyIsTold) {
  run_ranks({.ranks = 3}, [&](Rank& r) {
    comm::RoundStore meeting(r.world());
    meeting.set("of " + std::to_string(r.rank()), "here");
    if (r.rank() == 2) {
      EXPECT_EQ(meeting.get("of 1", Deadline::after(std::chrono::seconds(60))), "here");
    }
    meeting.end();
    EXPECT_FALSE(meeting.error());
    EXPECT_FALSE(meeting.failure());
  });
}

}  // namespace
}  // namespace reigen::testing
