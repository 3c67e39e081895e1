#include "train/model/micro_batch.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <optional>

#include "base/philox.h"
#include "nn/failed_unit.h"
#include "reigen/base/error.h"
#include "reigen/nn/stand_in.h"
#include "train/model/device.h"
#include "train/model/precision.h"

namespace reigen::train {

void seed_step(const Run& run, std::int64_t done) {
  if (run.config.run.ranks == "threads") return;
  // Ranks with other samples, other tokens or other layers draw other numbers.
  const int other = run.mesh ? run.mesh->coordinate("cp") + run.mesh->size("cp") * run.mesh->coordinate("pp") : 0;
  const auto word = base::philox(static_cast<std::uint64_t>(run.config.train.seed), static_cast<std::uint64_t>(done),
                                 static_cast<std::uint64_t>(run.data.rank() + run.data.size() * other));
  const std::uint64_t seed = (static_cast<std::uint64_t>(word[0]) << 32) | word[1];
  if (run.device.is_cpu())
    at::Generator(at::detail::getDefaultCPUGenerator()).set_current_seed(seed);  // manual_seed() looks at all devices
  else
    at::manual_seed(seed);
}

namespace {

data::Samples samples_of(const Run& run, const data::MicroBatch& part) { return samples_on(run.device, part); }

// The mean loss of a micro-batch. What the task logs counts for the terms of the micro-batch.
at::Tensor training_step(Run& run, const data::MicroBatch& part) {
  run.metrics.begin_batch(part.terms);
  at::Tensor loss = run.task.training_step(samples_of(run, part));
  const bool is_number = loss.defined() && loss.numel() == 1;
  if (is_number && loss.requires_grad()) return loss;
  throw InvalidArgument(
      Report{.what = fmt::format("training_step() returns no loss, in step {}", run.done + 1),
             .got = !loss.defined() ? "an undefined tensor"
                    : is_number     ? "a number that depends on no weight (detach(), or a NoGradGuard)"
                                    : fmt::format("a tensor of shape [{}]", fmt::join(loss.sizes(), ", ")),
             .expected = "one number that depends on the weights, the mean over the batch",
             .fix = "end training_step() with a loss such as torch::cross_entropy_loss(scores, batch.target)"});
}

// The tensor on which backward is called.
at::Tensor weighted(const TrainedModel& model, const at::Tensor& mean, const data::MicroBatch& part) {
  return model.optimization().scaled(part.weight == 1 ? mean : mean * part.weight);
}

// One sample of the micro-batch again, with weight 0.
data::MicroBatch without_weight(data::MicroBatch part) {
  part.transform([](const at::Tensor& tensor) { return tensor.narrow(0, 0, 1); });
  part.count = part.terms = 0;
  part.weight = 0;
  return part;
}

}  // namespace

at::Tensor loss_of(Run& run, const data::MicroBatch& part) {
  nn::forget_failed_unit();
  const auto autocast = compute_type(run.config.train.precision, run.device);
  std::optional<nn::StandIn> stand_in;
  if (part.count == 0) stand_in.emplace();
  return training_step(run, part);
}

void run_pipeline(Run& run, TrainedModel& model, std::vector<data::MicroBatch> parts,
                  const std::function<void(const at::Tensor& mean, std::int64_t terms)>& note,
                  const std::function<void()>& after_forward) {
  const std::size_t needed = static_cast<std::size_t>(model.micro_batches_of_file());
  if (parts.size() < needed) parts.resize(needed, without_weight(parts.back()));
  const auto part = [&](int i) -> const data::MicroBatch& { return parts[static_cast<std::size_t>(i)]; };
  const parallel::PipelineStep step{
      .input = [&](int i) { return run.task.first_input(samples_of(run, part(i))); },
      .loss =
          [&](int i) {
            const at::Tensor mean = training_step(run, part(i));
            note(mean, part(i).terms);
            return weighted(model, mean, part(i));
          },
      .checks_input = model.pipeline().last().micro_batches == 0,
      .around =
          [&](schedule::Kind kind, int i, const std::function<void()>& body) {
            const bool is_forward = kind == schedule::Kind::kForward;
            const auto autocast = is_forward ? compute_type(run.config.train.precision, run.device) : nullptr;
            std::optional<nn::StandIn> stand_in;
            if (part(i).count == 0) stand_in.emplace();
            body();
            if (is_forward) after_forward();
          }};
  model.pipeline().step(model.parallel(), static_cast<int>(parts.size()), step);
}

void backward(TrainedModel& model, const at::Tensor& mean, const data::MicroBatch& part) {
  std::optional<nn::StandIn> stand_in;  // backward may compute units again
  if (part.count == 0) stand_in.emplace();
  weighted(model, mean, part).backward();
}

}  // namespace reigen::train
