// Whether what ranks must hold alike still is alike.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "reigen/parallel/replicas.h"
#include "train/agree.h"
#include "train/trainer_impl.h"

namespace reigen::train {

// Weights and states that ranks hold each for itself; of those that ranks of a replica hold once, a rank looks at its
// share. Ends all where they differ: which is right nobody knows later.
void Trainer::Impl::compare_replicas() {
  const std::vector<ParameterRange>& ranges = parallel->parameters();
  const bool all_hold_one = ranges.front().is_common() && parallel->replicas().size() == 1;
  if (world.size() == 1 || parallel->ranks_differ() || all_hold_one) return;
  std::vector<tensor::NamedTensor> whole;
  std::vector<tensor::NamedTensor> divided;
  const auto add = [&](const tensor::NamedTensor& item) { (item.is_divided() ? divided : whole).push_back(item); };
  for (const ParameterRange& range : ranges) {
    for (const tensor::Segment& segment : range.segments()) {
      tensor::NamedTensor item{segment.name,
                               range.values().narrow(0, segment.offset, segment.numel).view(segment.shape)};
      if (range.sharing().whole() != nullptr || range.is_common()) item.part = range.part_of(segment);
      add(item);
    }
  }
  for (const tensor::NamedTensor& item : optimization->state()) add(item);
  // Replicas of one share may differ where those of another do not: all hear of it.
  auto drifted = parallel::compare_replicas(whole, world);
  if (!drifted) drifted = parallel::compare_replicas(divided, parallel->replicas(), world.rank());
  together(world, "replicas", [&] {
    if (!drifted) return;
    const std::string from = saved > 0 ? fmt::format("the checkpoint of step {}", saved) : "the start";
    throw Error(
        ExitCode::kReplicasDiverged,
        Report{.what = fmt::format("replicas differ after step {}: {}", done, drifted->text),
               .expected = "the same on all ranks, bit by bit",
               .fix = fmt::format("go on from {}; if it comes back, look at that rank's memory, and at what changes "
                                  "weights beside the optimizer",
                                  from)});
  });
}

}  // namespace reigen::train
