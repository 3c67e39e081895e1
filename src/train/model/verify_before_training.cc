#include "train/model/verify_before_training.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/module.h>

#include <vector>

#include "base/text.h"
#include "data/checked.h"
#include "reigen/base/error.h"
#include "reigen/parallel/verify.h"
#include "train/model/parallel_options.h"
#include "train/run/agree.h"

namespace reigen::train {
namespace {

// The features of the run that the check leaves out, as text. The text is empty if the check leaves out none.
std::string left_out(const Config& config, const Communicator& world) {
  std::vector<std::string> parts;
  // The check computes in the type of the weights. With 16 bits, rounding errors would grow over the steps as much as a
  // real difference.
  const std::string& precision = config.train.precision;
  if (precision == "bf16" || precision == "fp16") parts.push_back("in fp32 instead of train.precision " + precision);
  if (config.train.device != "cpu") parts.push_back("on the CPU instead of train.device " + config.train.device);
  // Weights in memory that ranks share get the same bits as weights of which each rank has its own copy. But in the
  // check each rank also trains alone, which ranks with one common copy cannot do. Strategies give other results than
  // one process by design.
  if (data_parallel_options(config.parallel, world, at::kCPU).shard != parallel::Shard::kNone)
    parts.push_back("without shards");
  const std::string& strategy = config.parallel.strategy.name;
  if (strategy != ParallelConfig{}.strategy.name) parts.push_back("without parallel.strategy " + strategy);
  return parts.empty() ? "" : fmt::format(" (plain data parallelism, {})", fmt::join(parts, ", "));
}

}  // namespace

std::string verify_before_training(Run& run, std::int64_t samples) {
  Task& task = run.task;
  const Config& config = run.config;
  const Communicator& world = run.world;
  std::vector<std::int64_t> indices;
  for (std::int64_t i = 0; i < samples; ++i) indices.push_back(i);
  data::Samples batch;
  together(world, "training data", [&] {
    const data::DatasetPtr training = run.data_module.training();
    batch = data::checked(training->gather(indices), *training, samples);
  });
  task.module().train();
  const LogTo nowhere(task, nullptr);
  std::vector<at::Tensor> tensors;
  batch.for_each([&](std::string_view, const at::Tensor& one) { tensors.push_back(one); });
  const auto loss = [&](const std::vector<at::Tensor>& parts, const std::vector<at::Tensor>&) {
    data::Samples part = batch;
    auto next = parts.begin();
    part.transform([&](const at::Tensor&) { return *next++; });
    return task.training_step(part);
  };
  parallel::VerifyOptions how{.steps = static_cast<int>(config.train.verify)};
  how.parallel.bucket_mb = config.parallel.bucket_mb;
  how.parallel.overlap = config.parallel.overlap;
  const parallel::VerifyReport report = parallel::verify(task.module(), world, loss, tensors, {}, how);
  if (report.same) {
    return fmt::format("verified on {} with {} samples{}: {}", base::counted(world.size(), "rank"), samples,
                       left_out(config, world), report.text);
  }
  throw common(
      Error(ExitCode::kConfiguration,
            Report{.what = "the model does not train in parallel as it does alone",
                   .got = report.text,
                   .expected = fmt::format("the same for {} steps", how.steps),
                   .fix = "look at what depends on other samples of a batch (batch statistics), at sums in the "
                          "loss, and at random layers; or leave train.verify out"}));
}

}  // namespace reigen::train
