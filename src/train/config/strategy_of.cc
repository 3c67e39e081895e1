#include "train/config/strategy_of.h"

#include <fmt/format.h>

#include <optional>

#include "reigen/base/error.h"
#include "reigen/parallel/strategies.h"
#include "train/config/parallel_config.h"

namespace reigen::train {
namespace {

// What is set holds, and what is not set is told what holds.
template <class T>
void settle(std::optional<T>& set, T& holds) {
  if (set)
    holds = *set;
  else
    set = holds;
}

// A strategy by its name: how it is made of the options. It sets those of its options that are not set to what they are
// without.
struct Entry {
  const char* name;
  parallel::StrategyFactory (*make)(ParallelConfig& config);
};

const Entry kStrategies[] = {
    {"plain", [](ParallelConfig&) { return parallel::StrategyFactory(); }},
    {"bf16", [](ParallelConfig&) { return parallel::compressed(at::kBFloat16); }},
    {"fp16", [](ParallelConfig&) { return parallel::compressed(at::kHalf); }},
    {"power_sgd",
     [](ParallelConfig& c) {
       parallel::PowerSgdOptions o;
       settle(c.matrix_rank, o.rank);
       settle(c.start_step, o.start_step);
       return parallel::power_sgd(o);
     }},
    {"top_k",
     [](ParallelConfig& c) {
       parallel::TopKOptions o;
       settle(c.share, o.share);
       return parallel::top_k(o);
     }},
    {"one_bit",
     [](ParallelConfig& c) {
       parallel::OneBitOptions o;
       settle(c.start_step, o.start_step);
       return parallel::one_bit(o);
     }},
    {"adasum", [](ParallelConfig&) { return parallel::adasum(); }},
    {"local_sgd",
     [](ParallelConfig& c) {
       parallel::LocalSgdOptions o;
       settle(c.every, o.every);
       settle(c.start_step, o.start_step);
       return parallel::local_sgd(o);
     }},
    {"hierarchical_sgd",
     [](ParallelConfig& c) {
       parallel::HierarchicalSgdOptions o;
       settle(c.group_size, o.group_size);
       settle(c.every, o.every);
       settle(c.global_every, o.global_every);
       return parallel::hierarchical_sgd(o);
     }},
    {"diloco",
     [](ParallelConfig& c) {
       parallel::DilocoOptions o;
       settle(c.every, o.every);
       settle(c.outer_lr, o.outer_lr);
       settle(c.outer_momentum, o.outer_momentum);
       return parallel::diloco(o);
     }},
    {"gossip",
     [](ParallelConfig& c) {
       return parallel::gossip(
           {.topology = c.topology == "ring" ? parallel::Topology::kRing : parallel::Topology::kExponential});
     }},
    {"async_gossip",
     [](ParallelConfig& c) {
       parallel::AsyncGossipOptions o;
       settle(c.staleness, o.staleness);
       return parallel::async_gossip(o);
     }},
    {"stale_synchronous",
     [](ParallelConfig& c) {
       parallel::StaleSynchronousOptions o;
       settle(c.staleness, o.staleness);
       return parallel::stale_synchronous(o);
     }},
};

parallel::StrategyFactory strategy_of(ParallelConfig& config) {
  for (const Entry& entry : kStrategies) {
    if (config.strategy == entry.name) return entry.make(config);
  }
  throw InvalidArgument(
      Report{.what = fmt::format("parallel.strategy = {}: there is none of that name", config.strategy),
             .fix = "--help lists them"});
}

std::optional<c10::ScalarType> travelling_type(const std::string& name) {
  if (name == "bf16") return c10::kBFloat16;
  if (name == "fp16") return c10::kHalf;
  return std::nullopt;
}

// None: auto.
std::optional<parallel::Shard> shard_named(const std::string& name) {
  if (name == "auto") return std::nullopt;
  if (name == "optimizer") return parallel::Shard::kOptimizer;
  if (name == "gradients") return parallel::Shard::kGradients;
  if (name == "parameters") return parallel::Shard::kParameters;
  return parallel::Shard::kNone;
}

}  // namespace

std::vector<std::string> strategy_names() {
  std::vector<std::string> names;
  for (const Entry& entry : kStrategies) names.emplace_back(entry.name);
  return names;
}

bool acts_on_weights(const std::string& strategy) {
  ParallelConfig config;
  config.strategy = strategy;
  return strategy_of(config).weights != nullptr;
}

ParallelConfig with_strategy_defaults(ParallelConfig config) {
  strategy_of(config);
  return config;
}

parallel::DataParallelOptions data_parallel_options(const ParallelConfig& config, const Communicator& world) {
  ParallelConfig settled = config;
  parallel::DataParallelOptions options{
      .bucket_mb = config.bucket_mb, .overlap = config.overlap, .strategy = strategy_of(settled)};
  options.share_cores = false;  // --train.threads has its say: whoever trains calls share_cores()
  if (config.buffers == "average") options.buffers = parallel::BufferPolicy::kAverage;
  if (config.buffers == "own") options.buffers = parallel::BufferPolicy::kOwn;
  options.shard = layout::sharding_of({.sharding = shard_named(config.shard), .buckets = !lets_gradients_stay(config)},
                                      {.shares_memory = world.shares_memory()});
  options.reshard_after_forward = config.reshard_after_forward;
  options.reshard_to = static_cast<int>(config.reshard_to);
  options.gather_type = travelling_type(config.gather_type);
  options.reduce_type = travelling_type(config.reduce_type);
  options.offload = config.offload;
  if (config.replicas > 1) {
    options.mesh.emplace(
        world, std::vector<mesh::Axis>{{"dp_replicate", static_cast<int>(config.replicas)}, {"dp_shard", mesh::kRest}});
  }
  return options;
}

}  // namespace reigen::train
