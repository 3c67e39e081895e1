// The options of data_parallel(): how the ranks exchange gradients, and which data they shard.
//
// For a model of N parameters with AdamW in fp32 on P ranks over a network, in bytes:
//
//               a rank holds               a rank sends in a step
//   kNone        16·N                       8·N·(P-1)/P
//   kOptimizer    8·N +  8·N/P             12·N·(P-1)/P
//   kGradients    4·N + 12·N/P              8·N·(P-1)/P
//   kParameters        16·N/P              12·N·(P-1)/P
//
// kParameters also needs memory for the weights and gradients of two units while it computes. On one machine nothing
// crosses a network, and all ranks together hold 16·P·N (kNone), 12·N + 4·P·N (kOptimizer and kGradients each) or 16·N
// (kParameters).
//
// After Rajbhandari et al., ZeRO, https://arxiv.org/abs/1910.02054; Zhao et al., PyTorch FSDP,
// https://arxiv.org/abs/2304.11277
// Thread rule: values, freely copied between threads.
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
  kAverage,    // every rank takes the mean over the ranks; for integer buffers, rank 0's values
  kOwn,        // each rank keeps its own, until settle()
};

// Says which data are divided among the ranks, so that each rank holds only its share. Each rank holds all other data
// whole. Training gives the same bits with every choice.
//
// kNone: nothing is divided.
//
// kOptimizer, ZeRO stage 1: each rank has the optimizer states for its share of the weights, and steps that share
// alone. On one machine all ranks use one copy of weights and states in shared memory, and nothing is gathered. Over a
// network a step ends with an all_gather of the weights. It needs an optimizer of reigen::optim, whose step() then
// waits for all ranks. Other code that changes weights must call ParameterRange::note_change().
//
// kGradients, ZeRO stage 2: as kOptimizer, and gradients are sharded too. On one machine gradients are not sent: each
// rank's gradients lie in memory that all ranks can read, and in its step each rank averages the gradients of its share
// while it reads them. On one machine this saves no memory. `.grad` remains this rank's own gradient, until a norm or
// clipping (clip.h) replaces this rank's share of it by the mean. Drop or zero `.grad` before the next backward. Over a
// network gradients are treated as with kParameters. kGradients cannot be combined with a strategy.
//
// kParameters, ZeRO stage 3: as kGradients, and weights are sharded too. On one machine all ranks use one copy of the
// weights, as above. Over a network each rank holds its share of the weights, and the units of
// DataParallelOptions::units are gathered while they run. Gradients are averaged unit by unit: they take memory only
// from backward until they are averaged, and each rank keeps its share of the mean. After that `.grad` is NaN
// everywhere, and only marks that a gradient exists. kParameters cannot be combined with a strategy.
using Shard = layout::Sharding;
using layout::to_text;  // to_text(Shard): "none", "optimizer", "gradients", "parameters"

struct DataParallelOptions {
  // The size of a bucket in MiB; 0: every parameter is a bucket. Small buckets start earlier, large buckets cost less
  // per byte. The first bucket is about 1 MiB, so that communication starts early. If the other gradients fit into one
  // bucket of this size, they are one bucket. Otherwise one bucket of this size follows, and then each bucket takes
  // half of the remaining gradients, but at least 1 MiB, so that backward waits for little at its end. So a size above
  // the model's size gives one large bucket, and a smaller size gives smaller and smaller buckets towards the end.
  // After the first backward the gradients are divided into buckets again, in the order in which they became ready on
  // rank 0.
  double bucket_mb = 25;
  // True: buckets are sent while backward runs. False: one all_reduce for each element type, after backward. Both give
  // the same bits; which is faster depends on the machine.
  bool overlap = true;
  // How the ranks' gradients or weights are combined (strategies.h). Not set: plain().
  StrategyFactory strategy = {};
  BufferPolicy buffers = BufferPolicy::kBroadcast;
  Shard shard = Shard::kNone;
  // The units: parts of the model. With kParameters they are gathered and averaged one at a time; with kGradients over
  // a network they are averaged one at a time. The model's forward must run them with nn::call(). Empty: the model's
  // own units(), if it has this function; otherwise groups of about bucket_mb of parameters in the model's order, which
  // remain gathered from the first forward to the step.
  std::vector<nn::Unit> units = {};
  // A directory on a disk. If it is set, optimizer states and sharded weights are unnamed files in this directory. The
  // kernel caches as much of them in memory as there is room for. While they fit into memory, they are as fast as
  // memory; beyond that they are as slow as the disk. Empty: they are in memory.
  std::filesystem::path offload = {};
  // A function that sets the values of all parameters and buffers that have memory at the time of the call, each
  // independently of the others. It runs in no-grad mode. A model that was created without memory (nn/without_memory.h)
  // needs this function. It is called on every rank, and then again on one or several ranks; with kParameters over a
  // network it is called once for each parameter. So it must not call collectives. As always, rank 0's values are used.
  std::function<void()> initialize = {};
  // Hybrid sharding: the data are divided among the ranks along the mesh axis dp_shard. Ranks that differ only along
  // dp_replicate hold the same share. They average this share once more, after the average along dp_shard. The mesh
  // must cover all ranks; it is best to place each row of the mesh on one machine (mesh.h). Not set: the data are
  // divided among all ranks.
  std::optional<mesh::Mesh> mesh = {};
  // For kParameters over a network. True: a unit's weights are freed after its forward and gathered again for its
  // backward. False: they remain until its backward is over; this saves the second gather and costs the memory of the
  // weights.
  bool reshard_after_forward = true;
  // A compromise between the two values of reshard_after_forward: after a unit's forward each group of `reshard_to`
  // consecutive ranks (for example those of one machine) keeps the unit's weights, sharded among its ranks. So the
  // gather for backward is a call within the group. It costs 1/reshard_to of the memory of the weights and needs
  // reshard_after_forward. 2 or more; the number of ranks among which weights are divided must be a multiple of it,
  // unless this number is 1. 0: no group keeps weights.
  int reshard_to = 0;
  // For kParameters over a network: the type in which fp32 weights are sent when a unit is gathered, at::kBFloat16 or
  // at::kHalf. Forward and backward then compute with rounded weights. Shares, steps and checkpoints remain fp32, and
  // gather_weights() gathers these fp32 values. This option halves the bytes. It is made for autocast (nn/autocast.h),
  // which rounds the weights of matrix products anyway. On one machine weights are not sent, so nothing is rounded. Not
  // set: weights are sent in their own type.
  std::optional<c10::ScalarType> gather_type = {};
  // The type in which fp32 gradients are sent where ranks shard them (kGradients over a network, kParameters).
  // Gradients are rounded before they are sent and added in fp32, and the mean is rounded again. Not set: gradients are
  // sent in their own type.
  std::optional<c10::ScalarType> reduce_type = {};
  // With the value n, the first n - 1 of every n backwards only add up gradients, as under no_sync(), and the n-th
  // averages the sum. At least 1.
  std::int64_t backwards_per_reduction = 1;
  // True: in every step's first exchange the ranks compare a sample of their weights where these must be equal. If they
  // differ, all ranks throw an Error (exit code 81), in the backward after the step in which the difference arose. This
  // finds optimizers that decide by the loss of one rank, and every other action that differs between ranks. It costs 2
  // to 14 microseconds a step. Nothing is compared under a Join, with a strategy that lets weights differ, or where
  // weights are in shared memory, sharded, or on a disk.
  bool compare_weights = true;
  // True: if LibTorch would use all processors of the machine, it uses only this rank's share of them
  // (tensor/compute_threads.h). A number of threads set by OMP_NUM_THREADS, MKL_NUM_THREADS or at::set_num_threads() is
  // kept. False: LibTorch's number of threads does not change.
  bool share_cores = true;
};

}  // namespace reigen::parallel
