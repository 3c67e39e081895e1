#include "bench/explain.h"

#include <fmt/format.h>

#include <memory>
#include <optional>

#include "base/machine/cores.h"
#include "bench/memory.h"
#include "comm/backends.h"
#include "comm/hierarchical/plan.h"
#include "comm/tuning/explain.h"
#include "comm/tuning/table.h"
#include "reigen/base/error.h"

namespace reigen::apps::bench {

namespace {

namespace tuning = comm::tuning;
using comm::AlgorithmChoice;
using comm::Family;

// The choice of algorithms inside a machine or between machines, and where the rules of this choice come from.
struct Rules {
  AlgorithmChoice choice;
  std::string source;
};

Rules rules_for(const BenchOptions& options, Family family, int ranks) {
  const std::string rules = rules_of(options);
  if (rules != comm::kTuned) return {AlgorithmChoice(rules, family), "rule"};
  if (ranks == 1) return {AlgorithmChoice("", family), ""};
  const auto table = tuning::read_cache(family, ranks);
  if (!table) {
    throw InvalidArgument({.what = "nothing was tuned for this backend and number of ranks",
                           .got = fmt::format("backend {}, {} ranks", comm::name_of(family), ranks),
                           .expected = tuning::cache_path(family, ranks).string(),
                           .fix = fmt::format("reigen tune -n {} --backend {}", ranks, comm::name_of(family))});
  }
  return {AlgorithmChoice(table->rules, family), "tuned"};
}

std::string why(const tuning::Taken& taken, const std::string& source) {
  return taken.rule.empty() ? "built in" : fmt::format("{} {}", source, taken.rule);
}

// Explains the algorithms of a group whose ranks are all on this machine.
void explain_one_level(const BenchOptions& options, Family family, int ranks) {
  const Rules rules = rules_for(options, family, ranks);
  fmt::print("# {}: backend {}, {} ranks\n#{:>11}  {:<20}  why\n", traits_of(options.operation).name,
             comm::name_of(family), ranks, "size", "algorithm");
  for (const Problem& problem : problems_of(options, ranks, 0)) {
    tuning::Taken taken =
        tuning::taken(rules.choice, problem.operation, problem.bytes(), ranks, base::have_cores(ranks));
    std::string reason = why(taken, rules.source);
    if (options.foreign && taken.algorithm == "fused") {
      taken.algorithm = "two_shot";
      reason += "; fused is for memory of the communicator";
    }
    fmt::print("{:>12}  {:<20}  {}\n", problem.bytes(), taken.algorithm, reason);
  }
}

// The layout of the ranks on machines, seen from rank 0. As with --machines, neighbouring ranks share a machine.
comm::hierarchical::Layout layout_of(int ranks, int machines) {
  comm::hierarchical::Machines all(static_cast<std::size_t>(machines));
  for (int rank = 0; rank < ranks; ++rank) all[static_cast<std::size_t>(rank * machines / ranks)].push_back(rank);
  return {all, 0};
}

comm::Call call_of(const Problem& problem, const Place& place) {
  comm::Call call{.kind = comm::even_kind(problem.operation),
                  .input = place.input,
                  .output = problem.operation == Operation::kBroadcast ? place.input : place.output,
                  .count = problem.count,
                  .type = problem.type,
                  .op = problem.op,
                  .root = problem.root};
  return call;
}

void explain_stages(const BenchOptions& options, int ranks) {
  const auto layout = layout_of(ranks, std::max(1, options.machines));
  const int inside = static_cast<int>(layout.neighbours().size());
  const int machines = layout.machine_count();
  const Rules within = rules_for(options, Family::kSharedMemory, inside);
  const Rules between = machines > 1 ? rules_for(options, Family::kTcp, machines) : within;
  const Rules everybody = rules_for(options, Family::kTcp, ranks);
  fmt::print("# {}: backend hierarchical, {} machines, {} ranks on the first\n#{:>11}  stages of rank 0\n",
             traits_of(options.operation).name, machines, inside, "size");
  for (const Problem& problem : problems_of(options, ranks, 0)) {
    const auto memory = allocate_private(place_bytes(problem));
    std::vector<std::shared_ptr<std::byte>> areas;
    const auto stages = comm::hierarchical::plan(call_of(problem, place_at(problem, memory.get())), layout, "",
                                                 [&](int, std::size_t bytes) {
                                                   areas.push_back(allocate_private(bytes));
                                                   return areas.back().get();
                                                 });
    fmt::print("{:>12}", problem.bytes());
    for (const auto& stage : stages) {
      using comm::hierarchical::Level;
      if (stage.level == Level::kHere) continue;
      const bool is_inside = stage.level == Level::kInside;
      const int size = is_inside ? inside : stage.level == Level::kBetween ? machines : ranks;
      const Rules& rules = is_inside ? within : stage.level == Level::kBetween ? between : everybody;
      const auto bytes = comm::whole_bytes(stage.call, size);
      const auto taken = tuning::taken(rules.choice, stage.call.kind, bytes, size, base::have_cores(size));
      fmt::print("  {} {} by {} ({});", comm::name_of(rules.choice.family()), comm::name_of(stage.call.kind),
                 taken.algorithm, why(taken, rules.source));
    }
    fmt::print("\n");
  }
}

}  // namespace

void explain(const BenchOptions& options, int ranks) {
  const bool automatic = options.backend == comm::kAutomatic;
  const std::vector<Family>& families = comm::find_backend(options.backend).families;
  const int machines = std::max(1, options.machines);
  if (options.operation == Operation::kSend || (automatic && ranks == 1) || families.empty()) {
    throw InvalidArgument(
        {.what = "there is no choice of algorithms to explain",
         .got = fmt::format("{}, backend {}, {} ranks", traits_of(options.operation).name, options.backend, ranks),
         .expected = "a collective of backend auto, shared_memory, tcp or hierarchical, several ranks",
         .fix = "reigen bench all_reduce --explain"},
        ExitCode::kUsage);
  }
  if (families.size() == 1) {
    explain_one_level(options, families.front(), ranks);
  } else if (automatic && machines == 1) {
    explain_one_level(options, Family::kSharedMemory, ranks);
  } else if (automatic && machines >= ranks) {
    explain_one_level(options, Family::kTcp, ranks);
  } else {
    explain_stages(options, ranks);
  }
}

}  // namespace reigen::apps::bench
