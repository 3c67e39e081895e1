#include "train/model/parallel_options.h"

#include <optional>

#include "config/checks.h"
#include "reigen/parallel/strategies.h"

namespace reigen::train {
namespace {

std::optional<c10::ScalarType> travelling_type(const std::string& name) {
  return name == "own" ? std::nullopt : std::optional(name == "bf16" ? c10::kBFloat16 : c10::kHalf);
}

// Returns no value for auto.
std::optional<parallel::Shard> shard_named(const std::string& name) {
  if (name == "auto") return std::nullopt;
  if (name == "optimizer") return parallel::Shard::kOptimizer;
  if (name == "gradients") return parallel::Shard::kGradients;
  if (name == "parameters") return parallel::Shard::kParameters;
  return parallel::Shard::kNone;
}

}  // namespace

parallel::DataParallelOptions data_parallel_options(const ParallelConfig& config, const Communicator& world,
                                                    const at::Device& device, bool has_mesh) {
  parallel::DataParallelOptions options{
      .bucket_mb = config.bucket_mb, .overlap = config.overlap, .strategy = parallel::strategy_of(config.strategy)};
  options.share_cores = false;  // the code that trains calls share_cores(), with train.threads
  if (config.buffers == "average") options.buffers = parallel::BufferPolicy::kAverage;
  if (config.buffers == "own") options.buffers = parallel::BufferPolicy::kOwn;
  options.shard =
      layout::sharding_of({.sharding = shard_named(config.shard), .buckets = !config::lets_gradients_stay(config)},
                          {.shares_memory = world.shares_memory() && device.is_cpu()});
  options.reshard_after_forward = config.reshard_after_forward;
  options.reshard_to = static_cast<int>(config.reshard_to);
  options.gather_type = travelling_type(config.gather_type);
  options.reduce_type = travelling_type(config.reduce_type);
  options.offload = config.offload;
  if (config.replicas > 1 && !has_mesh) {
    options.mesh.emplace(
        world, std::vector<mesh::Axis>{{"dp_replicate", static_cast<int>(config.replicas)}, {"dp_shard", mesh::kRest}});
  }
  return options;
}

}  // namespace reigen::train
