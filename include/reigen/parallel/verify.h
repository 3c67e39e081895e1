// Checks whether a model trains in parallel as it trains on one rank. verify() makes a few steps in both ways and
// compares every parameter.
//
//   const auto loss = [&](const at::Tensor& x, const at::Tensor& y) { return torch::mse_loss(model->forward(x), y); };
//   const auto report = reigen::verify(*model, world, loss, input, target);
//   if (!report.same) std::cerr << report.text << '\n';
//
// Every rank passes the same whole batch of B samples (in the first dimension), with at least one sample per rank.
// Alone: every rank makes `steps` steps of plain SGD with the whole batch. In parallel: each of the P ranks makes the
// same steps with data_parallel() and its own B/P samples; B need not be a multiple of P. Gradients and values are
// compared after every step. The usual causes of a difference are batch normalisation (the statistics of a part of the
// batch are not those of the whole batch; use SyncBatchNorm), a loss that is a sum and not a mean, dropout, and other
// layers that are random or depend on earlier batches.
//
// Afterwards the model has the values and buffers that rank 0 began with, has no gradients, and is not wrapped.
// Collective and blocking; the cost is a broadcast of the model, two times `steps` forwards and backwards, and an
// all_gather of the results.
//
// Errors: when the loss throws on a rank, this rank rethrows the exception, and the other ranks throw InvalidArgument
// with the number of this rank. Also throws InvalidArgument for options out of range, for an options.parallel whose
// .shard is not kNone, for batches that differ between ranks or have fewer samples than there are ranks, and where
// data_parallel() throws it.
// Thread rule: as data_parallel().
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "reigen/comm/communicator.h"
#include "reigen/parallel/data_parallel.h"

namespace reigen::parallel {

struct VerifyOptions {
  int steps = 3;  // at least 1
  double lr = 1e-2;
  // The largest difference that counts as rounding, relative to the largest magnitude of the parameter's values or
  // gradients, or to 1e-3 if that is larger. 0 means 1e-9 for fp64, 1e-4 for fp32, 2e-2 for 16 bits.
  double tolerance = 0;
  DataParallelOptions parallel = {};
};

struct VerifyReport {
  bool same = true;
  // The first difference, on the first rank that found it: the step counted from 1, "gradient" or "value", the
  // parameter.
  int step = 0;
  std::string what = {};
  std::string parameter = {};
  int rank = 0;
  double alone = 0;        // the element that differs most: its value when each rank trained alone
  double in_parallel = 0;  // the value of the same element in parallel training
  double largest = 0;      // the largest of all differences, relative as `tolerance` is
  std::string text = {};   // one line for people, the same on every rank
};

using VerifyLoss = std::function<at::Tensor(const at::Tensor& input, const at::Tensor& target)>;

VerifyReport verify(torch::nn::Module& model, const Communicator& world, const VerifyLoss& loss,
                    const at::Tensor& input, const at::Tensor& target, const VerifyOptions& options = {});

// The same for samples of several tensors, each with B rows.
using VerifyLossOfSeveral =
    std::function<at::Tensor(const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& targets)>;

VerifyReport verify(torch::nn::Module& model, const Communicator& world, const VerifyLossOfSeveral& loss,
                    const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& targets,
                    const VerifyOptions& options = {});

}  // namespace reigen::parallel

namespace reigen {
using parallel::verify;
}  // namespace reigen
