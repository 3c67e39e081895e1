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

struct Need {
  ModelSize model;
  bool offloads = false;

  std::int64_t of(const Division& division) const {
    const MemoryUse whole = formula(model, division);
    const MemoryUse use = offloads ? in_memory(whole, division) : whole;
    return use.parameters + use.gradients + use.optimizer;
  }
};

std::string text(std::int64_t bytes) { return format_bytes(static_cast<std::uint64_t>(bytes)); }

// What fits in `room` bytes that `here` ranks share.
std::string what_fits(const Need& need, const Division& now, bool common, std::int64_t room, int here) {
  std::vector<std::string> ways;
  for (const auto shard : {parallel::Shard::kOptimizer, parallel::Shard::kGradients, parallel::Shard::kParameters}) {
    const Division other{.shard = shard, .ranks = now.ranks, .common = common, .has_replicas = now.has_replicas};
    const std::int64_t bytes = need.of(other) * here;
    if (now.ranks > 1 && bytes <= room)
      ways.push_back(fmt::format("--parallel.shard {} needs {}", parallel::to_text(shard), text(bytes)));
  }
  const bool divides = !ways.empty();
  Need on_disk = need;
  on_disk.offloads = true;
  if (!need.offloads && on_disk.of(now) * here <= room)
    ways.push_back(fmt::format("--parallel.offload DIRECTORY needs {}", text(on_disk.of(now) * here)));
  Division more{.shard = parallel::Shard::kParameters, .ranks = now.ranks + 1};
  while (more.ranks < kMostRanks && need.of(more) > room / here) more.ranks += 1;
  if (!divides && need.of(more) <= room / here) {
    ways.push_back(
        fmt::format("{} ranks with as much memory each, over a network, with --parallel.shard parameters need {} each",
                    more.ranks, text(need.of(more))));
  }
  return ways.empty() ? "use a smaller model, or more memory" : fmt::format("{}", fmt::join(ways, "; "));
}

// What the ranks of this one's memory share.
struct Shared {
  std::int64_t room = 0;
  int ranks = 0;
};

// Collective.
Shared ask_all(const base::AvailableMemory& there, Communicator& world) {
  struct Rank {
    std::uint64_t memory;  // which
    std::int64_t room;
  };
  const Rank mine{.memory = std::hash<std::string>()(there.identity), .room = static_cast<std::int64_t>(there.bytes)};
  std::vector<Rank> ranks(static_cast<std::size_t>(world.size()));
  world.all_gather(&mine, ranks.data(), sizeof(Rank), DataType::kUint8, {.tag = "memory there"}).wait();
  Shared shared{.room = mine.room};
  for (const Rank& rank : ranks) shared.ranks += rank.memory == mine.memory ? 1 : 0;
  return shared;
}

}  // namespace

void require_room(const char* what, std::int64_t bytes, const std::string& fix, Communicator& world,
                  const std::function<base::AvailableMemory()>& available) {
  const base::AvailableMemory there = available();
  const Shared shared = ask_all(there, world);
  together(world, "memory", [&] {
    const std::int64_t needed = shared.ranks * bytes;
    if (there.source.empty() || needed <= shared.room) return;
    throw Error(ExitCode::kOsResource,
                Report{.what = fmt::format("{} does not fit into memory", what),
                       .got = fmt::format("{} more for {} here", text(needed), counted(shared.ranks, "rank")),
                       .expected = fmt::format("at most {} ({})", text(shared.room), there.source),
                       .fix = fix});
  });
}

void require_room(const torch::nn::Module& module, const Config& config, const parallel::DataParallelOptions& how,
                  Communicator& world, const std::function<base::AvailableMemory()>& available) {
  const Need need{.model = size_of(module, config.optim), .offloads = !how.offload.empty()};
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
  const Shared all = ask_all(there, world);
  together(world, "memory", [&] {
    if (there.source.empty()) return;
    const int here = all.ranks;
    const std::int64_t room = all.room + here * held;
    const std::int64_t needed = here * need.of(division);
    if (needed <= room) return;
    throw Error(ExitCode::kOsResource,
                Report{.what = "weights, gradients and states of the optimizer do not fit into memory",
                       .got = fmt::format("{} for {} here with parallel.shard {}", text(needed), counted(here, "rank"),
                                          parallel::to_text(division.shard)),
                       .expected = fmt::format("at most {} ({})", text(room), there.source),
                       .fix = what_fits(need, division, common, room, here)});
  });
}

}  // namespace reigen::train
