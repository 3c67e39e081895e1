#include "train/memory_fit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>
#include <string>
#include <vector>

#include "base/host_name.h"
#include "reigen/base/bytes.h"
#include "reigen/nn/without_memory.h"
#include "reigen/parallel/data_parallel.h"
#include "train/agree.h"
#include "train/memory_use.h"
#include "train/report.h"
#include "train/strategy_of.h"

namespace reigen::train {
namespace {

constexpr std::int64_t kMostRanks = 1 << 16;

struct Need {
  ModelSize model;
  std::int64_t frozen = 0;

  std::int64_t of(const Division& division) const {
    const MemoryUse use = formula(model, division);
    return use.parameters + use.gradients + use.optimizer + frozen;
  }
};

Need need_of(const torch::nn::Module& module, const OptimConfig& optim) {
  Need need;
  for (const at::Tensor& parameter : module.parameters()) {
    if (parameter.requires_grad())
      need.model = need.model + size_of(parameter.numel(), static_cast<std::int64_t>(parameter.element_size()), optim);
    else
      need.frozen += static_cast<std::int64_t>(parameter.nbytes());
  }
  return need;
}

std::string text(std::int64_t bytes) { return format_bytes(static_cast<std::uint64_t>(bytes)); }

// What fits in `room` bytes that `here` ranks share.
std::string what_fits(const Need& need, const Division& now, bool common, std::int64_t room, int here) {
  std::vector<std::string> ways;
  for (const auto shard : {parallel::Shard::kOptimizer, parallel::Shard::kGradients, parallel::Shard::kParameters}) {
    const Division other{.shard = shard, .ranks = now.ranks, .common = common};
    const std::int64_t bytes = need.of(other) * here;
    if (now.ranks > 1 && bytes <= room)
      ways.push_back(fmt::format("--parallel.shard {} needs {}", parallel::to_text(shard), text(bytes)));
  }
  if (!ways.empty()) return fmt::format("{}", fmt::join(ways, ", "));
  Division more{.shard = parallel::Shard::kParameters, .ranks = now.ranks + 1};
  while (more.ranks < kMostRanks && need.of(more) > room / here) more.ranks += 1;
  if (need.of(more) > room / here) return "use a smaller model, or more memory";
  return fmt::format("{} ranks with as much memory each, over a network, with --parallel.shard parameters need {} each",
                     more.ranks, text(need.of(more)));
}

}  // namespace

void require_room(const torch::nn::Module& module, const Config& config, Communicator& world,
                  const std::function<base::AvailableMemory()>& available) {
  const Need need = need_of(module, config.optim);
  const bool common = world.backend() == "shared_memory";
  const parallel::Shard shard = world.size() == 1 ? parallel::Shard::kNone : shard_of(config.parallel, world);
  const Division division{.shard = shard,
                          .ranks = world.size() / static_cast<int>(config.parallel.replicas),
                          .common = common && shard != parallel::Shard::kNone};
  const base::AvailableMemory there = available();
  // The module as it is has taken its part already.
  std::int64_t held = 0;
  for (const at::Tensor& parameter : module.parameters()) {
    if (!nn::has_no_memory(parameter)) held += static_cast<std::int64_t>(parameter.nbytes());
  }
  struct Rank {
    std::uint64_t memory;  // which
    std::int64_t room;
  };
  const Rank mine{.memory = std::hash<std::string>()(base::host_name() + there.source),
                  .room = static_cast<std::int64_t>(there.bytes)};
  std::vector<Rank> ranks(static_cast<std::size_t>(world.size()));
  world.all_gather(&mine, ranks.data(), sizeof(Rank), DataType::kUint8, {.tag = "memory there"}).wait();
  together(world, "memory", [&] {
    if (there.source.empty()) return;
    int here = 0;
    for (const Rank& rank : ranks) here += rank.memory == mine.memory ? 1 : 0;
    const std::int64_t room = mine.room + here * held;
    const std::int64_t needed = here * need.of(division);
    if (needed <= room) return;
    throw Error(ExitCode::kOsResource,
                Report{.what = fmt::format("weights, gradients and states of the optimizer do not fit into memory"),
                       .got = fmt::format("{} for {} here with parallel.shard {}", text(needed), counted(here, "rank"),
                                          parallel::to_text(shard)),
                       .expected = fmt::format("at most {} ({})", text(room), there.source),
                       .fix = what_fits(need, division, common, room, here)});
  });
}

}  // namespace reigen::train
