// Grids of ranks: the place of each rank, and the groups along the axes.
#include "reigen/mesh/mesh.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "harness/ranks.h"
#include "reigen/base/error.h"

namespace reigen::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The ranks of a group, by their numbers in the world.
std::vector<int> members(Communicator group, int rank) {
  std::vector<int> all(static_cast<std::size_t>(group.size()));
  group.all_gather(&rank, all.data(), 1, DataType::kInt32);
  return all;
}

TEST(Mesh, LastAxisIsTheInnermost) {
  run_ranks({.ranks = 8}, [](Rank& r) {
    Mesh grid(r.world(), {{"dp_replicate", 2}, {"dp_shard", mesh::kRest}});
    const int row = r.rank() / 4;
    const int column = r.rank() % 4;
    EXPECT_EQ(grid.size("dp_shard"), 4);
    EXPECT_EQ(grid.coordinate("dp_replicate"), row);
    EXPECT_EQ(grid.coordinate("dp_shard"), column);
    EXPECT_EQ(grid.to_text(), "dp_replicate 2 x dp_shard 4");
    EXPECT_THAT(members(grid.along("dp_shard"), r.rank()), ElementsAre(4 * row, 4 * row + 1, 4 * row + 2, 4 * row + 3));
    EXPECT_THAT(members(grid.along("dp_replicate"), r.rank()), ElementsAre(column, column + 4));
    EXPECT_EQ(grid.along("dp_shard").rank(), column);
  });
}

TEST(Mesh, AxesJoinIntoOne) {
  run_ranks({.ranks = 8}, [](Rank& r) {
    const Mesh grid(r.world(), {{"pp", 2}, {"dp", 2}, {"tp", 2}});
    const int pp = r.rank() / 4;
    const int tp = r.rank() % 2;
    EXPECT_THAT(members(grid.along({"dp", "tp"}), r.rank()), ElementsAre(4 * pp, 4 * pp + 1, 4 * pp + 2, 4 * pp + 3));
    EXPECT_THAT(members(grid.along({"pp", "dp"}), r.rank()), ElementsAre(tp, tp + 2, tp + 4, tp + 6));
    EXPECT_EQ(grid.along({"pp", "dp", "tp"}).size(), 8);
    EXPECT_EQ(grid.along({"dp", "tp"}).name(), grid.along({"dp", "tp"}).name()) << "made once";
    const std::vector<std::string> names = {"dp", "tp"};
    EXPECT_EQ(grid.along(names).name(), grid.along({"dp", "tp"}).name());
    // The example in the header.
    int sum = 1;
    grid.along("tp").all_reduce(&sum, &sum, 1, DataType::kInt32, ReduceOp::kSum);
    EXPECT_EQ(sum, 2);
  });
}

TEST(Mesh, CoordinatesAndRanksAreInverse) {
  run_ranks({.ranks = 6}, [](Rank& r) {
    Mesh grid(r.world(), {{"a", 3}, {"b", 1}, {"c", 2}});
    for (int rank = 0; rank < 6; ++rank) EXPECT_EQ(grid.rank_at(grid.coordinates_of(rank)), rank);
    EXPECT_THAT(grid.coordinates_of(3), ElementsAre(1, 0, 1));
    EXPECT_EQ(grid.along("b").size(), 1);
    EXPECT_EQ(grid.size("tp"), 1) << "an axis that is not there";
    EXPECT_EQ(grid.coordinate("tp"), 0);
    EXPECT_FALSE(grid.has("tp"));
    EXPECT_THROW(grid.coordinates_of(6), InvalidArgument);
    EXPECT_THROW((void)grid.rank_at({0, 1, 0}), InvalidArgument);
    EXPECT_THROW((void)grid.rank_at({0, 0}), InvalidArgument);
  });
}

TEST(Mesh, OfOneRankIsAlone) {
  Mesh grid({}, {{"dp", mesh::kRest}, {"tp", 1}});
  EXPECT_EQ(grid.along("dp").size(), 1);
  EXPECT_EQ(grid.along({"dp", "tp"}).size(), 1);
}

// The axes are refused on every rank with the same type of error and this text. The world remains usable.
void expect_refused(Rank& r, std::vector<mesh::Axis> axes, const ::testing::Matcher<std::string>& matcher) {
  try {
    Mesh grid(r.world(), std::move(axes));
    ADD_FAILURE() << "no error on rank " << r.rank();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), matcher) << "rank " << r.rank();
  }
  EXPECT_EQ(members(r.world(), r.rank()).size(), 4U);
}

TEST(Mesh, RefusesAxesThatMakeNoGrid) {
  run_ranks({.ranks = 4}, [](Rank& r) {
    expect_refused(r, {{"a", 2}, {"b", 3}},
                   AllOf(HasSubstr("a 2 x b 3 for 4 ranks"), HasSubstr("product is 4"), HasSubstr("take a 2 x b 2")));
    expect_refused(r, {{"a", 2}}, HasSubstr("a 2 for 4 ranks"));
    expect_refused(r, {{"a", 3}, {"b", mesh::kRest}}, HasSubstr("a 3 x b rest for 4 ranks"));
    expect_refused(r, {{"a", 2}, {"a", 2}}, HasSubstr("axis a comes twice"));
    expect_refused(r, {{"", 4}}, HasSubstr("axis 0 has no name"));
    expect_refused(r, {{"a", 4}, {"b", 0}}, HasSubstr("axis b has size 0"));
    expect_refused(r, {{"a", mesh::kRest}, {"b", mesh::kRest}}, HasSubstr("both take the rest"));
    expect_refused(r, {}, HasSubstr("no axes"));
    expect_refused(r, {{"a", 1 << 30}, {"b", 1 << 30}, {"c", 1 << 30}}, HasSubstr("for 4 ranks"));
  });
}

TEST(Mesh, RefusesOtherAxesOnOneRankOnAll) {
  run_ranks({.ranks = 4}, [](Rank& r) {
    expect_refused(r, {{r.rank() == 2 ? "b" : "a", 4}}, AllOf(HasSubstr("rank 2: b 4"), HasSubstr("rank 0: a 4")));
  });
}

TEST(Mesh, ATableHasALineForEachRank) {
  run_ranks({.ranks = 4}, [](Rank& r) {
    const std::string table = Mesh(r.world(), {{"dp_shard", 2}, {"tp", 2}}).table();
    EXPECT_THAT(table, ::testing::MatchesRegex("rank  host *  dp_shard  tp\n"
                                               "   0  [^ ]+ +0   0\n   1  [^ ]+ +0   1\n"
                                               "   2  [^ ]+ +1   0\n   3  [^ ]+ +1   1"));
  });
}

TEST(Mesh, NamesTheAxesThereAre) {
  Mesh grid({}, {{"dp", 1}, {"tp", 1}});
  try {
    grid.along("pp");
    ADD_FAILURE();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("no axis pp"), HasSubstr("dp 1 x tp 1")));
  }
  EXPECT_THROW(grid.along({"dp", "pp"}), InvalidArgument);
  EXPECT_THROW(grid.along({"tp", "dp"}), InvalidArgument) << "inner before outer";
}

}  // namespace
}  // namespace reigen::testing
