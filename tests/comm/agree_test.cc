// agree.h: a step succeeds on all ranks or on none; ranks check that they all have the same values.
#include "comm/agree.h"

#include <gmock/gmock.h>

#include "harness/ranks.h"
#include "reigen/base/error.h"

namespace reigen::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Agree, AnErrorOfOneRankIsEverybodysWithItsType) {
  run_ranks({.ranks = 3}, [](Rank& r) {
    try {
      comm::attempt(r.world(), "a file", [&] {
        if (r.rank() > 0) throw NoRoom("no room here", ExitCode::kIo);
      });
      ADD_FAILURE() << "nothing was thrown";
    } catch (const NoRoom& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 1 of 3 ("), HasSubstr("): no room here")));
      EXPECT_FALSE(error.is_common()) << "ranks outside of the group do not know of it";
    }
    EXPECT_THAT([&] { comm::attempt(r.world(), "a file", [] { throw DataError("damaged"); }); },
                ::testing::ThrowsMessage<DataError>(AllOf(HasSubstr("rank 0 of 3 ("), HasSubstr("): damaged"))));
    comm::attempt(r.world(), "a file", [] {});  // the group remains usable
  });
}

TEST(Agree, RankZeroNeedNotBeNamed) {
  run_ranks({.ranks = 2}, [](Rank& r) {
    for (const bool everywhere : {true, false}) {
      try {
        comm::attempt(
            r.world(), "a file",
            [&] {
              if (everywhere || r.rank() == 0) throw InvalidArgument("no such file", ExitCode::kInputMissing);
            },
            comm::Scope::kJob);
        ADD_FAILURE() << "nothing was thrown";
      } catch (const InvalidArgument& error) {
        EXPECT_STREQ(error.what(), "no such file");
        EXPECT_EQ(error.exit_code(), ExitCode::kInputMissing);
      }
    }
  });
}

TEST(Agree, AnErrorOfTheJobIsToldOnceAndNamesALaterRank) {
  run_ranks({.ranks = 3}, [](Rank& r) {
    try {
      comm::attempt(
          r.world(), "a file",
          [&] {
            if (r.rank() == 1) throw DataError("damaged");
          },
          comm::Scope::kJob);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const DataError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 1 of 3 ("), HasSubstr("): damaged")));
      EXPECT_TRUE(error.is_common());
    }
  });
}

TEST(Agree, TextsOfAllOrAnError) {
  for (const int ranks : {1, 3}) {
    run_ranks({.ranks = ranks}, [](Rank& r) {
      const auto all =
          comm::attempt_all(r.world(), "parts", [&] { return std::string(static_cast<std::size_t>(r.rank()), 'x'); });
      ASSERT_EQ(all.size(), static_cast<std::size_t>(r.size()));
      for (std::size_t q = 0; q < all.size(); ++q) EXPECT_EQ(all[q].size(), q);
      EXPECT_THROW(comm::attempt_all(r.world(), "parts",
                                     [&]() -> std::string {
                                       if (r.rank() == r.size() - 1) throw DataError("damaged");
                                       return "whole";
                                     }),
                   DataError);
    });
  }
}

TEST(Agree, RankZeroActsForAll) {
  run_ranks({.ranks = 3}, [](Rank& r) {
    int runs = 0;
    const std::string text = comm::attempt_first(r.world(), "a lock", [&] {
      ++runs;
      return std::string("taken\0by one", 12);
    });
    EXPECT_EQ(text.size(), 12U);
    EXPECT_EQ(runs, r.rank() == 0 ? 1 : 0);
    EXPECT_THROW(comm::attempt_first(r.world(), "a lock",
                                     [&]() -> std::string { throw IoError("held", ExitCode::kOutputLocked); }),
                 IoError);
  });
}

TEST(Agree, TheFirstLineThatDiffersIsNamedAlikeOnAllRanks) {
  run_ranks({.ranks = 3}, [](Rank& r) {
    std::vector<std::string> lines = {"a = 1", "b = 2", "c = 3"};
    EXPECT_FALSE(comm::find_difference(lines, r.world(), "options"));
    EXPECT_FALSE(comm::find_difference({}, r.world(), "options"));
    if (r.rank() == 1) lines[1] = "b = 5";
    if (r.rank() == 2) lines[0] = "a = 7";
    const auto found = comm::find_difference(lines, r.world(), "options");
    ASSERT_TRUE(found);
    EXPECT_EQ(found->rank, 1);
    EXPECT_EQ(found->other, "b = 5");
    EXPECT_EQ(found->first, "b = 2");
    lines = {"a = 1"};
    if (r.rank() == 2) lines.clear();
    const auto fewer = comm::find_difference(lines, r.world(), "options");
    ASSERT_TRUE(fewer);
    EXPECT_EQ(fewer->rank, 2);
    EXPECT_EQ(fewer->other, "");
    EXPECT_EQ(fewer->first, "a = 1");
  });
}

}  // namespace
}  // namespace reigen::testing
