#include "train/memory_fit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "reigen/base/bytes.h"
#include "reigen/nn/without_memory.h"
#include "reigen/parallel/data_parallel.h"
#include "train/agree.h"
#include "train/memory_use.h"
#include "train/report.h"

namespace reigen::train {
namespace {

constexpr std::int64_t kMostRanks = 1 << 16;

// The ranks of this one's memory, and what they share.
struct Here {
  std::int64_t room = 0;
  int ranks = 0;
  int savers = 0;  // of the first replica
  bool has_first = false;
};

struct Need {
  ModelSize model;
  bool offloads = false;
  bool copies = false;
  bool adds_up = false;

  std::int64_t of(const Division& division, const Here& here) const {
    const MemoryUse whole = formula(model, division);
    const MemoryUse use = offloads ? in_memory(whole, division) : whole;
    std::int64_t bytes = here.ranks * (use.parameters + use.gradients + use.optimizer);
    if (adds_up && makes_beside_shares(division)) bytes += here.ranks * model.weights;
    if (!copies) return bytes;
    const GivenToCheckpoint given = given_to_checkpoint(model, division);
    return bytes + here.savers * given.by_each + (here.has_first ? given.by_first : 0);
  }
};

std::string text(std::int64_t bytes) { return format_bytes(static_cast<std::uint64_t>(bytes)); }

std::string what_fits(const Need& need, const Division& now, bool common, const Here& here) {
  std::vector<std::string> ways;
  const auto add = [&](const std::string& option, const Need& other, const Division& division) {
    const std::int64_t bytes = other.of(division, here);
    if (bytes <= here.room) ways.push_back(fmt::format("{} needs {}", option, text(bytes)));
  };
  if (now.ranks > 1) {
    for (const auto shard : {parallel::Shard::kOptimizer, parallel::Shard::kGradients, parallel::Shard::kParameters}) {
      add(fmt::format("--parallel.shard {}", parallel::to_text(shard)), need,
          {.shard = shard, .ranks = now.ranks, .common = common, .has_replicas = now.has_replicas});
    }
  }
  const bool divides = !ways.empty();
  Need changed = need;
  changed.copies = false;
  if (need.copies) add("--checkpoint.asynchronous false", changed, now);
  changed = need;
  changed.adds_up = false;
  if (need.adds_up && makes_beside_shares(now)) add("--train.micro_batch 0", changed, now);
  changed = need;
  changed.offloads = true;
  if (!need.offloads) add("--parallel.offload DIRECTORY", changed, now);
  const Here alone{.room = here.room / here.ranks, .ranks = 1, .savers = 1, .has_first = true};
  Division more{.shard = parallel::Shard::kParameters, .ranks = now.ranks + 1};
  while (more.ranks < kMostRanks && need.of(more, alone) > alone.room) more.ranks += 1;
  if (!divides && need.of(more, alone) <= alone.room) {
    ways.push_back(
        fmt::format("{} ranks with as much memory each, over a network, with --parallel.shard parameters need {} each",
                    more.ranks, text(need.of(more, alone))));
  }
  return ways.empty() ? "use a smaller model, or more memory" : fmt::format("{}", fmt::join(ways, "; "));
}

// `sharers`: how many divide; they are the first replica. Collective.
Here ask_all(const base::AvailableMemory& there, int sharers, Communicator& world) {
  struct Rank {
    std::uint64_t memory;  // which
    std::int64_t room;
  };
  const Rank mine{.memory = std::hash<std::string>()(there.identity), .room = static_cast<std::int64_t>(there.bytes)};
  std::vector<Rank> ranks(static_cast<std::size_t>(world.size()));
  world.all_gather(&mine, ranks.data(), sizeof(Rank), DataType::kUint8, {.tag = "memory there"}).wait();
  Here here{.room = mine.room, .has_first = ranks.front().memory == mine.memory};
  for (int i = 0; i < world.size(); ++i) {
    if (ranks[static_cast<std::size_t>(i)].memory != mine.memory) continue;
    here.ranks += 1;
    if (i < sharers) here.savers += 1;
  }
  return here;
}

}  // namespace

void require_room(const char* what, std::int64_t bytes, const std::string& fix, Communicator& world,
                  const std::function<base::AvailableMemory()>& available) {
  const base::AvailableMemory there = available();
  const Here here = ask_all(there, world.size(), world);
  together(world, "memory", [&] {
    const std::int64_t needed = here.ranks * bytes;
    if (there.source.empty() || needed <= here.room) return;
    throw Error(ExitCode::kOsResource,
                Report{.what = fmt::format("{} does not fit into memory", what),
                       .got = fmt::format("{} more for {} here", text(needed), counted(here.ranks, "rank")),
                       .expected = fmt::format("at most {} ({})", text(here.room), there.source),
                       .fix = fix});
  });
}

void require_room(const torch::nn::Module& module, const Config& config, const parallel::DataParallelOptions& how,
                  std::int64_t samples, Communicator& world, const std::function<base::AvailableMemory()>& available) {
  const Need need{.model = size_of(module, config.optim),
                  .offloads = !how.offload.empty(),
                  .copies = config.checkpoint.asynchronous,
                  .adds_up = config.train.micro_batch > 0 && config.train.micro_batch < samples};
  const Division division = division_of(how, world);
  parallel::DataParallelOptions shared = how;
  shared.shard = parallel::Shard::kParameters;
  const bool common = division_of(shared, world).common;
  const base::AvailableMemory there = available();
  // The module as it is has taken its part already.
  std::int64_t held = 0;
  for (const at::Tensor& parameter : module.parameters()) {
    if (!nn::has_no_memory(parameter)) held += static_cast<std::int64_t>(parameter.nbytes());
  }
  Here here = ask_all(there, division.ranks, world);
  here.room += here.ranks * held;
  together(world, "memory", [&] {
    if (there.source.empty()) return;
    const std::int64_t needed = need.of(division, here);
    if (needed <= here.room) return;
    std::string beside;
    if (need.copies) beside += ", and copies for checkpoint.asynchronous,";
    if (need.adds_up && makes_beside_shares(division)) beside += " with gradients of several micro-batches";
    throw Error(
        ExitCode::kOsResource,
        Report{.what = fmt::format("weights, gradients and states of the optimizer{} do not fit into memory", beside),
               .got = fmt::format("{} for {} here with parallel.shard {}", text(needed), counted(here.ranks, "rank"),
                                  parallel::to_text(division.shard)),
               .expected = fmt::format("at most {} ({})", text(here.room), there.source),
               .fix = what_fits(need, division, common, here)});
  });
}

}  // namespace reigen::train
