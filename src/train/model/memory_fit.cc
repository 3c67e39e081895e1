#include "train/model/memory_fit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "base/text.h"
#include "config/checks.h"
#include "reigen/base/bytes.h"
#include "reigen/nn/without_memory.h"
#include "train/run/agree.h"

namespace reigen::train {
namespace {

constexpr int kMostRanks = 1 << 12;

// The ranks that use the same memory (of a host or a GPU) as this rank, and the bytes that they may take together.
struct Here {
  std::int64_t room = 0;
  std::vector<int> ranks = {};
};

struct Need {
  parallel::LayoutInputs inputs;
  bool copies = false;           // whether copies of the tensors that a rank writes to a checkpoint count
  bool adds_up = false;          // whether whole gradients that are kept between micro-batches count
  std::int64_t of_strategy = 0;  // bytes of each rank for the strategy
  bool has_strategy = false;     // whether a strategy other than plain is set

  std::int64_t of(const Here& here) const { return of(inputs.choose(), here); }
  std::int64_t of(const layout::Layout& layout, const Here& here) const {
    using layout::Role;
    std::int64_t bytes = 0;
    for (const int rank : here.ranks) {
      const layout::Coordinates at = layout.coordinates_of(rank);
      for (const Role role : {Role::kValue, Role::kGradient, Role::kState}) {
        bytes +=
            layout.bytes(role, at, inputs.machine.has_model_on_gpu ? layout::Medium::kDevice : layout::Medium::kHost);
      }
      if (adds_up) bytes += layout.bytes_before_averaging(at);
      if (copies) bytes += layout.bytes_given(at);
      bytes += of_strategy;
    }
    return bytes;
  }
  // The bytes of the rank that needs the most, if each rank has memory of its own.
  std::int64_t of_the_largest() const {
    const layout::Layout layout = inputs.choose();
    std::int64_t most = 0;
    for (int rank = 0; rank < layout.ranks(); ++rank) most = std::max(most, of(layout, {.ranks = {rank}}));
    return most;
  }
  // Whether a rank needs memory for whole gradients before they are averaged, in addition to the memory for its share
  // of the averaged gradients.
  bool makes_beside_shares() const {
    const layout::Layout layout = inputs.choose();
    return layout.bytes_before_averaging(layout.coordinates_of(0)) > 0;
  }
  Need with(const std::function<void(Need&)>& change) const {
    Need changed = *this;
    change(changed);
    return changed;
  }
  // Returns the need of the same model on `ranks` ranks that shard parameters, gradients and states and share no
  // memory.
  Need over_a_network(int ranks) const {
    return with([&](Need& changed) {
      changed.inputs.choices.sharding = layout::Sharding::kParameters;
      changed.inputs.choices.axes = {{"dp_shard", ranks}};
      changed.inputs.machine.shares_memory = false;
      changed.of_strategy = 0;  // these ranks need strategy plain
    });
  }
};

std::string text(std::int64_t bytes) { return format_bytes(static_cast<std::uint64_t>(bytes)); }

// Returns the smallest number of ranks, from `least` on, on which the model would fit. The ranks shard everything over
// a network, and each has as much memory as one rank has here. Returns 0 if the model fits on no number of ranks.
int ranks_that_fit(const Need& need, const Here& here, int least) {
  const auto room_of_one = here.room / static_cast<std::int64_t>(here.ranks.size());
  const auto fits = [&](int ranks) { return need.over_a_network(ranks).of_the_largest() <= room_of_one; };
  // More ranks than kMostRanks are not tried. If there are more ranks than blocks of weights, shares do not shrink
  // further.
  if (!fits(kMostRanks)) return 0;
  int enough = least;
  while (enough < kMostRanks && !fits(enough)) enough = std::min(2 * enough, kMostRanks);
  int too_few = enough / 2;
  while (enough - too_few > 1 && enough > least) {
    const int middle = std::max((too_few + enough) / 2, least);
    (fits(middle) ? enough : too_few) = middle;
  }
  return enough;
}

std::string what_fits(const Need& need, const Here& here) {
  using layout::Sharding;
  std::vector<std::string> ways;
  const auto add = [&](const std::string& option, const Need& other) {
    const std::int64_t bytes = other.of(here);
    if (bytes <= here.room) ways.push_back(fmt::format("{} needs {}", option, text(bytes)));
  };
  const layout::Choices& now = need.inputs.choices;
  int ranks = 1;
  for (const layout::Axis& axis : now.axes) ranks *= axis.size;
  // A strategy other than plain goes with no sharding, or (if it combines gradients) with that of optimizer states.
  if (ranks > 1 && !need.has_strategy) {
    for (const Sharding sharding : {Sharding::kOptimizer, Sharding::kGradients, Sharding::kParameters}) {
      add(fmt::format("--parallel.shard {}", layout::to_text(sharding)), need.with([&](Need& changed) {
        changed.inputs.choices.sharding = sharding;
        if (now.axes.size() == 1) changed.inputs.choices.axes = {{"dp_shard", ranks}};
      }));
    }
  }
  const bool divides = !ways.empty();
  if (need.of_strategy > 0) add("--parallel.strategy plain", need.with([](Need& changed) { changed.of_strategy = 0; }));
  if (need.copies) add("--checkpoint.asynchronous false", need.with([](Need& changed) { changed.copies = false; }));
  if (need.adds_up && need.makes_beside_shares()) {
    add("--train.micro_batch 0", need.with([](Need& changed) { changed.adds_up = false; }));
  }
  if (!now.offload) {
    const char* const option =
        need.inputs.machine.has_model_on_gpu ? "--parallel.offload pinned" : "--parallel.offload DIRECTORY";
    add(option, need.with([](Need& changed) { changed.inputs.choices.offload = true; }));
  }
  const int more = divides ? 0 : ranks_that_fit(need, here, ranks + 1);
  if (more > 0) {
    ways.push_back(
        fmt::format("{} ranks with as much memory each, over a network, with --parallel.shard parameters need {} each",
                    more, text(need.over_a_network(more).of_the_largest())));
  }
  return ways.empty() ? "use a smaller model, or more memory" : fmt::format("{}", fmt::join(ways, "; "));
}

// Collective. Finds the ranks that use the same memory as this rank.
Here ask_all(const base::AvailableMemory& there, const Communicator& world) {
  struct Rank {
    std::uint64_t memory;  // hash of the identity of the memory
    std::int64_t room;
  };
  const Rank mine{.memory = std::hash<std::string>()(there.identity), .room = static_cast<std::int64_t>(there.bytes)};
  std::vector<Rank> ranks(static_cast<std::size_t>(world.size()));
  world.all_gather(&mine, ranks.data(), sizeof(Rank), DataType::kUint8, {.tag = "memory there"});
  Here here{.room = mine.room};
  for (int i = 0; i < world.size(); ++i) {
    if (ranks[static_cast<std::size_t>(i)].memory == mine.memory) here.ranks.push_back(i);
  }
  return here;
}

}  // namespace

void require_room(const char* what, std::int64_t bytes, const std::string& fix, const Communicator& world,
                  const std::function<base::AvailableMemory()>& available) {
  const base::AvailableMemory there = available();
  const Here here = ask_all(there, world);
  together(world, "memory", [&] {
    const auto ranks = static_cast<int>(here.ranks.size());
    const std::int64_t needed = ranks * bytes;
    if (there.source.empty() || needed <= here.room) return;
    throw Error(ExitCode::kOsResource,
                Report{.what = fmt::format("{} does not fit into memory", what),
                       .got = fmt::format("{} more for {} here", text(needed), base::counted(ranks, "rank")),
                       .expected = fmt::format("at most {} ({})", text(here.room), there.source),
                       .fix = fix});
  });
}

void require_room(const torch::nn::Module& module, const parallel::LayoutInputs& inputs, const Config& config,
                  std::int64_t samples, const Communicator& world,
                  const std::function<base::AvailableMemory()>& available) {
  std::int64_t of_strategy = 0;
  for (const at::Tensor& parameter : module.parameters()) {
    const auto wide = std::max<std::int64_t>(parameter.element_size(), sizeof(float));
    if (world.size() > 1 && parameter.requires_grad())
      of_strategy += config::copies_held(config.parallel.strategy) * parameter.numel() * wide;
  }
  const Need need{
      .inputs = inputs,
      .copies = config.checkpoint.asynchronous && !inputs.machine.has_model_on_gpu,
      .adds_up = config.train.micro_batch > 0 && config.train.micro_batch < samples && !inputs.machine.has_model_on_gpu,
      .of_strategy = of_strategy,
      .has_strategy = config.parallel.strategy.name != "plain"};
  const base::AvailableMemory there = available();
  // The parameters that the module holds now have already taken their memory. Their bytes are added to the free bytes.
  std::int64_t held = 0;
  for (const at::Tensor& parameter : module.parameters()) {
    const bool is_there = parameter.is_cuda() == inputs.machine.has_model_on_gpu;
    if (is_there && !nn::has_no_memory(parameter)) held += static_cast<std::int64_t>(parameter.nbytes());
  }
  Here here = ask_all(there, world);
  here.room += static_cast<std::int64_t>(here.ranks.size()) * held;
  together(world, "memory", [&] {
    if (there.source.empty()) return;
    const std::int64_t needed = need.of(here);
    if (needed <= here.room) return;
    std::string beside;
    if (need.copies) beside += ", and copies for checkpoint.asynchronous,";
    if (need.of_strategy > 0) beside += fmt::format(", and what strategy {} keeps,", config.parallel.strategy.name);
    if (need.adds_up && need.makes_beside_shares()) beside += " with gradients of several micro-batches";
    const layout::Sharding sharding = layout::sharding_of(need.inputs.choices, need.inputs.machine);
    throw Error(
        ExitCode::kOsResource,
        Report{.what = fmt::format("weights, gradients and states of the optimizer{} do not fit into memory", beside),
               .got = fmt::format("{} for {} here with parallel.shard {}", text(needed),
                                  base::counted(static_cast<std::int64_t>(here.ranks.size()), "rank"),
                                  layout::to_text(world.size() > 1 ? sharding : layout::Sharding::kNone)),
               .expected = fmt::format("at most {} ({})", text(here.room), there.source),
               .fix = what_fits(need, here)});
  });
}

}  // namespace reigen::train
