#include "train/verify_before_training.h"

#include <fmt/format.h>
#include <torch/nn/module.h>

#include <vector>

#include "reigen/base/error.h"
#include "reigen/parallel/verify.h"
#include "train/agree.h"
#include "train/precision.h"

namespace reigen::train {
namespace {

constexpr double kTolerance16 = 2e-2;  // of computation in 16 bits

}  // namespace

std::string verify_before_training(Task& task, const Config& config, std::int64_t samples, Communicator& world) {
  std::vector<std::int64_t> indices;
  for (std::int64_t i = 0; i < samples; ++i) indices.push_back(i);
  data::Samples batch;
  together(world, "training data", [&] { batch = task.training_data()->gather(indices); });
  task.module().train();
  const auto loss = [&](const at::Tensor& input, const at::Tensor& target) {
    const auto autocast = compute_type(config.train.precision);
    return task.loss(input, target);
  };
  // Plain data parallelism: strategies differ from one process by design.
  parallel::VerifyOptions how{.steps = static_cast<int>(config.train.verify)};
  if (config.train.precision == "bf16" || config.train.precision == "fp16") how.tolerance = kTolerance16;
  how.parallel.bucket_mb = config.parallel.bucket_mb;
  how.parallel.overlap = config.parallel.overlap;
  const parallel::VerifyReport report = parallel::verify(task.module(), world, loss, batch.input, batch.target, how);
  // Shared weights have the bits of own ones, but ranks that share them cannot each train alone.
  if (report.same) return fmt::format("verified on {} ranks with {} samples: {}", world.size(), samples, report.text);
  throw CommonError(ExitCode::kConfiguration,
                    Report{.what = "the model does not train in parallel as it does alone",
                           .got = report.text,
                           .expected = fmt::format("the same for {} steps", how.steps),
                           .fix = "look at what depends on other samples of a batch (batch statistics), at sums in the "
                                  "loss, and at random layers; or leave train.verify out"});
}

}  // namespace reigen::train
