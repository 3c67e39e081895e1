// Short versions of scripts/check/soak.
#include "trial/soak.h"

#include <gtest/gtest.h>

#include "harness/ranks.h"

namespace reigen::testing {
namespace {

void soak(Rank& r, std::uint64_t operations, int cycles) {
  trial::SoakOptions options{.seed = 5, .operations = operations, .cycles = cycles};
  options.make_group = [&](const std::string& name) { return r.make_group(name); };
  options.on_wrong = [&](const std::string& wrong) {
    ADD_FAILURE() << wrong;
    r.world().abort("a wrong value");
  };
  const auto in_cycles = trial::find_leak(trial::soak_cycles(r.world(), options).looks, trial::kSlackOfCycles);
  EXPECT_FALSE(in_cycles.has_value()) << *in_cycles;
  const auto in_calls = trial::find_leak(trial::soak_operations(r.world(), options).looks, trial::kSlackOfOperations);
  EXPECT_FALSE(in_calls.has_value()) << *in_calls;
}

TEST(Soak, OfThreads) {
  run_ranks({.ranks = 4}, [](Rank& r) { soak(r, 1000, 40); });
}

TEST(Soak, OfProcesses) {
  run_ranks({.ranks = 3, .kind = RankKind::kProcesses}, [](Rank& r) { soak(r, 1000, 40); });
}

}  // namespace
}  // namespace reigen::testing
