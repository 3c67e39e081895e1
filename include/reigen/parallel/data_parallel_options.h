// The options of data_parallel(): how gradients travel, and what the ranks divide between them.
//
// For a model of N parameters with AdamW in fp32 on P ranks over a network, in bytes:
//
//               a rank holds               a rank sends in a step
//   kNone        16·N                       8·N·(P-1)/P
//   kOptimizer    8·N +  8·N/P             12·N·(P-1)/P
//   kGradients    4·N + 12·N/P              8·N·(P-1)/P
//   kParameters        16·N/P              12·N·(P-1)/P
//
// kParameters also needs the weights and gradients of two units while it computes. On one machine nothing crosses a
// network, and all ranks together hold 16·P·N (kNone), 12·N + 4·P·N (kOptimizer and kGradients each) and 16·N
// (kParameters).
//
// After Rajbhandari et al., ZeRO, https://arxiv.org/abs/1910.02054; Zhao et al., PyTorch FSDP,
// https://arxiv.org/abs/2304.11277
// Thread rule: values.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

#include "reigen/layout/choose.h"
#include "reigen/mesh/mesh.h"
#include "reigen/nn/unit.h"
#include "reigen/parallel/strategy.h"

namespace reigen::parallel {

// What happens to a model's buffers (batch statistics) before every synchronised forward in training mode.
enum class BufferPolicy {
  kBroadcast,  // every rank takes rank 0's buffers, as in PyTorch
  kAverage,    // every rank takes the mean over the ranks; of integer buffers rank 0's
  kOwn,        // each rank keeps its own, until settle()
};

// What the ranks divide between them, instead of each holding all of it. Training gives the same bits with every
// choice.
//
// kNone: the ranks divide nothing.
//
// kOptimizer, ZeRO stage 1: each rank has the optimizer states for its share of the weights, and steps that share
// alone. On one machine all ranks use one copy of weights and states in shared memory, and nothing is gathered. Over a
// network a step ends with an all_gather of the weights. It needs an optimizer of reigen::optim, whose step() then
// waits for all ranks. Code that changes weights in another way must call ParameterRange::note_change().
//
// kGradients, ZeRO stage 2: as kOptimizer, and gradients are divided too. On one machine gradients do not travel: each
// rank's gradients lie in memory that all ranks read, and a rank's step averages its share while it reads it. On one
// machine this saves no memory. `.grad` stays this rank's own gradient, until a norm or clipping (clip.h) replaces
// this rank's share of it by the mean. Drop or zero `.grad` before the next backward. Over a network gradients are
// treated as with kParameters. No strategy can be combined with it.
//
// kParameters, ZeRO stage 3: as kGradients, and no rank holds more weights than it computes with. On one machine all
// ranks use one copy of the weights, as above. Over a network each rank holds its share of the weights, and the units
// of DataParallelOptions::units are gathered while they run. Gradients are averaged unit by unit: they take memory
// from when backward makes them until they are averaged, and each rank keeps its share of the mean. From then on
// `.grad` is NaN everywhere, and only marks that there is a gradient. No strategy can be combined with it.
using Shard = layout::Sharding;
using layout::to_text;  // to_text(Shard): "none", "optimizer", "gradients", "parameters"

struct DataParallelOptions {
  // The size of a bucket in MiB; 0: every parameter travels alone. Small buckets start earlier, large ones cost less
  // per byte. The first bucket is about 1 MiB, so that something travels soon. If the other gradients fit into one
  // bucket of this size, they are one bucket. Otherwise, after the first bucket of this size, each takes half of the
  // gradients that are still to come, but at least 1 MiB, so that little is left to wait for after backward. So a size
  // above the model's gives one large bucket, and a smaller size a tail of small buckets. After the first backward the
  // buckets are cut again, in the order in which gradients became ready on rank 0.
  double bucket_mb = 25;
  // True: buckets travel while backward runs. False: one all_reduce for each element type, after backward. Both give
  // the same bits; which is faster depends on the machine.
  bool overlap = true;
  // How the ranks' gradients or weights are brought together (strategies.h). None: plain().
  StrategyFactory strategy = {};
  BufferPolicy buffers = BufferPolicy::kBroadcast;
  Shard shard = Shard::kNone;
  // The units: parts of the model. With kParameters they are gathered and averaged one at a time; with kGradients over
  // a network they are averaged one at a time. The model's forward must run them with nn::call(). Empty: the model's
  // own units(), if it has this function; else groups of about bucket_mb of parameters in the model's order, which
  // stay gathered from the first forward to the step.
  std::vector<nn::Unit> units = {};
  // A directory on a disk. Optimizer states, and weights that ranks divide, are then unnamed files there, of which the
  // kernel caches in memory as much as there is room for. They are as fast as memory while they fit, and as slow as
  // the disk beyond that. Empty: they are in memory.
  std::filesystem::path offload = {};
  // A function that sets the values of all parameters and buffers that have memory at the time of the call, each
  // independently of the others. It runs with gradients off. A model that was made without memory
  // (nn/without_memory.h) needs it. It is called on every rank, and then again on one or several ranks; with
  // kParameters over a network it is called once for each parameter. So it must not call collectives. Rank 0's values
  // count, as always.
  std::function<void()> initialize = {};
  // Hybrid sharding: ranks along the axis dp_shard divide; ranks along dp_replicate hold the same shares, and average
  // the means of their shares once more. The mesh must cover all ranks; it is best to make each machine a row
  // (mesh.h). None: all ranks divide.
  std::optional<mesh::Mesh> mesh = {};
  // For kParameters over a network. True: a unit's weights are freed after its forward and gathered again for its
  // backward. False: they stay until its backward is over, which saves the second gather and costs the memory of the
  // weights.
  bool reshard_after_forward = true;
  // A compromise between the two values of reshard_after_forward: after a unit's forward each group of `reshard_to`
  // consecutive ranks (those of one machine, say) keeps the unit's weights divided among them, so the gather for
  // backward stays within the group. It costs 1/reshard_to of the memory of the weights and needs
  // reshard_after_forward. 2 or more; the number of ranks that divide must be a multiple of it, except for one rank
  // alone, which divides nothing. 0: no group keeps weights.
  int reshard_to = 0;
  // For kParameters over a network: the type in which fp32 weights travel when a unit is gathered, at::kBFloat16 or
  // at::kHalf. Forward and backward then compute with rounded weights; shares, steps and checkpoints stay fp32, and
  // gather_weights() gathers these fp32 values. It halves the bytes. It is made for autocast (nn/autocast.h), which
  // rounds the weights of matrix products anyway. On one machine nothing travels, and nothing is rounded. None:
  // weights travel in their own type.
  std::optional<c10::ScalarType> gather_type = {};
  // The type in which fp32 gradients travel where ranks divide them (kGradients over a network, kParameters). They are
  // rounded once before they travel and added in fp32, and the mean is rounded again. None: they travel in their own
  // type.
  std::optional<c10::ScalarType> reduce_type = {};
  // Of every n backwards, the first n - 1 only add up gradients, as under no_sync(), and the n-th averages the sum. At
  // least 1.
  std::int64_t backwards_per_reduction = 1;
  // True: in every step's first exchange the ranks compare a sample of their weights where these must be equal. A
  // difference throws an Error (exit code 81) on all ranks, in the backward after the step in which it arose. This
  // finds optimizers that decide by this rank's loss alone, and anything else that one rank does differently. It costs
  // 2 to 14 microseconds a step. Nothing is compared under a Join, with a strategy that lets weights differ, or where
  // weights are in shared memory, in shares, or on a disk.
  bool compare_weights = true;
  // True: LibTorch computes with this rank's share of the machine's processors (tensor/compute_threads.h) where it
  // would use all of them. A number of threads set by OMP_NUM_THREADS, MKL_NUM_THREADS or at::set_num_threads() is
  // kept. False: it computes with at::get_num_threads() threads.
  bool share_cores = true;
};

}  // namespace reigen::parallel
