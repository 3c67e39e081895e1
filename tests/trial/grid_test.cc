// Each operation with each type and reduction once for several numbers of ranks. The seed picks counts, kinds of memory
// and manners. scripts/check/grid runs all of them.
#include "trial/grid.h"

#include <gtest/gtest.h>

#include <string>

#include "harness/ranks.h"
#include "trial/algorithms.h"

namespace reigen::testing {
namespace {

struct GridParameter {
  const char* backend;
  int ranks;
  const char* algorithm = "";  // for every operation that has it
};

class Grid : public ::testing::TestWithParam<GridParameter> {};

TEST_P(Grid, EveryOperationTypeAndReductionOnce) {
  run_ranks(
      {.ranks = GetParam().ranks, .backend = GetParam().backend, .algorithms = trial::rules_of(GetParam().algorithm)},
      [](Rank& r) {
        trial::GridOptions options{
            .quick = true, .seed = static_cast<std::uint64_t>(r.size()), .algorithm = GetParam().algorithm};
        options.on_wrong = [&](const std::string& wrong) {
          ADD_FAILURE() << wrong;
          r.world().abort("a wrong value");
        };
        const auto counts = trial::run_grid(r.world(), options);
        if (r.size() > 1 && options.algorithm.empty()) {
          EXPECT_EQ(counts.at("send_recv"), 10U);
        }
      });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Grid,
                         ::testing::Values(GridParameter{"shared_memory", 1}, GridParameter{"shared_memory", 2},
                                           GridParameter{"shared_memory", 3}, GridParameter{"shared_memory", 5},
                                           GridParameter{"shared_memory", 8}, GridParameter{"tcp", 1},
                                           GridParameter{"tcp", 2}, GridParameter{"tcp", 3},
                                           GridParameter{"shared_memory", 3, "two_shot"},
                                           GridParameter{"shared_memory", 3, "fused"}, GridParameter{"tcp", 5, "ring"},
                                           GridParameter{"tcp", 5, "halving_doubling"},
                                           GridParameter{"tcp", 5, "recursive_doubling"},
                                           GridParameter{"tcp", 5, "tree"}, GridParameter{"hierarchical", 3},
                                           GridParameter{"hierarchical", 5}),
                         [](const auto& one) {
                           return std::string(one.param.backend) + "_" + std::to_string(one.param.ranks) +
                                  (*one.param.algorithm == 0 ? "" : std::string("_") + one.param.algorithm);
                         });

TEST(GridOfOne, EveryOperationTypeAndReductionOnce) {
  run_ranks({.ranks = 1, .backend = "self"}, [](Rank& r) {
    trial::GridOptions options{.quick = true, .seed = 99};
    options.on_wrong = [](const std::string& wrong) { ADD_FAILURE() << wrong; };
    trial::run_grid(r.world(), options);
  });
}

}  // namespace
}  // namespace reigen::testing
