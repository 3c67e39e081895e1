// reigen bench: times one operation. A process that a user starts alone first starts the ranks. A process that a
// launcher starts is one of the ranks.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/check.h"
#include "base/log.h"
#include "base/machine/host_name.h"
#include "bench/explain.h"
#include "bench/measure.h"
#include "bench/memory.h"
#include "bench/options.h"
#include "bench/ranks.h"
#include "bench/report.h"
#include "comm/backends.h"
#include "comm/tuning/table.h"
#include "reigen/base/bytes.h"
#include "reigen/base/error.h"
#include "reigen/format/atomic_file.h"
#include "reigen/launch/environment.h"
#include "reigen/runtime/init.h"
#include "reigen_commands.h"

namespace reigen::apps::bench {

namespace {

// The bytes of a rank's buffers, and of the buffers with which the lower bound of the time is measured.
std::size_t memory_of_rank(const std::vector<Problem>& problems, const BenchOptions& options) {
  std::size_t most = 0;
  for (const Problem& problem : problems) {
    const std::size_t place = place_bytes(problem) + 2 * problem.bytes();
    most = std::max(most, place * slots_of(std::max<std::size_t>(place, 4 * kKiB), options));
  }
  return 64 * kMiB + most;
}

// One line for each rank, such as "Rank 0 Pid 12345 on hostname", in the form of nccl-tests.
std::vector<std::string> describe_ranks(const Communicator& world) {
  constexpr std::size_t kWidth = 96;
  std::string mine = fmt::format(" Rank {:>2} Pid {:>6} on {:>10}", world.rank(), ::getpid(), base::host_name());
  mine.resize(kWidth, '\0');
  std::string all(kWidth * static_cast<std::size_t>(world.size()), '\0');
  world.all_gather(mine.data(), all.data(), kWidth, comm::DataType::kUint8);
  std::vector<std::string> ranks;
  for (std::size_t at = 0; at < all.size(); at += kWidth) ranks.emplace_back(all.c_str() + at);
  return ranks;
}

std::string machine_of_this_rank(int machines) {
  const launch::Environment environment = launch::detect_environment();
  return fmt::format("bench{}", environment.rank * machines / environment.world_size);
}

// Warns if no size took the algorithm of --algorithm, so that the user knows what was timed. For example, a rule for
// calls between machines changes nothing if the group has only one machine.
void warn_if_not_taken(const BenchOptions& options, const std::vector<Row>& rows) {
  const std::string word = named_algorithm(options);
  if (word.empty()) return;
  const auto took = [&](const Row& row) { return row.algorithm.find(word) != std::string::npos; };
  if (std::any_of(rows.begin(), rows.end(), took)) return;
  base::log_warning("no size took --algorithm {}: {} took {}; --explain says why", options.algorithm, options.backend,
                    rows.back().algorithm);
}

int be_rank(const BenchOptions& options) {
  InitOptions init_options{.backend = options.backend == "auto" ? "" : options.backend,
                           .algorithms = rules_of(options),
                           .segments = options.segments,
                           .device = options.device};
  if (options.machines > 0) init_options.machine_id = machine_of_this_rank(options.machines);
  Communicator world = init(init_options);
  const bool prints = world.rank() == 0;
  std::optional<format::AtomicFile> json;  // opened before the work, so that a bad path does not cost a run
  if (prints && !options.json.empty()) json.emplace(options.json);
  const std::vector<std::string> ranks = describe_ranks(world);
  if (prints) print_header(world, options, ranks);
  std::vector<Problem> problems = problems_of(options, world.size(), world.rank());
  for (Problem& problem : problems) problem.device = world.device();
  const std::shared_ptr<std::byte> memory = allocate_for(world, problems, options);
  std::vector<Row> rows;
  for (const Problem& problem : problems) {
    rows.push_back(measure(world, problem, options, memory.get()));
    if (prints) print_row(rows.back());
  }
  if (!prints) return 0;  // only rank 0 returns 1, because another rank's failure would end rank 0 while it prints
  print_footer(rows);
  warn_if_not_taken(options, rows);
  if (json) {
    const std::string text = to_json(rows, world.device().is_cpu() ? world.backend() : world.device_backend());
    json->write(std::as_bytes(std::span(text)));
    json->commit();
  }
  const bool wrong = std::any_of(rows.begin(), rows.end(), [](const Row& row) { return row.wrong.value_or(0) > 0; });
  return wrong ? 1 : 0;
}

// Reads the file of `reigen tune` before the ranks start, so that a damaged file is reported once and not by every
// rank.
void check_tuned(const BenchOptions& options, int ranks) {
  if (options.algorithm != comm::kTuned || ranks < 2) return;
  const std::vector<comm::Family>& families = comm::find_backend(options.backend).families;
  const bool one_machine = options.backend == comm::kAutomatic && options.machines <= 1;
  if (families.size() == 1 || one_machine) {
    comm::tuning::read_cache(one_machine ? comm::Family::kSharedMemory : families.front(), ranks);
  }
}

int run_bench(const Arguments& arguments) {
  const std::optional<BenchOptions> options = parse_bench_options(arguments);
  if (!options) return 0;
  const Ranks ranks = find_ranks(options->ranks);
  const std::vector<Problem> problems = problems_of(*options, ranks.count, 0);  // throws before any rank is started
  if (options->explain) {
    explain(*options, ranks.count);
    return 0;
  }
  if (!ranks.started && ranks.count > 1) {
    check_tuned(*options, ranks.count);
    return start_ranks("bench", arguments, ranks.count, memory_of_rank(problems, *options), !options->device.is_cpu());
  }
  return be_rank(*options);
}

}  // namespace

}  // namespace reigen::apps::bench

namespace reigen::apps {

int bench_command(const Arguments& arguments) {
  if (arguments.empty() || arguments[0] != "ddp") return bench::run_bench(arguments);
  // A training step needs LibTorch, so the recipes' program measures it. The default is two ranks; a later -n overrides
  // it.
  Arguments words{"bench-ddp", "-n", "2"};
  words.insert(words.end(), arguments.begin() + 1, arguments.end());
  return train_command(words);
}

}  // namespace reigen::apps
