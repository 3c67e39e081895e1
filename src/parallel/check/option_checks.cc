#include "parallel/check/option_checks.h"

#include <c10/core/ScalarType.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/check.h"
#include "comm/agree.h"
#include "reigen/base/error.h"
#include "tensor/gpu/shared_gpu.h"
#include "tensor/memory/away_memory.h"

namespace reigen::parallel {
namespace {

constexpr const char* kPinned = "pinned";  // the value of `offload` for models on a GPU

const char* buffers_text(BufferPolicy policy) {
  switch (policy) {
    case BufferPolicy::kBroadcast: return "broadcast";
    case BufferPolicy::kAverage: return "average";
    case BufferPolicy::kOwn: return "own";
  }
  return "unknown";
}

const char* type_text(std::optional<at::ScalarType> type) { return type ? c10::toString(*type) : "as they are"; }

void check_travelling_type(const char* name, std::optional<at::ScalarType> type, bool may_be, const char* expected) {
  if (!type) return;
  const auto refuse = [&](std::string got, std::string fits) {
    return InvalidArgument(Report{.what = fmt::format("[data_parallel] {} is not possible here", name),
                                  .got = std::move(got),
                                  .expected = std::move(fits),
                                  .fix = "leave it out: what is divided travels as it is"});
  };
  if (*type != at::kBFloat16 && *type != at::kHalf) throw refuse(c10::toString(*type), "at::kBFloat16 or at::kHalf");
  if (!may_be) throw refuse(c10::toString(*type), expected);
}

void check_keepers(const DataParallelOptions& options, int sharers) {
  const int keepers = options.reshard_to;
  if (keepers == 0) return;
  const bool may_be = options.shard == Shard::kParameters && options.reshard_after_forward;
  if (may_be && keepers > 1 && (sharers == 1 || sharers % keepers == 0)) return;
  throw InvalidArgument(
      Report{.what = "[data_parallel] reshard_to is not possible here",
             .got = fmt::format("{} with shard {}, reshard_after_forward {}, ranks that divide: {}", keepers,
                                to_text(options.shard), options.reshard_after_forward, sharers),
             .expected = "2 or more, of which these ranks are a multiple; shard kParameters and reshard_after_forward",
             .fix = "leave it out: what leaves comes again from all"});
}

}  // namespace

bool mesh_fits(const DataParallelOptions& options, const Communicator& world) {
  if (!options.mesh) return false;
  const mesh::Mesh& mesh = *options.mesh;
  return options.shard != Shard::kNone && mesh.world().size() == world.size() &&
         mesh.size("dp_shard") * mesh.size("dp_replicate") == world.size();
}

std::vector<std::string> describe_options(const DataParallelOptions& options, const torch::nn::Module& module) {
  std::vector<std::string> lines = describe_options(options);
  const auto parameters = module.parameters();
  const auto without = std::count_if(parameters.begin(), parameters.end(), tensor::is_away);
  lines.push_back(fmt::format("parameters without memory: {}", without));
  lines.push_back(fmt::format("device of the weights: {}", device_of_weights(module).is_cuda() ? "cuda" : "cpu"));
  return lines;
}

std::vector<std::string> describe_options(const DataParallelOptions& options) {
  std::vector<std::string> lines;
  lines.push_back(fmt::format("option bucket_mb: {}", options.bucket_mb));
  lines.push_back(fmt::format("option overlap: {}", options.overlap));
  lines.push_back(fmt::format("option buffers: {}", buffers_text(options.buffers)));
  lines.push_back(fmt::format("option compare_weights: {}", options.compare_weights));
  lines.push_back(fmt::format("option share_cores: {}", options.share_cores));
  lines.push_back(fmt::format("option shard: {}", to_text(options.shard)));
  lines.push_back(fmt::format("option initialize: {}", options.initialize ? "given" : "none"));
  const char* const offloads_to = options.offload.empty() ? "none" : "a directory";
  lines.push_back(fmt::format("option offload: {}", options.offload == kPinned ? kPinned : offloads_to));
  if (options.shard == Shard::kParameters) {
    lines.push_back(fmt::format("option reshard_after_forward: {}", options.reshard_after_forward));
  }
  lines.push_back(fmt::format("option reshard_to: {}", options.reshard_to));
  lines.push_back(fmt::format("option gather_type: {}", type_text(options.gather_type)));
  lines.push_back(fmt::format("option reduce_type: {}", type_text(options.reduce_type)));
  if (options.mesh) lines.push_back(fmt::format("option mesh: {}", options.mesh->to_text()));
  if (options.tensor_parallel) {
    lines.push_back(fmt::format("option tensor_parallel: {}, {} divided weights",
                                options.tensor_parallel.mesh().to_text(), options.tensor_parallel.splits().size()));
  }
  if (options.context_parallel) {
    lines.push_back(fmt::format("option context_parallel: {}, axis {}", options.context_parallel.mesh().to_text(),
                                options.context_parallel.axis()));
  }
  if (options.pipeline) lines.push_back(fmt::format("option pipeline: {}", options.pipeline.mesh().to_text()));
  for (const nn::Unit& unit : options.units) lines.push_back(fmt::format("unit {}", unit.name()));
  for (const std::vector<std::string>& patterns : options.optimizers) {
    lines.push_back(fmt::format("option optimizers: {}", fmt::join(patterns, ", ")));
  }
  lines.push_back(fmt::format("option backwards_per_reduction: {}", options.backwards_per_reduction));
  return lines;
}

void check_options(const DataParallelOptions& options, int sharers) {
  check_keepers(options, sharers);
  if (options.backwards_per_reduction < 1) {
    throw InvalidArgument(
        Report{.what = "[data_parallel] backwards_per_reduction (backward_passes_per_step) is out of range",
               .got = fmt::format("{}", options.backwards_per_reduction),
               .expected = "1 or more"});
  }
  const bool divides_weights = options.shard == Shard::kParameters;
  check_travelling_type("gather_type", options.gather_type, divides_weights, "shard kParameters");
  check_travelling_type("reduce_type", options.reduce_type, divides_weights || options.shard == Shard::kGradients,
                        "shard kGradients or kParameters; without one strategy compressed(type)");
  if (options.bucket_mb >= 0 && options.bucket_mb <= kLargestBucketMb) return;
  throw InvalidArgument(Report{.what = "[data_parallel] bucket_mb is out of range",
                               .got = fmt::format("{}", options.bucket_mb),
                               .expected = fmt::format("0 (every parameter alone) to {}", kLargestBucketMb),
                               .fix = "leave it at 25 unless a measurement says otherwise"});
}

void require_stages_possible(const DataParallelOptions& options, bool gathers) {
  if (!options.pipeline) return;
  REIGEN_CHECK(
      options.backwards_per_reduction == 1,
      "[data_parallel] backwards_per_reduction (backward_passes_per_step) {} and a pipeline do not go together\n  "
      "fix: use more micro-batches in one step",
      options.backwards_per_reduction);
  if (gathers && options.pipeline.splits_backward()) {
    throw InvalidArgument(Report{
        .what = "[data_parallel] the schedule divides backward (I and W), and weights are gathered while backward runs",
        .got = "shard kParameters over a network",
        .expected = "weights that stay",
        .fix = "choose shard kGradients, or another schedule"});
  }
  if (!gathers || !options.pipeline.has_tied_weights()) return;
  throw InvalidArgument(
      Report{.what = "[data_parallel] stages share a weight whose gradients are averaged while backward runs",
             .got = "shard kParameters over a network, and a weight that stages of several ranks use",
             .expected = "gradients that can be added up over the stages before they are averaged",
             .fix = "choose shard kGradients, or a model without tied weights"});
}

void require_shard_possible(const DataParallelOptions& options, const Communicator& world,
                            const std::string& strategy) {
  const auto refuse = [&](const char* expected, const char* fix) {
    return InvalidArgument(
        Report{.what = fmt::format("[data_parallel] shard {} is not possible here", to_text(options.shard)),
               .got = "strategy " + strategy,
               .expected = expected,
               .fix = fix});
  };
  if (options.mesh && !options.tensor_parallel && !options.pipeline && !options.context_parallel &&
      !mesh_fits(options, world)) {
    throw InvalidArgument(Report{
        .what = "[data_parallel] the mesh does not say who divides",
        .got = fmt::format("{}, {} ranks, shard {}", options.mesh->to_text(), world.size(), to_text(options.shard)),
        .expected = "axes dp_replicate and dp_shard over all ranks, and a shard",
        .fix = "use Mesh(world, {{\"dp_replicate\", 2}, {\"dp_shard\", kRest}}), or leave mesh out"});
  }
  if (world.size() == 1 || options.shard == Shard::kNone) return;
  if (options.strategy && options.shard != Shard::kOptimizer) {
    throw refuse("no strategy: each rank averages its share", "leave the strategy out, or take shard optimizer");
  }
  if (options.strategy.weights) {
    throw refuse("a strategy that keeps all ranks' weights equal", "leave one of the two out");
  }
}

namespace {

[[noreturn]] void refuse_on_gpu(const std::string& what, const std::string& got, const std::string& expected,
                                const std::string& fix) {
  throw InvalidArgument(
      Report{.what = fmt::format("[data_parallel] {}", what), .got = got, .expected = expected, .fix = fix});
}

// If ranks that are threads of one process had one thread for their backwards, a rank that waits for another rank in
// backward would block the other's backward too.
void refuse_one_backward_thread(const at::Device& gpu, const Communicator& world) {
  const auto ranks = tensor::ranks_on_one_backward_thread(gpu, world);
  if (!ranks) return;
  refuse_on_gpu(fmt::format("ranks {} and {} are threads of one process with one GPU", ranks->first, ranks->second),
                "a current stream and a backward thread that both ranks share", "their own for each of the two ranks",
                "call reigen::separate_gpu_work(world) before the model goes to the GPU, or start the ranks as "
                "processes: reigen run -n N");
}

}  // namespace

at::Device device_of_weights(const torch::nn::Module& module) {
  for (const at::Tensor& parameter : module.parameters()) {
    if (parameter.requires_grad()) return parameter.device();
  }
  return at::kCPU;
}

void require_device_possible(const torch::nn::Module& module, const DataParallelOptions& options,
                             const Communicator& world, const std::vector<const Strategy*>& strategies) {
  const at::Device device = device_of_weights(module);
  comm::attempt(world, "device of the model", [&] {
    if (!device.is_cuda()) return;
    if (!options.offload.empty() && options.offload != kPinned) {
      refuse_on_gpu("offload to a directory is for models on the CPU",
                    fmt::format("a model on {}, offload {}", device.str(), options.offload.string()),
                    "offload pinned, or none", "choose offload pinned: optimizer states in pinned memory of the host");
    }
    if (world.size() == 1) return;
    const Device carried = world.device();
    if (carried.is_cpu() || carried.index != device.index()) {
      refuse_on_gpu(
          "the ranks' group does not carry the GPU that the model is on",
          fmt::format("a model on {}, a group that carries the memory of {}", device.str(), to_string(carried)),
          device.str(), "make the group with init({.device = Device::cuda()}), and move the model to world.device()");
    }
    for (const Strategy* strategy : strategies) {
      if (strategy == nullptr || strategy->works_on_gpu()) continue;
      refuse_on_gpu(fmt::format("strategy {} is for models on the CPU", strategy->description()),
                    "a model on " + device.str(),
                    "a strategy whose works_on_gpu() is true, such as those of reigen/parallel/strategies.h",
                    "choose another strategy, or move the model to the CPU");
    }
  });
  if (world.size() > 1) refuse_one_backward_thread(device, world);
}

}  // namespace reigen::parallel
