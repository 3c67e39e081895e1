#include "train/strategy_of.h"

#include <fmt/format.h>

#include "reigen/base/error.h"
#include "reigen/parallel/strategies.h"
#include "train/parallel_config.h"

namespace reigen::train {
namespace {

parallel::StrategyFactory strategy_of(const ParallelConfig& c) {
  if (c.strategy == "plain") return {};
  if (c.strategy == "bf16") return parallel::compressed(at::kBFloat16);
  if (c.strategy == "fp16") return parallel::compressed(at::kHalf);
  if (c.strategy == "one_bit") {
    parallel::OneBitOptions o;
    o.start_step = c.start_step.value_or(o.start_step);
    return parallel::one_bit(o);
  }
  if (c.strategy == "adasum") return parallel::adasum();
  if (c.strategy == "power_sgd") {
    parallel::PowerSgdOptions o;
    o.rank = c.matrix_rank.value_or(o.rank);
    o.start_step = c.start_step.value_or(o.start_step);
    return parallel::power_sgd(o);
  }
  if (c.strategy == "top_k") {
    parallel::TopKOptions o;
    o.share = c.share.value_or(o.share);
    return parallel::top_k(o);
  }
  if (c.strategy == "local_sgd") {
    parallel::LocalSgdOptions o;
    o.every = c.every.value_or(o.every);
    o.start_step = c.start_step.value_or(o.start_step);
    return parallel::local_sgd(o);
  }
  if (c.strategy == "hierarchical_sgd") {
    parallel::HierarchicalSgdOptions o;
    o.group_size = c.group_size.value_or(o.group_size);
    o.every = c.every.value_or(o.every);
    o.global_every = c.global_every.value_or(o.global_every);
    return parallel::hierarchical_sgd(o);
  }
  if (c.strategy == "diloco") {
    parallel::DilocoOptions o;
    o.every = c.every.value_or(o.every);
    o.outer_lr = c.outer_lr.value_or(o.outer_lr);
    o.outer_momentum = c.outer_momentum.value_or(o.outer_momentum);
    return parallel::diloco(o);
  }
  if (c.strategy == "gossip") {
    return parallel::gossip(
        {.topology = c.topology == "ring" ? parallel::Topology::kRing : parallel::Topology::kExponential});
  }
  if (c.strategy == "async_gossip") {
    parallel::AsyncGossipOptions o;
    o.staleness = c.staleness.value_or(o.staleness);
    return parallel::async_gossip(o);
  }
  if (c.strategy == "stale_synchronous") {
    parallel::StaleSynchronousOptions o;
    o.staleness = c.staleness.value_or(o.staleness);
    return parallel::stale_synchronous(o);
  }
  throw InvalidArgument(Report{.what = fmt::format("parallel.strategy = {}: there is none of that name", c.strategy),
                               .fix = "--help lists them"});
}

parallel::Shard shard_of(const ParallelConfig& config, const Communicator& world) {
  if (config.shard == "optimizer") return parallel::Shard::kOptimizer;
  if (config.shard == "gradients") return parallel::Shard::kGradients;
  if (config.shard == "parameters") return parallel::Shard::kParameters;
  const bool fits = config.shard == "auto" && lets_gradients_stay(config) && world.backend() == "shared_memory";
  return fits ? parallel::Shard::kGradients : parallel::Shard::kNone;
}

}  // namespace

parallel::DataParallelOptions data_parallel_options(const ParallelConfig& config, const Communicator& world) {
  parallel::DataParallelOptions options{
      .bucket_mb = config.bucket_mb, .overlap = config.overlap, .strategy = strategy_of(config)};
  if (config.buffers == "average") options.buffers = parallel::BufferPolicy::kAverage;
  if (config.buffers == "own") options.buffers = parallel::BufferPolicy::kOwn;
  options.shard = shard_of(config, world);
  options.reshard_after_forward = config.reshard_after_forward;
  if (config.replicas > 1) {
    options.mesh.emplace(
        world, std::vector<mesh::Axis>{{"dp_replicate", static_cast<int>(config.replicas)}, {"dp_shard", mesh::kRest}});
  }
  return options;
}

}  // namespace reigen::train
