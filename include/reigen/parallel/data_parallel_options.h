// The options of data_parallel(): how the ranks exchange gradients, and which data they shard.
//
// Memory and communication in bytes, for a model of N parameters with AdamW in fp32, on P ranks over a network:
//
//               a rank holds               a rank sends in a step
//   kNone        16·N                       8·N·(P-1)/P
//   kOptimizer    8·N +  8·N/P             12·N·(P-1)/P
//   kGradients    4·N + 12·N/P              8·N·(P-1)/P
//   kParameters        16·N/P              4·(1 + 2·m)·N·(P-1)/P for m micro-batches
//
// With kParameters a rank also needs memory for the weights and gradients of two units (parts of the model) while it
// computes. On one machine no network is used, and all ranks together hold 16·P·N (kNone), 12·N + 4·P·N (kOptimizer and
// kGradients each) or 16·N (kParameters).
//
// After Rajbhandari et al., ZeRO, https://arxiv.org/abs/1910.02054; Zhao et al., PyTorch FSDP,
// https://arxiv.org/abs/2304.11277
// Thread rule: these types are values; every thread may have its own copy.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "reigen/layout/choose.h"
#include "reigen/mesh/mesh.h"
#include "reigen/nn/unit.h"
#include "reigen/parallel/context_parallel.h"
#include "reigen/parallel/pipeline.h"
#include "reigen/parallel/strategy.h"
#include "reigen/parallel/tensor_parallel.h"

namespace reigen::parallel {

// What happens to a model's buffers (batch statistics) in training mode, before every forward whose backward averages
// gradients.
enum class BufferPolicy {
  kBroadcast,  // every rank takes rank 0's buffers, as in PyTorch
  kAverage,    // every rank takes the mean over the ranks; of integer buffers it takes rank 0's values
  kOwn,        // each rank keeps its own buffers, until settle() sets them to rank 0's
};

// Says which data are divided among the ranks, so that each rank holds only its share. Each rank holds all other data
// whole. Training gives the same bits with every choice. In this file "on one machine" means that the ranks can share
// memory and the model is on the CPU. "Over a network" means every other case, also several GPUs in one machine.
//
// kNone: each rank holds all data whole.
//
// kOptimizer, ZeRO stage 1: each rank has the optimizer states for its share of the weights, and its optimizer steps
// only this share. On one machine all ranks use one copy of the weights and states in shared memory, so nothing is
// gathered. Over a network a step ends with an all_gather of the weights. kOptimizer needs an optimizer of
// reigen::optim; its step() then waits for all ranks. If other code changes weights in shared memory, all ranks must
// call ParameterRange::note_change() afterwards.
//
// kGradients, ZeRO stage 2: as kOptimizer, and gradients are sharded too. On one machine gradients are not sent. Each
// rank's gradients lie in memory that all ranks can read. In its optimizer step each rank reads all ranks' gradients of
// its own share, and averages them. On one machine kGradients takes as much memory as kOptimizer. `.grad` remains this
// rank's own gradient. Only a gradient norm or clipping (optim/clip.h) replaces this rank's share of `.grad` by the
// mean. Drop or zero `.grad` before the next backward. Over a network gradients are treated as with kParameters.
// kGradients cannot be combined with a strategy.
//
// kParameters, ZeRO stage 3: as kGradients, and weights are sharded too. On one machine all ranks use one copy of the
// weights, as with kOptimizer. Over a network each rank holds its share of the weights. The weights of a unit
// (DataParallelOptions::units) are gathered while the unit runs. Gradients are averaged one unit at a time. A unit's
// gradients take memory only from backward until they are averaged. After that each rank keeps its share of the mean.
// `.grad` is then a tensor without values (of LibTorch's device meta), and only shows that a gradient exists.
// kParameters cannot be combined with a strategy.
using Shard = layout::Sharding;
using layout::to_text;  // to_text(Shard): "none", "optimizer", "gradients", "parameters"

struct DataParallelOptions {
  // The size of a bucket in MiB. With 0 every parameter is a bucket. Small buckets start earlier, large buckets cost
  // less per byte. The first bucket is about 1 MiB, so that communication starts early. If the other gradients fit into
  // bucket_mb, they are one bucket. Otherwise the second bucket has the size bucket_mb. After it, each bucket takes
  // half of the remaining gradients, but at least 1 MiB. So the last buckets are small, and backward waits for little
  // at its end. After the first backward the gradients are divided into buckets again, in the order in which they
  // became ready on rank 0.
  double bucket_mb = 25;
  // True: buckets are sent while backward runs. False: after backward, one all_reduce for each element type sends all
  // gradients. Both values give the same bits. Which is faster depends on the machine.
  bool overlap = true;
  // How the ranks' gradients or weights are combined (strategies.h). If it is not set, data_parallel() uses plain().
  StrategyFactory strategy = {};
  BufferPolicy buffers = BufferPolicy::kBroadcast;
  Shard shard = Shard::kNone;
  // The units, which are parts of the model. With kParameters over a network, weights are gathered one unit at a time.
  // With kParameters, and with kGradients over a network, gradients are averaged one unit at a time. The model's
  // forward must run the units with nn::call(). If `units` is empty, data_parallel() uses the result of the model's
  // function units(). If the model has no such function, groups of parameters take the place of units. A group is about
  // bucket_mb of parameters that follow each other in the model. All groups remain gathered from the first forward to
  // the step.
  std::vector<nn::Unit> units = {};
  // For several optimizers, each of which steps a part of the parameters: a list of patterns for each optimizer. In a
  // pattern `*` matches any text, and `?` any character. A parameter belongs to the first list with a pattern that
  // matches one of its names, or to none. Parameters of different lists never lie in one range, so
  // DataParallelBase::parameters(patterns) can return those of one list.
  std::vector<std::vector<std::string>> optimizers = {};
  // A directory on a disk. If it is set, optimizer states and sharded weights are unnamed files in this directory. The
  // kernel caches as much of the files in memory as there is room for. As long as the files fit into memory, they are
  // as fast as memory. If they do not fit, they are as slow as the disk. If `offload` is empty, the data are in memory.
  // If the model is on a GPU, the only other value is "pinned": optimizer states are then in pinned memory of the host,
  // and the optimizer's kernel reads and writes them over the bus in each step. Weights remain on the GPU.
  std::filesystem::path offload = {};
  // A function that sets the values of all parameters and buffers that have memory at the time of the call. It must set
  // each of them independently of the others. It runs in no-grad mode. A model that was created without memory
  // (nn/without_memory.h) needs this function. data_parallel() calls the function on every rank, and then again on only
  // some of the ranks, so it must not call collectives. With kParameters over a network these later calls are one call
  // for each parameter. All ranks take rank 0's values.
  std::function<void()> initialize = {};
  // Hybrid sharding: the data are divided among the ranks along the mesh axis dp_shard. Ranks that differ only along
  // the axis dp_replicate hold the same share. Gradients of a share are averaged first along dp_shard, and then along
  // dp_replicate. The mesh must cover all ranks. It is best to place each row of the mesh on one machine (mesh.h). If
  // `mesh` is not set, the data are divided among all ranks.
  std::optional<mesh::Mesh> mesh = {};
  // Tensor parallelism: the model's weights are divided by parallelize() (tensor_parallel.h). `world` has all ranks of
  // its mesh. Data parallelism then acts along the axes dp_replicate and dp_shard only, and `mesh` need not be set.
  TensorParallel tensor_parallel = {};
  // Pipeline parallelism: pipeline() (pipeline.h) has divided the model into stages. `world` has all ranks of its mesh,
  // which must be that of tensor_parallel. Each rank wraps the parameters of its own stages, and data parallelism acts
  // along the axes dp_replicate and dp_shard only. Pipeline::step() takes the place of forward and backward.
  Pipeline pipeline = {};
  // Context parallelism: ranks along its axis divide each sequence (context_parallel.h). They hold the same weights, so
  // gradients are averaged over them too. `world` has all ranks of its mesh, which must be that of the others.
  ContextParallel context_parallel = {};
  // For kParameters over a network. True: a unit's weights are freed after its forward and gathered again for its
  // backward. False: a unit's weights remain gathered until its backward is over. This saves the second gather, and
  // takes memory for all weights.
  bool reshard_after_forward = true;
  // A compromise between the two values of reshard_after_forward. After a unit's forward, each group of `reshard_to`
  // consecutive ranks (for example the ranks of one machine) keeps the unit's weights, sharded among the ranks of the
  // group. So the gather for backward is a call within the group. On each rank this takes 1/reshard_to of the memory of
  // all weights. It needs reshard_after_forward = true. `reshard_to` must be 2 or more, and the number of ranks among
  // which weights are divided must be 1 or a multiple of `reshard_to`. 0 means that no group keeps weights.
  int reshard_to = 0;
  // For kParameters over a network: the type in which fp32 weights are sent when a unit is gathered, at::kBFloat16 or
  // at::kHalf. Forward and backward then compute with rounded weights. Each rank's share of the weights, the
  // optimizer's steps and checkpoints remain fp32. gather_weights() gathers the fp32 values. This option halves the
  // bytes that are sent. It is made for autocast (nn/autocast.h), which rounds the weights of matrix products anyway.
  // On one machine weights are not sent, so nothing is rounded. If it is not set, weights are sent in their own type.
  std::optional<c10::ScalarType> gather_type = {};
  // The type in which fp32 gradients are sent if ranks send each other shares of them (kParameters, or kGradients over
  // a network). Gradients are rounded before they are sent. They are added in fp32, and the mean is rounded again. If
  // it is not set, gradients are sent in their own type.
  std::optional<c10::ScalarType> reduce_type = {};
  // With the value n, the first n - 1 of every n backwards only add up this rank's gradients, as under no_sync(). The
  // n-th backward averages the sum. n is at least 1.
  std::int64_t backwards_per_reduction = 1;
  // True: in every step's first exchange of gradients the ranks compare a sample of their weights, which must be equal.
  // If the samples differ, all ranks throw an Error (exit code 81). They throw it in the backward after the step in
  // which the difference arose. The comparison finds optimizers that decide by the loss of one rank, and every other
  // action that differs between ranks. It costs 2 to 14 microseconds a step. Ranks compare nothing while a Join
  // (join.h) lives, or with a strategy that acts on weights. They also compare nothing if the weights are in shared
  // memory, sharded, on a GPU, or on a disk.
  bool compare_weights = true;
  // True: if LibTorch would use all processors of the machine, it uses only this rank's share of them
  // (tensor/compute_threads.h). A number of threads that the program set by at::set_num_threads() does not change. A
  // number from OMP_NUM_THREADS or MKL_NUM_THREADS changes only if several ranks are threads of one process; they
  // divide it among themselves. False: LibTorch's number of threads never changes.
  bool share_cores = true;
};

}  // namespace reigen::parallel
