#include "train/model/micro_batch.h"

#include <ATen/Context.h>

#include <cstdint>
#include <optional>

#include "base/philox.h"
#include "reigen/nn/stand_in.h"
#include "train/model/device.h"
#include "train/model/precision.h"

namespace reigen::train {

void seed_step(const Run& run, std::int64_t done) {
  if (run.config.run.ranks == "threads") return;
  const auto word = base::philox(static_cast<std::uint64_t>(run.config.train.seed), static_cast<std::uint64_t>(done),
                                 static_cast<std::uint64_t>(run.data.rank()));
  at::manual_seed((static_cast<std::uint64_t>(word[0]) << 32) | word[1]);
}

at::Tensor loss_of(Run& run, const data::MicroBatch& part) {
  const auto autocast = compute_type(run.config.train.precision, run.device);
  std::optional<nn::StandIn> stand_in;
  if (part.count == 0) stand_in.emplace();
  return run.task.loss_of(samples_on(run.device, {part.input, part.target, part.inputs, part.targets}));
}

void backward(TrainedModel& model, const at::Tensor& mean, const data::MicroBatch& part) {
  std::optional<nn::StandIn> stand_in;  // backward may compute units again
  if (part.count == 0) stand_in.emplace();
  model.optimization().scaled(part.weight == 1 ? mean : mean * part.weight).backward();
}

}  // namespace reigen::train
