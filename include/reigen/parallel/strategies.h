// The strategies of this library. P is the number of ranks. N is the number of the model's weights, of 4 bytes each.
// g_r is the gradient of rank r, and x_r are the weights of rank r. The letters stand for options
// (config/strategies.h): k for rank, H for every, G for global_every, s for staleness.
//
// Strategies of gradients combine the ranks' gradients in every backward, so all ranks step with the same gradients:
//                                                                                          bytes a rank gives per step
//   plain()             1/P · sum g_r                                                          4·N
//   compressed(type)    1/P · sum round(g_r), in 16 bits                                       2·N
//   power_sgd()         1/P · sum P_r·Q_r^T of matrix rank k, with error feedback              4·k·(rows + columns)
//   top_k()             1/P · sum of each rank's largest elements, with error feedback         8·share·N·(P - 1)
//   one_bit()           1/P · sum mean|g_r|·sign(g_r), with error feedback                     (N/8 + N/64)·(P - 1)
//   adasum(kGradients)  gradients of pairs of ranks: a + b - common part                       4·N·log2(P)
// Error feedback: a rank keeps the part of a gradient that it did not send, and adds this part to its next gradient. So
// over all steps no part of a gradient is lost:
//   sum of the gradients stepped with + 1/P · sum of the parts kept back = sum of the true means
// Do not use error feedback with fp16 and a GradScaler. When the loss scale changes, the kept part has the wrong scale.
// If a gradient is not finite, the kept part is not finite in all later steps.
//
// Strategies of weights combine the ranks' weights between steps. Every rank steps with its own gradients:
//   local_sgd()         x_r = mean of all ranks, every H-th step                               4·N/H
//   hierarchical_sgd()  x_r = mean of a group every H-th step, of all ranks every G·H-th       4·N/H
//   adasum()            the changes that the ranks' steps made are combined as gradients are   4·N·log2(P)
//   diloco()            every H-th step an outer Nesterov step with the mean of the changes    4·N/H
//   gossip()            x_r = mean of x_r and the weights of the neighbours                    4·N·neighbours
//   async_gossip()      as gossip(), without waiting, sent in 8 bits                           N·neighbours
//   stale_synchronous() x_r += changes of all ranks as they arrive, at most s steps late       4·N·(P - 1)
// All strategies of weights except adasum, diloco and stale_synchronous only move the ranks' weights towards each
// other. So they do not change the mean of the weights over the ranks.
//
// The functions below throw InvalidArgument for options out of range.
#pragma once

#include "reigen/config/strategies.h"
#include "reigen/parallel/strategy.h"

namespace reigen::parallel {

StrategyFactory plain();

// `type` is at::kBFloat16 or at::kHalf. Gradients are rounded to the nearest value of this type. They are summed in
// fp32, and the mean is rounded again. Gradients that have 16 bits already are sent unchanged. fp16 overflows above
// 65504 and loses values below 6e-8. Use bf16, unless a GradScaler keeps the gradients in the range of fp16.
StrategyFactory compressed(at::ScalarType type);

StrategyFactory power_sgd(const PowerSgdOptions& options = {});
StrategyFactory top_k(const TopKOptions& options = {});
StrategyFactory one_bit(const OneBitOptions& options = {});
StrategyFactory adasum(const AdasumOptions& options = {});
StrategyFactory local_sgd(const LocalSgdOptions& options = {});
StrategyFactory hierarchical_sgd(const HierarchicalSgdOptions& options = {});

// The first outer step starts from the weights that the model has when data_parallel() wraps it. So load weights before
// you call data_parallel(), or load the strategy's state afterwards (load_strategy_state()).
StrategyFactory diloco(const DilocoOptions& options = {});

StrategyFactory gossip(const GossipOptions& options = {});
StrategyFactory async_gossip(const AsyncGossipOptions& options = {});
StrategyFactory stale_synchronous(const StaleSynchronousOptions& options = {});

// Returns the strategy for options that a user chose by name (config/strategies.h).
StrategyFactory strategy_of(const AnyStrategy& strategy);

}  // namespace reigen::parallel
