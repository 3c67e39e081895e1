#include "train/model/out_of_memory.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "nn/failed_unit.h"
#include "reigen/base/bytes.h"
#include "reigen/nn/sync_batch_norm.h"
#include "train/model/activations.h"
#include "train/model/micro_batch.h"

namespace reigen::train {
namespace {

std::string in_bytes(std::int64_t bytes) { return format_bytes(static_cast<std::uint64_t>(bytes)); }

// The samples of the batch that one forward gets.
std::int64_t at_once(std::int64_t samples, const Config& config) {
  return config.train.micro_batch > 0 ? std::min(config.train.micro_batch, samples) : samples;
}

data::MicroBatch first_of(data::MicroBatch part, std::int64_t count) {
  part.transform([&](const at::Tensor& tensor) { return tensor.narrow(0, 0, count); });
  part.count = count;
  return part;
}

// Forward and backward of the micro-batch, beside `more` bytes that a step in the future will hold. They are made
// twice, because the second micro-batch of a step needs memory beside the gradients of the first.
bool fits(Run& run, TrainedModel& model, const data::MicroBatch& part, std::int64_t more) {
  // Gradients of the step that failed may be on their way to other ranks. These stay as they are.
  for (const ParameterRange& range : model.parallel().parameters()) range.drop_gradients();
  try {
    const at::Tensor held = at::empty({more}, at::TensorOptions(at::kByte).device(run.device));
    for (int i = 0; i < 2; ++i) backward(model, loss_of(run, part), part);
    return true;
  } catch (const c10::OutOfMemoryError&) {
    return false;
  } catch (const Error& error) {
    if (error.exit_code() == ExitCode::kOsResource) return false;
    throw;
  } catch (const c10::Error& error) {  // of a library that allocates by itself
    const std::string text = error.what_without_backtrace();
    for (const char* said : {"out of memory", "ALLOC_FAILED"}) {
      if (text.find(said) != std::string::npos) return false;
    }
    throw;
  }
}

bool calls_other_ranks(const torch::nn::Module& module) {
  const auto is_one = [](const torch::nn::Module& one) {
    return dynamic_cast<const nn::SyncBatchNormImpl*>(&one) != nullptr;
  };
  const auto below = module.modules(/*include_self=*/false);
  return is_one(module) || std::any_of(below.begin(), below.end(), [&](const auto& one) { return is_one(*one); });
}

// Halves the samples until they fit; `count`: with how many to begin.
std::int64_t count_that_fits(Run& run, TrainedModel& model, const data::MicroBatch& part, std::int64_t count,
                             std::int64_t more) {
  for (; count > 0; count = count == 1 ? 0 : (count + 1) / 2) {
    if (fits(run, model, first_of(part, count), more)) return count;
  }
  return 0;
}

std::optional<Fitting> find_fitting(Run& run, TrainedModel& model, const data::MicroBatch& part) {
  const bool divides_sequences = run.mesh && run.mesh->size("cp") > 1;
  if (run.manual != nullptr || run.divides_model() || divides_sequences || model.gathers() || part.count == 0)
    return std::nullopt;
  if (run.world.size() > 1 && calls_other_ranks(model.module())) return std::nullopt;
  // Without the exchange of gradients, as in all micro-batches but the last.
  const parallel::NoSync alone = model.parallel().no_sync();
  const LogTo nowhere(run.task, nullptr);
  const MemoryUse there = count_memory(model.module(), model.parallel());
  const MemoryUse& later = model.memory_of_layout();
  const std::int64_t more = std::max<std::int64_t>(later.gradients - there.gradients, 0) +
                            std::max<std::int64_t>(later.optimizer - there.optimizer, 0);
  const std::int64_t half = part.count == 1 ? 0 : (part.count + 1) / 2;
  if (const std::int64_t count = count_that_fits(run, model, part, half, more); count > 0) return Fitting{count, false};
  if (run.config.train.activation_checkpoint > 0 || run.task.units().empty()) return std::nullopt;
  TrainConfig recomputing = run.config.train;
  recomputing.activation_checkpoint = 1;
  const auto checkpointed = checkpoint_activations(run.task, run.name(), recomputing);
  const std::int64_t count = count_that_fits(run, model, part, part.count, more);
  return count > 0 ? std::optional(Fitting{count, true}) : std::nullopt;
}

// The options of `fitting` as one text. `samples`: how many one forward got when the memory ran out.
std::string option_that_fits(const Fitting& fitting, std::int64_t samples) {
  std::vector<std::string> options;
  if (fitting.micro_batch < samples) options.push_back(fmt::format("--train.micro_batch {}", fitting.micro_batch));
  if (fitting.recomputes) options.emplace_back("--train.activation_checkpoint 1");
  return fmt::format("{}, with which forward and backward of this step fitted", fmt::join(options, " "));
}

// Options with which a step may fit.
std::string ways_to_try(const OutOfMemory& what, const Config& config, std::int64_t samples) {
  std::vector<std::string> ways;
  if (samples > 1 && what.has_micro_batches) ways.push_back(fmt::format("--train.micro_batch {}", (samples + 1) / 2));
  if (samples > 1 && !what.has_micro_batches) ways.emplace_back("half the --train.global_batch");
  if (config.train.activation_checkpoint == 0) ways.emplace_back("--train.activation_checkpoint 1");
  if (config.parallel.shard != "parameters") ways.emplace_back("--parallel.shard parameters with several ranks");
  ways.emplace_back("a smaller model");
  return fmt::format("{}", fmt::join(ways, ", or "));
}

bool has_many_pieces(const OutOfMemory& what) {
  constexpr std::int64_t kPart = 10;  // a tenth
  return what.allocator && what.allocator->fragmented * kPart >= what.allocator->reserved &&
         what.allocator->fragmented > 0;
}

}  // namespace

Error to_error(const OutOfMemory& what, const Config& config) {
  const std::int64_t samples = at_once(what.samples, config);
  std::string pieces;
  std::string fix = what.fitting ? option_that_fits(*what.fitting, samples) : ways_to_try(what, config, samples);
  if (has_many_pieces(what)) {
    pieces = fmt::format("; {} of the {} that LibTorch keeps are pieces between tensors",
                         in_bytes(what.allocator->fragmented), in_bytes(what.allocator->reserved));
    fix += "; the environment variable PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True avoids the pieces";
  }
  return {ExitCode::kOsResource,
          Report{.what = fmt::format("out of memory of the GPU in step {}{}", what.step,
                                     what.unit.empty() ? "" : ", in the forward of unit " + what.unit),
                 .got = fmt::format("{}; {} samples at a time; weights {}, gradients {}, states {}{}", what.text,
                                    samples, in_bytes(what.held.parameters), in_bytes(what.held.gradients),
                                    in_bytes(what.held.optimizer), pieces),
                 .fix = fix}};
}

Error out_of_memory(const std::string& text, Run& run, TrainedModel& model, const data::Batch& batch, bool computed) {
  OutOfMemory what{.text = text,
                   .step = run.done + 1,
                   .unit = nn::failed_unit(),
                   .samples = batch.count,
                   .has_micro_batches = run.manual == nullptr,
                   .held = model.memory_of_layout(),
                   .allocator = tensor::device_memory(run.device)};
  try {
    if (!computed && !batch.parts.empty()) what.fitting = find_fitting(run, model, batch.parts.front());
  } catch (const std::exception& error) {
    // The trials may meet other errors. The run ends with the error of the step, not with theirs.
    run.say(fmt::format("note: the search for a setting that fits ended: {}", error.what()));
  }
  return to_error(what, run.config);
}

}  // namespace reigen::train
