// What data_parallel() can be told: how gradients travel, and what ranks divide between them.
//
// Of N parameters with AdamW in fp32 a rank of P over a network holds, in bytes, and sends in a step
//
//   kNone        16·N                       8·N·(P-1)/P
//   kOptimizer    8·N +  8·N/P             12·N·(P-1)/P
//   kGradients    4·N + 12·N/P              8·N·(P-1)/P
//   kParameters        16·N/P              12·N·(P-1)/P
//
// (the last beside two units' weights and gradients while it computes), and all ranks of one machine together, which
// sends nothing there: 16·P·N, 12·N + 4·P·N twice, 16·N.
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

// What happens to a model's buffers (batch statistics) in front of every synchronised forward in training mode.
enum class BufferPolicy {
  kBroadcast,  // all ranks go on with rank 0's, as in PyTorch
  kAverage,    // with the mean over the ranks; buffers of integers: rank 0's
  kOwn,        // each with its own, until settle()
};

// What the ranks hold together instead of each for itself. The bits of a training are the same with all of them.
//
// kNone: nothing.
//
// kOptimizer, ZeRO stage 1: each rank has the states of the optimizer for its share of the weights and steps that. On
// one machine weights and states are one memory of all ranks, and nothing is gathered. Over a network a rank's step
// ends with an all_gather of the weights. It is for optimizers of reigen::optim, whose step() then waits for all ranks.
// Who changes weights otherwise tells it (ParameterRange::note_change()).
//
// kGradients, stage 2: the same for gradients. On one machine they do not travel: each lies where all ranks read it,
// and a rank's step averages its share as it reads it (their memory is not less). `.grad` stays this rank's own, in its
// share until a norm or clipping (clip.h) makes it the mean. Drop or zero it before the next backward. Over a network
// as with kParameters. No strategy goes with it.
//
// kParameters, stage 3: and nobody has more of the weights than it computes with. On one machine they are one memory of
// all ranks, as above. Over a network each rank has its share, and DataParallelOptions::units are gathered while they
// run. Gradients have memory from when backward makes them until they are averaged, unit by unit, of which each rank
// keeps its share. `.grad` is NaN then and only marks it. No strategy goes with it.
using Shard = layout::Sharding;
using layout::to_text;  // of a Shard: "none", "optimizer", "gradients", "parameters"

struct DataParallelOptions {
  // MiB of gradients that travel together; 0: every parameter alone. Small ones start earlier, large ones cost less
  // each. The first bucket is about 1 MiB, so that something travels soon; gradients that fit into one more are one
  // more. Else the last ones take half of what is left each, down to 1 MiB, so that little is left to wait for behind
  // backward: a size above the model's gives one large bucket, a smaller one a tail of small ones. After the first
  // backward they are cut anew in the order in which gradients came on rank 0.
  double bucket_mb = 25;
  // Buckets travel while backward runs. False: one all_reduce after it. Same bits; which is faster depends on the
  // machine.
  bool overlap = true;
  // How the ranks stay together (strategies.h); none: plain().
  StrategyFactory strategy = {};
  BufferPolicy buffers = BufferPolicy::kBroadcast;
  Shard shard = Shard::kNone;
  // What is gathered and averaged at a time with kParameters, and over a network with kGradients: parts of the model
  // that its forward runs with nn::call(). Empty: those of a model with units(), else about bucket_mb of parameters in
  // the model's order, gathered from the first forward to the step.
  std::vector<nn::Unit> units = {};
  // A directory on a disk: states of optimizers, and weights that ranks divide, are files without a name there, of
  // which the kernel keeps in memory what there is room for. As fast as memory while there is; the disk's speed beyond.
  // Empty: memory.
  std::filesystem::path offload = {};
  // Sets the values of all parameters and buffers that have memory when it is called, each by itself, with gradients
  // off. For a model that was made without memory (nn/without_memory.h), which needs it. Called on every rank, and then
  // on one or on several, with kParameters over a network once for each parameter, so it calls no collectives. Rank 0's
  // values count, as ever.
  std::function<void()> initialize = {};
  // Hybrid sharding: ranks along axis dp_shard divide, those along dp_replicate hold the same shares and average them
  // once more. Of all ranks; best with machines as rows (mesh.h). None: all ranks divide.
  std::optional<mesh::Mesh> mesh = {};
  // kParameters over a network: a unit's weights leave behind its forward and come again for its backward. False: they
  // stay until its backward is over, which saves the second gather and costs the memory of the weights.
  bool reshard_after_forward = true;
  // Between both: each group of so many ranks that follow each other, as those of one machine, keeps a unit among them,
  // so its weights come again from these alone. Costs 1/reshard_to of the memory of the weights. 2 or more, of which
  // the ranks that divide are a multiple; one rank alone divides nothing. 0: no group does.
  int reshard_to = 0;
  // kParameters over a network: the type in which fp32 weights travel to the units that compute with them,
  // at::kBFloat16 or at::kHalf. Forward and backward see them rounded; shares, steps and checkpoints stay fp32, and
  // gather_weights() gathers these. Half the bytes; made for autocast (nn/autocast.h), which rounds the weights of
  // products all the same. On one machine nothing travels, and nothing is rounded. None: as they are.
  std::optional<c10::ScalarType> gather_type = {};
  // The same for fp32 gradients that ranks divide (kGradients over a network, kParameters): rounded once before they
  // travel; added in fp32, of which the mean is rounded again. None: as they are.
  std::optional<c10::ScalarType> reduce_type = {};
  // The first n - 1 of every n backwards only add up, as under no_sync(); the n-th averages. At least 1.
  std::int64_t backwards_per_reduction = 1;
  // Ranks compare some of their weights in every step's first exchange, where these must be the same; a difference is
  // an Error (81) in the backward behind the step in which it arose, on all ranks. Found so are optimizers that decide
  // by this rank's loss, and whatever else one rank does otherwise. 2 to 14 microseconds a step. Not under a Join,
  // nor where weights are in one memory, in shares, or on a disk.
  bool compare_weights = true;
  // LibTorch computes with this rank's share of the machine's processors (tensor/compute_threads.h) where it would
  // take all of them: a number of OMP_NUM_THREADS, MKL_NUM_THREADS or at::set_num_threads() stays. False: with what
  // at::get_num_threads() is.
  bool share_cores = true;
};

}  // namespace reigen::parallel
