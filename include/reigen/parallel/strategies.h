// The strategies there are. P ranks; N elements of 4 bytes; g_r the gradient and x_r the weights of rank r.
//
// Gradients, brought together in every backward; all ranks step with the same:
//                                                                                          bytes that a rank gives
//   plain()             1/P · sum g_r                                                          4·N
//   compressed(type)    1/P · sum round(g_r), in 16 bits                                       2·N
//   power_sgd()         1/P · sum P_r·Q_r^T of rank k, with error feedback                     4·k·(rows + columns)
//   top_k()             1/P · sum of each rank's largest elements, with error feedback         8·share·N·(P - 1)
//   one_bit()           1/P · sum mean|g_r|·sign(g_r), with error feedback                     (N/8 + N/64)·(P - 1)
//   adasum(kGradients)  a + b, less what they have in common, pair by pair                     4·N·log2(P)
// Error feedback: what a rank could not give it adds to its next gradient. Over all steps nothing is lost:
// sum of what was stepped with + 1/P · sum of what is kept back = sum of the true means. Not with a loss scale that
// changes, and a gradient that is not finite stays in what is kept: no fp16 with a scaler.
//
// Weights, brought together between steps; every rank steps with gradients of its own:
//   local_sgd()         x_r = mean of all, every H-th step                                     4·N/H
//   hierarchical_sgd()  x_r = mean of a group every H-th, of all every G·H-th step             4·N/H
//   adasum()            what every optimizer changed is brought together as gradients above    4·N·log2(P)
//   diloco()            every H-th step an outer Nesterov step with the mean of the changes    4·N/H
//   gossip()            x_r = mean of its own and its neighbours'                              4·N·neighbours
//   async_gossip()      the same without waiting, in 8 bits                                    N·neighbours
//   stale_synchronous() x_r += changes of all as they come, at most s steps late               4·N·(P - 1)
// Each but adasum, diloco and stale_synchronous only moves weights towards each other: their mean stays that of the
// optimizers' steps.
//
// Options out of range throw InvalidArgument where the strategy is made, on every rank.
#pragma once

#include <cstdint>

#include "reigen/parallel/strategy.h"

namespace reigen::parallel {

StrategyFactory plain();

// type: at::kBFloat16 or at::kHalf; gradients that have 16 bits travel as they are. Rounded to nearest, summed in fp32
// and rounded once more. fp16 overflows above 65504 and loses what is below 6e-8: take bf16 unless a scaler looks
// after it.
StrategyFactory compressed(at::ScalarType type);

// Vogels et al., https://arxiv.org/abs/1905.13727. A parameter of two or more dimensions is a matrix of shape[0] rows;
// others, and those that would not shrink, travel as they are. Exact where `rank` is the smaller side.
struct PowerSgdOptions {
  std::int64_t rank = 2;         // 1 to 63
  std::int64_t start_step = 10;  // plain before: gradients change fast at first
  std::uint64_t seed = 0;        // of the first Q
};
StrategyFactory power_sgd(const PowerSgdOptions& options = {});

// The largest by magnitude, parameter by parameter, at least one of each. Lin et al., https://arxiv.org/abs/1712.01887
struct TopKOptions {
  double share = 0.01;  // of a parameter's elements, in (0, 1]
};
StrategyFactory top_k(const TopKOptions& options = {});

// Signs, and the mean magnitude of 256 elements at a time. Seide et al., 1-Bit Stochastic Gradient Descent, Interspeech
// 2014; Karimireddy et al., https://arxiv.org/abs/1901.09847
struct OneBitOptions {
  std::int64_t start_step = 50;  // plain before: optimizers that adapt need to see magnitudes first
};
StrategyFactory one_bit(const OneBitOptions& options = {});

// Maleki et al., https://arxiv.org/abs/2006.02924: parameter by parameter, what agrees is averaged, what is orthogonal
// added. Rates as for one rank. P ranks that are no power of 2: those above the largest one below P give theirs to one
// rank each before, which tells them the result behind and gives 4·N more.
enum class AdasumOf {
  // Each rank's optimizer steps alone, with a state of its own, and the changes are brought together behind every step:
  // as in the paper and in Horovod. Behind after_step() weights are equal, bit by bit. Weights that were loaded since
  // the step before, the same on all ranks, count as part of the change, which is averaged then.
  kSteps,
  // Before the optimizer, which then makes of a sum and of a mean nearly the same step where it scales gradients
  // (AdamW). For what asks for one state of the optimizer on all ranks: Join, Shard::kOptimizer, closures.
  kGradients,
};
struct AdasumOptions {
  AdasumOf of = AdasumOf::kSteps;
};
StrategyFactory adasum(const AdasumOptions& options = {});

// Stich, https://arxiv.org/abs/1805.09767; with start_step, Lin et al., https://arxiv.org/abs/1808.07217 (post-local).
struct LocalSgdOptions {
  std::int64_t every = 8;       // steps between two averages; at least 1
  std::int64_t start_step = 0;  // gradients are averaged before
};
StrategyFactory local_sgd(const LocalSgdOptions& options = {});

// Ranks r with equal r / group_size are a group: a machine's, say.
struct HierarchicalSgdOptions {
  std::int64_t group_size = 2;    // at least 1
  std::int64_t every = 2;         // steps between two averages of a group; at least 1
  std::int64_t global_every = 4;  // of those between two of all; at least 1
};
StrategyFactory hierarchical_sgd(const HierarchicalSgdOptions& options = {});

// Douillard et al., https://arxiv.org/abs/2311.08105
struct DilocoOptions {
  std::int64_t every = 50;      // steps between two outer steps; at least 1
  double outer_lr = 0.7;        // above 0
  double outer_momentum = 0.9;  // in [0, 1)
};
// The first outer step is made from the weights at the wrapping: load weights before, or load its state behind.
StrategyFactory diloco(const DilocoOptions& options = {});

// Lian et al., https://arxiv.org/abs/1705.09056; Assran et al., https://arxiv.org/abs/1811.10792
enum class Topology {
  kRing,         // both neighbours in every step
  kExponential,  // one rank in step t: r + 2^(t mod log2 P); after log2 P steps every rank has heard of every other
};
struct GossipOptions {
  Topology topology = Topology::kRing;
};
StrategyFactory gossip(const GossipOptions& options = {});

// On a ring. A rank tells its neighbours how its weights changed since it last did, in 8 bits, and what rounding left
// is part of the next change; it uses what has come and never waits for what is less than `staleness` steps behind.
// Lian et al., https://arxiv.org/abs/1710.06952; Koloskova et al., https://arxiv.org/abs/1902.00340
struct AsyncGossipOptions {
  std::int64_t staleness = 4;  // at least 0
};
StrategyFactory async_gossip(const AsyncGossipOptions& options = {});

// A parameter server with bounded staleness whose part every rank plays for itself: changes, divided by P, go to all
// ranks, and each adds them when they come. Ho et al., More Effective Distributed ML via a Stale Synchronous Parallel
// Parameter Server, NIPS 2013
struct StaleSynchronousOptions {
  std::int64_t staleness = 2;  // no rank waits for changes of less than so many steps ago; at least 0
};
StrategyFactory stale_synchronous(const StaleSynchronousOptions& options = {});

}  // namespace reigen::parallel
