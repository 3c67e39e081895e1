// The strategies of this library. P is the number of ranks and N the number of elements of 4 bytes. g_r is the gradient
// of rank r, and x_r its weights. k, share, H, G and s are options: rank, share, every, global_every and staleness
// (config/strategies.h).
//
// Strategies of gradients combine the gradients in every backward; all ranks step with the same gradients:
//                                                                                          bytes that a rank gives
//   plain()             1/P · sum g_r                                                          4·N
//   compressed(type)    1/P · sum round(g_r), in 16 bits                                       2·N
//   power_sgd()         1/P · sum P_r·Q_r^T of matrix rank k, with error feedback              4·k·(rows + columns)
//   top_k()             1/P · sum of each rank's largest elements, with error feedback         8·share·N·(P - 1)
//   one_bit()           1/P · sum mean|g_r|·sign(g_r), with error feedback                     (N/8 + N/64)·(P - 1)
//   adasum(kGradients)  a + b minus their common part, pair by pair                            4·N·log2(P)
// Error feedback: a rank adds the part of a gradient that it could not send to its next gradient. So over all steps
// nothing is lost:
//   sum of the gradients stepped with + 1/P · sum of the parts kept back = sum of the true means
// Do not use error feedback with fp16 and a GradScaler: when the loss scale changes, the kept part has the wrong scale,
// and a gradient that is not finite remains in it.
//
// Strategies of weights combine the weights between steps; every rank steps with its own gradients:
//   local_sgd()         x_r = mean of all ranks, every H-th step                               4·N/H
//   hierarchical_sgd()  x_r = mean of a group every H-th, of all ranks every G·H-th step       4·N/H
//   adasum()            the changes that all optimizers made are combined as gradients above   4·N·log2(P)
//   diloco()            every H-th step an outer Nesterov step with the mean of the changes    4·N/H
//   gossip()            x_r = mean of its own and its neighbours' weights                      4·N·neighbours
//   async_gossip()      the same without waiting, in 8 bits                                    N·neighbours
//   stale_synchronous() x_r += changes of all ranks as they arrive, at most s steps late       4·N·(P - 1)
// All of these except adasum, diloco and stale_synchronous only move the ranks' weights towards each other: they do not
// change the mean of the weights over the ranks.
//
// These functions throw InvalidArgument, on every rank, for options out of range.
#pragma once

#include "reigen/config/strategies.h"
#include "reigen/parallel/strategy.h"

namespace reigen::parallel {

StrategyFactory plain();

// type: at::kBFloat16 or at::kHalf. Gradients are rounded to nearest and summed in fp32, and the mean is rounded once
// more. Gradients of 16 bits are sent as they are. fp16 overflows above 65504 and loses values below 6e-8: use bf16,
// unless a GradScaler keeps gradients in range.
StrategyFactory compressed(at::ScalarType type);

StrategyFactory power_sgd(const PowerSgdOptions& options = {});
StrategyFactory top_k(const TopKOptions& options = {});
StrategyFactory one_bit(const OneBitOptions& options = {});
StrategyFactory adasum(const AdasumOptions& options = {});
StrategyFactory local_sgd(const LocalSgdOptions& options = {});
StrategyFactory hierarchical_sgd(const HierarchicalSgdOptions& options = {});

// The first outer step starts from the weights at the time of wrapping: load weights before it, or load the strategy's
// state after it.
StrategyFactory diloco(const DilocoOptions& options = {});

StrategyFactory gossip(const GossipOptions& options = {});
StrategyFactory async_gossip(const AsyncGossipOptions& options = {});
StrategyFactory stale_synchronous(const StaleSynchronousOptions& options = {});

// The strategy for options that were chosen by name (config/strategies.h).
StrategyFactory strategy_of(const AnyStrategy& strategy);

}  // namespace reigen::parallel
