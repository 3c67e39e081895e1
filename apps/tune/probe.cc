#include "tune/probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <utility>

#include "base/machine/cores.h"
#include "base/machine/host_name.h"
#include "bench/measure.h"
#include "bench/statistics.h"
#include "comm/shared_memory/ways.h"
#include "reigen/base/bytes.h"
#include "reigen/launch/environment.h"
#include "runtime/group_options.h"

namespace reigen::apps::tune {

namespace {

using bench::BenchOptions;
using bench::Problem;
using comm::Family;
using comm::OperationKind;
namespace tuning = comm::tuning;

constexpr std::array kSizes = {std::size_t{256}, 2 * kKiB, 16 * kKiB, 128 * kKiB, kMiB};
// There are several passes, because a machine that is busy for a moment spoils only one pass. The result of a pass is a
// fast time: the 0.1-quantile of all times of the pass.
constexpr int kPasses = 5;
constexpr double kFraction = 0.1;

// Each operation has a list of algorithms. There is one group of all ranks for every position (`place`) in these lists.
// In the group of position i, each operation takes the i-th algorithm of its list.
class Groups {
 public:
  Groups(Family family, const std::vector<Problem>& problems) {
    const launch::Environment environment = launch::detect_environment();
    comm::GroupOptions options = group_options({.backend = comm::name_of(family)});
    options.rank = environment.rank;
    options.size = environment.world_size;
    options.store = launch::join_job(environment, Deadline::after(options.join_timeout), options.heartbeat_timeout);
    for (std::size_t place = 0;; ++place) {
      options.algorithms = rules_of_place(family, place);
      if (options.algorithms.empty()) return;
      options.name = fmt::format("tune{}", place);
      groups_.emplace_back(Communicator(options));
      memory_.push_back(bench::allocate_for(groups_.back(), problems, {}));
    }
  }

  Communicator& at(std::size_t place) { return groups_[place]; }
  std::byte* memory(std::size_t place) { return memory_[place].get(); }

 private:
  static std::string rules_of_place(Family family, std::size_t place) {
    std::string rules;
    for (const OperationKind kind : comm::kRuledKinds) {
      const auto names = comm::algorithm_names(family, kind);
      if (place >= names.size()) continue;
      rules += fmt::format("{}{}:{}", rules.empty() ? "" : ",", comm::name_of(kind), names[place]);
    }
    return rules;
  }

  std::deque<Communicator> groups_;
  std::deque<std::shared_ptr<std::byte>> memory_;
};

std::vector<Problem> problems_of(OperationKind kind, int ranks, int rank) {
  BenchOptions options;
  options.operation = kind;
  std::vector<Problem> problems;
  for (const std::size_t size : kSizes) {
    options.smallest = options.largest = size;
    problems.push_back(bench::problems_of(options, ranks, rank).front());
    if (kind == OperationKind::kBarrier) break;
  }
  return problems;
}

std::vector<Problem> all_problems(int ranks, int rank) {
  std::vector<Problem> all;
  for (const OperationKind kind : comm::kRuledKinds) {
    const auto some = problems_of(kind, ranks, rank);
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

std::size_t count_measurements(Family family) {
  std::size_t count = 0;
  for (const OperationKind kind : comm::kRuledKinds) {
    const std::size_t sizes = kind == OperationKind::kBarrier ? 1 : kSizes.size();
    count += comm::algorithm_names(family, kind).size() * sizes;
  }
  return count;
}

// The least time over all passes, for every size in bytes.
using Samples = std::map<std::size_t, double>;

// If a call took an algorithm other than `algorithm`, the wanted algorithm cannot run at this size, and the time does
// not count.
void time_sizes(const Communicator& world, const std::vector<Problem>& problems, const BenchOptions& options,
                std::byte* memory, const std::string& algorithm, Samples& samples) {
  for (const Problem& problem : problems) {
    const bench::Times times = bench::time_size(world, problem, options, memory);
    if (times.algorithm != algorithm) continue;
    const double seconds = bench::quantile(times.slowest, kFraction);
    const auto [found, is_new] = samples.emplace(problem.bytes(), seconds);
    found->second = std::min(found->second, seconds);
  }
}

// True if on any rank more than `seconds` have passed after `since`. Every rank gets the same answer.
bool is_over(const Communicator& world, std::chrono::steady_clock::time_point since, double seconds) {
  double passed = std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count();
  world.all_reduce(&passed, &passed, 1, comm::DataType::kFloat64, comm::ReduceOp::kMax);
  return passed > seconds;
}

tuning::Line line_through(const Samples& samples) {
  std::vector<tuning::Sample> points;
  for (const auto& [bytes, seconds] : samples) points.push_back({static_cast<double>(bytes), seconds});
  return tuning::fit(points);
}

std::size_t limit_of(Family family, OperationKind kind, const std::string& algorithm, int ranks) {
  const bool carried = family == Family::kSharedMemory && algorithm == name_of(comm::shared_memory::Way::kOneShot);
  if (!carried) return SIZE_MAX;
  return comm::shared_memory::largest_one_shot(kind, ranks, base::have_cores(ranks));
}

}  // namespace

tuning::Table probe(const TuneOptions& options) {
  const launch::Environment environment = launch::detect_environment();
  const int ranks = environment.world_size;
  Groups groups(options.family, all_problems(ranks, environment.rank));
  BenchOptions timing;
  timing.warmup = 1;
  timing.seconds = options.seconds / static_cast<double>(kPasses * count_measurements(options.family));
  const auto since = std::chrono::steady_clock::now();
  std::map<std::pair<OperationKind, std::string>, Samples> samples;
  for (int pass = 0; pass < kPasses; ++pass) {
    if (pass > 0 && is_over(groups.at(0), since, options.seconds)) break;
    timing.fill = pass == 0;
    for (const OperationKind kind : comm::kRuledKinds) {
      const auto problems = problems_of(kind, ranks, environment.rank);
      const auto names = comm::algorithm_names(options.family, kind);
      for (std::size_t place = 0; place < names.size(); ++place) {
        time_sizes(groups.at(place), problems, timing, groups.memory(place), names[place],
                   samples[{kind, names[place]}]);
      }
    }
  }
  tuning::Table table{.host = base::host_name(), .family = options.family, .ranks = ranks};
  for (const OperationKind kind : comm::kRuledKinds) {
    std::vector<tuning::Candidate> candidates;
    for (const std::string& name : comm::algorithm_names(options.family, kind)) {
      const Samples& some = samples[{kind, name}];
      if (some.empty()) continue;
      const tuning::Line line = line_through(some);
      table.timings.push_back({kind, name, line});
      candidates.push_back({name, line, limit_of(options.family, kind, name, ranks)});
    }
    table.rules +=
        (table.rules.empty() ? "" : ",") + tuning::rules_of(comm::name_of(kind), tuning::cheapest(candidates));
  }
  return table;
}

std::size_t memory_of_probe() { return 64 * kMiB + 16 * kSizes.back(); }

}  // namespace reigen::apps::tune
