// Makes the strategy that was chosen by name, from its options. There is one line for each kind of options.
#include "reigen/parallel/strategies.h"

namespace reigen::parallel {
namespace {

struct Make {
  StrategyFactory operator()(const PlainOptions&) const { return {}; }  // data_parallel()'s default
  StrategyFactory operator()(const Bf16Options&) const { return compressed(at::kBFloat16); }
  StrategyFactory operator()(const Fp16Options&) const { return compressed(at::kHalf); }
  StrategyFactory operator()(const PowerSgdOptions& o) const { return power_sgd(o); }
  StrategyFactory operator()(const TopKOptions& o) const { return top_k(o); }
  StrategyFactory operator()(const OneBitOptions& o) const { return one_bit(o); }
  StrategyFactory operator()(const AdasumOptions& o) const { return adasum(o); }
  StrategyFactory operator()(const LocalSgdOptions& o) const { return local_sgd(o); }
  StrategyFactory operator()(const HierarchicalSgdOptions& o) const { return hierarchical_sgd(o); }
  StrategyFactory operator()(const DilocoOptions& o) const { return diloco(o); }
  StrategyFactory operator()(const GossipOptions& o) const { return gossip(o); }
  StrategyFactory operator()(const AsyncGossipOptions& o) const { return async_gossip(o); }
  StrategyFactory operator()(const StaleSynchronousOptions& o) const { return stale_synchronous(o); }
};

}  // namespace

StrategyFactory strategy_of(const AnyStrategy& strategy) {
  StrategyFactory factory;
  strategy.visit([&](const auto& options) { factory = Make()(options); });
  return factory;
}

}  // namespace reigen::parallel
