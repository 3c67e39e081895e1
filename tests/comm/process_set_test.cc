// Groups of ranks that are chosen by their numbers.
#include "reigen/comm/process_set.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "harness/ranks.h"
#include "reigen/base/error.h"

namespace reigen::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

int sum_of_ranks(Communicator& group, int rank) {
  int sum = 0;
  group.all_reduce(&rank, &sum, 1, DataType::kInt32, ReduceOp::kSum);
  return sum;
}

TEST(ProcessSet, IsAGroupForItsMembersAndNothingElsewhere) {
  run_ranks({.ranks = 4}, [](Rank& r) {
    auto even = process_set(r.world(), {0, 2});
    ASSERT_EQ(even.has_value(), r.rank() % 2 == 0);
    if (even) {
      EXPECT_EQ(even->size(), 2);
      EXPECT_EQ(even->rank(), r.rank() / 2);
      EXPECT_EQ(sum_of_ranks(*even, r.rank()), 2);
    }
    auto turned = process_set(r.world(), {3, 0, 1});  // overlaps with the first group, and has another order
    ASSERT_EQ(turned.has_value(), r.rank() != 2);
    if (turned) {
      const int places[] = {1, 2, -1, 0};
      EXPECT_EQ(turned->rank(), places[r.rank()]);
      EXPECT_EQ(sum_of_ranks(*turned, r.rank()), 4);
    }
    auto one = process_set(r.world(), {1});
    EXPECT_EQ(one.has_value(), r.rank() == 1);
    EXPECT_EQ(sum_of_ranks(r.world(), r.rank()), 6);
  });
}

TEST(ProcessSet, WorksAlone) {
  Communicator alone;
  EXPECT_EQ(process_set(alone, {0})->size(), 1);
  EXPECT_THROW(process_set(alone, {1}), InvalidArgument);
}

// Every rank gets this text, and the group remains usable.
void expect_refused(Rank& r, const std::vector<int>& ranks, const ::testing::Matcher<std::string>& matcher) {
  try {
    process_set(r.world(), ranks);
    ADD_FAILURE() << "no error on rank " << r.rank();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), matcher) << "rank " << r.rank();
  }
  EXPECT_EQ(sum_of_ranks(r.world(), r.rank()), 3);
}

TEST(ProcessSet, RefusesWhatAreNotRanksOfTheGroup) {
  run_ranks({.ranks = 3}, [](Rank& r) {
    expect_refused(r, {0, 3}, AllOf(HasSubstr("got: {0, 3}"), HasSubstr("0 to 2")));
    expect_refused(r, {-1}, HasSubstr("got: {-1}"));
    expect_refused(r, {1, 1}, HasSubstr("each once"));
    expect_refused(r, {}, HasSubstr("one number or more"));
  });
}

TEST(ProcessSet, NumbersThatDifferAreNamed) {
  run_ranks({.ranks = 3}, [](Rank& r) {
    const bool differs = r.rank() == 1;
    expect_refused(r, differs ? std::vector<int>{2, 0} : std::vector<int>{0, 2},
                   differs ? AllOf(HasSubstr("rank 0: {0, 2}"), HasSubstr("rank 1: {2, 0}"))
                           : AllOf(HasSubstr("got: rank 1: {2, 0}"), HasSubstr("rank 0: {0, 2}")));
    expect_refused(r, {0, differs ? 9 : 1}, HasSubstr(differs ? "got: {0, 9}" : "rank 1: numbers"));
  });
}

}  // namespace
}  // namespace reigen::testing
