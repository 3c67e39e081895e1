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

#include "reigen/config/strategies.h"
#include "reigen/parallel/strategy.h"

namespace reigen::parallel {

StrategyFactory plain();

// type: at::kBFloat16 or at::kHalf; gradients that have 16 bits travel as they are. Rounded to nearest, summed in fp32
// and rounded once more. fp16 overflows above 65504 and loses what is below 6e-8: take bf16 unless a scaler looks
// after it.
StrategyFactory compressed(at::ScalarType type);

StrategyFactory power_sgd(const PowerSgdOptions& options = {});
StrategyFactory top_k(const TopKOptions& options = {});
StrategyFactory one_bit(const OneBitOptions& options = {});
StrategyFactory adasum(const AdasumOptions& options = {});
StrategyFactory local_sgd(const LocalSgdOptions& options = {});
StrategyFactory hierarchical_sgd(const HierarchicalSgdOptions& options = {});

// The first outer step is made from the weights at the wrapping: load weights before, or load its state behind.
StrategyFactory diloco(const DilocoOptions& options = {});

StrategyFactory gossip(const GossipOptions& options = {});
StrategyFactory async_gossip(const AsyncGossipOptions& options = {});
StrategyFactory stale_synchronous(const StaleSynchronousOptions& options = {});

// The strategy that was chosen by name.
StrategyFactory strategy_of(const AnyStrategy& strategy);

}  // namespace reigen::parallel
