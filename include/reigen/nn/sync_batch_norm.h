// Batch normalisation over the global batch, which consists of the batches of all ranks. The statistics are those that
// one process would compute on the global batch.
//
//   auto statistics = world.split(0).value();                       // a separate group, for all layers of the model
//   register_module("norm", reigen::nn::SyncBatchNorm(64, statistics));
//
// x has the shape [batch, C, ...], c is a channel, and N is the number of values of a channel on all ranks together:
//   training:   y = (x - mean_c) / sqrt(var_c + eps) · weight_c + bias_c,  mean and (biased) variance over the N
//               running = (1 - momentum) · running + momentum · batch's mean or unbiased variance (N - 1)
//   evaluation: the same y with the running statistics, or without track_running_stats with the statistics of this
//               rank's batch; no communication
// Every rank combines the ranks' means and squares in rank order and in fp64, so every rank gets the same bits. A rank
// may have an empty batch.
//
// Every rank must call the same layers in the same order, in forward and in backward. A rank sends 2C + 1 numbers in a
// layer's forward and 2C numbers in its backward. The order of these calls relative to data_parallel()'s calls may
// differ between ranks, so the layers need a separate group. The gradients of weight and bias contain only this rank's
// part. data_parallel() averages them like the other gradients.
//
// In training mode there are no second derivatives, not even on one rank. A backward with create_graph gives the same
// bits as one without, but the backward of its result throws InvalidArgument. For gradient penalties use
// torch::nn::BatchNorm. In evaluation mode LibTorch computes second derivatives.
//
// reigen.h does not include this header. This header needs the headers of all modules of torch::nn, which take 20 s to
// compile. A program that includes <torch/torch.h> compiles these headers anyway; other programs should not have to.
//
// After Ioffe and Szegedy, https://arxiv.org/abs/1502.03167. The ranks' statistics are combined as in Chan et al.,
// 1979.
// Thread rule: one thread at a time may use a layer.
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <optional>

#include "reigen/comm/communicator.h"
#include "reigen/nn/stand_in.h"

namespace reigen::nn {

struct SyncBatchNormOptions {
  std::int64_t features = 0;             // C
  double eps = 1e-5;                     // at least 0
  std::optional<double> momentum = 0.1;  // in [0, 1]; if not set, the running statistics are the mean over all batches
  bool affine = true;                    // true: the layer has weight and bias
  bool track_running_stats = true;
};

class SyncBatchNormImpl : public torch::nn::Module {
 public:
  // `ranks` is the group whose ranks combine their statistics. Throws InvalidArgument for options out of range.
  SyncBatchNormImpl(const SyncBatchNormOptions& options, Communicator ranks);
  SyncBatchNormImpl(std::int64_t features, Communicator ranks)
      : SyncBatchNormImpl(SyncBatchNormOptions{.features = features}, std::move(ranks)) {}

  // Throws InvalidArgument unless `input` has 2 to 5 dimensions and C channels. In training mode also throws
  // InvalidArgument if all ranks together have fewer than two values per channel.
  at::Tensor forward(const at::Tensor& input);

  // The names are those of torch::nn::BatchNorm, so that checkpoints of both layers are interchangeable. Without the
  // option affine, weight and bias are undefined. Without the option track_running_stats, running_mean, running_var and
  // num_batches_tracked are undefined.
  at::Tensor weight;
  at::Tensor bias;
  at::Tensor running_mean;
  at::Tensor running_var;
  at::Tensor num_batches_tracked;

 private:
  SyncBatchNormOptions options_;
  Communicator ranks_;
};
TORCH_MODULE(SyncBatchNorm);

}  // namespace reigen::nn
