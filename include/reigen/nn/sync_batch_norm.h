// Batch normalisation over the batch of all ranks. Its statistics are those that one process would compute on the
// global batch.
//
//   auto statistics = world.split(0).value();                       // a group of its own, for all layers of the model
//   register_module("norm", reigen::nn::SyncBatchNorm(64, statistics));
//
// x has the shape [batch, C, ...], c is a channel, and N the number of values of a channel on all ranks together:
//   training:   y = (x - mean_c) / sqrt(var_c + eps) · weight_c + bias_c,  mean and (biased) variance over the N
//               running = (1 - momentum) · running + momentum · batch's mean or unbiased variance (N - 1)
//   evaluation: the same with the running statistics, or with those of this rank's batch where none are kept; no
//               communication
// Means and squares are combined in rank order in fp64: every rank gets the same bits. A rank may have no sample.
//
// Every rank calls the same layers in the same order, in forward and in backward. A forward sends 2C + 1 numbers, a
// backward 2C. The order of these calls is independent of the order of data_parallel's calls, so the layers need a
// group of their own. weight and bias get this rank's part of the gradient, and data_parallel averages it like the
// other gradients.
//
// There are no second derivatives in training, not even on one rank: a backward with create_graph gives the same bits,
// but differentiating its result throws InvalidArgument (for gradient penalties use torch::nn::BatchNorm). In
// evaluation the second derivatives are LibTorch's.
//
// reigen.h does not include this header, because a module of torch::nn needs the headers of all modules: 20 s of
// compilation. A program that includes <torch/torch.h> compiles them anyway; other programs need not.
//
// After Ioffe and Szegedy, https://arxiv.org/abs/1502.03167. The ranks' statistics are combined as in Chan et al.,
// 1979.
// Thread rule: one thread at a time.
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
  std::optional<double> momentum = 0.1;  // in [0, 1]; not set: the running statistics are the mean over all batches
  bool affine = true;                    // true: the layer has weight and bias
  bool track_running_stats = true;
};

class SyncBatchNormImpl : public torch::nn::Module {
 public:
  // `ranks`: the group whose ranks combine their statistics. Throws InvalidArgument for options out of range.
  SyncBatchNormImpl(const SyncBatchNormOptions& options, Communicator ranks);
  SyncBatchNormImpl(std::int64_t features, Communicator ranks)
      : SyncBatchNormImpl(SyncBatchNormOptions{.features = features}, std::move(ranks)) {}

  // Throws InvalidArgument unless the input has 2 to 5 dimensions and C channels, and, in training, when all ranks
  // together have fewer than two values per channel.
  at::Tensor forward(const at::Tensor& input);

  // The names are those of torch::nn::BatchNorm, so that checkpoints fit. Without affine the first two are undefined;
  // without track_running_stats the others are.
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
