#include "train/watch/replica_watch.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "reigen/base/error.h"
#include "reigen/parallel/replicas.h"
#include "train/run/agree.h"

namespace reigen::train {

void ReplicaWatch::end_step(std::int64_t step) {
  const std::int64_t every = run_.config.train.compare_every;
  if (every <= 0 || step % every != 0) return;
  const std::vector<ParameterRange>& ranges = model_.parallel().parameters();
  const bool all_hold_one =
      ranges.front().is_common() && model_.parallel().replicas().size() == 1 && !run_.divides_model();
  if (run_.world.size() == 1 || model_.ranks_differ() || all_hold_one) return;
  std::vector<tensor::NamedTensor> whole;
  std::vector<tensor::NamedTensor> divided;
  std::vector<tensor::NamedTensor> boxes;  // of weights of which ranks divide a dimension
  const auto add = [&](const tensor::NamedTensor& item) {
    (item.is_replicated ? boxes : item.is_divided() ? divided : whole).push_back(item);
  };
  for (const ParameterRange& range : ranges) {
    for (const tensor::Segment& segment : range.segments()) {
      tensor::NamedTensor item{segment.name,
                               range.values().narrow(0, segment.offset, segment.numel).view(segment.shape)};
      tensor::describe_part(item, range, segment, range.sharing().whole() != nullptr || range.is_common());
      add(item);
    }
  }
  for (const tensor::NamedTensor& item : model_.optimizers().state()) add(item);
  // Only ranks that hold the same share can see that their copies differ. together() makes all ranks throw the error.
  auto drifted = parallel::compare_replicas(whole, run_.world);
  if (!drifted) drifted = parallel::compare_replicas(boxes, run_.data, run_.world.rank());
  if (!drifted) drifted = parallel::compare_replicas(divided, model_.parallel().replicas(), run_.world.rank());
  together(run_.world, "replicas", [&] {
    if (!drifted) return;
    const std::int64_t saved = checkpoints_.saved();
    const std::string from = saved > 0 ? fmt::format("the checkpoint of step {}", saved) : "the start";
    throw Error(
        ExitCode::kReplicasDiverged,
        Report{.what = fmt::format("replicas differ after step {}: {}", step, drifted->text),
               .expected = "the same on all ranks, bit by bit",
               .fix = fmt::format("go on from {}; if it comes back, look at that rank's memory, and at what changes "
                                  "weights beside the optimizer",
                                  from)});
  });
}

}  // namespace reigen::train
