// Checks whether training in parallel gives the same weights as training on one rank. verify() makes a few steps in
// both ways and compares every parameter.
//
//   const auto loss = [&](const at::Tensor& x, const at::Tensor& y) { return torch::mse_loss(model->forward(x), y); };
//   const auto report = reigen::verify(*model, world, loss, input, target);
//   if (!report.same) std::cerr << report.text << '\n';
//
// Every rank passes the same whole batch of B samples (in the first dimension), with at least one sample per rank.
// First every rank trains alone: it makes `steps` steps of plain SGD with the whole batch. Then the P ranks train in
// parallel: each rank makes the same number of steps with data_parallel() and its own B/P samples. B need not be a
// multiple of P. verify() compares the gradients and values of every step. The usual causes of a difference are:
// - batch normalisation, because the statistics of a part of the batch are not those of the whole batch (use
//   SyncBatchNorm),
// - a loss that is a sum and not a mean,
// - dropout, and other layers that are random or depend on earlier batches.
//
// After verify() the model has the parameters and buffers that rank 0's model had before. It has no gradients, and it
// is not wrapped. Collective and blocking. Cost: a broadcast of the model, 2 · `steps` forwards and backwards, and an
// all_gather of the results.
//
// Errors: if the loss function throws on a rank, verify() rethrows the exception on this rank. On the other ranks it
// throws InvalidArgument with the number of this rank. It also throws InvalidArgument for options out of range, if
// options.parallel.shard is not kNone, if the batches differ between ranks or have fewer samples than there are ranks,
// and in all cases in which data_parallel() throws InvalidArgument.
// Thread rule: only the thread that runs backward may call verify().
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
  // The largest relative difference that counts as rounding. A difference between two gradients (or two values) of a
  // parameter is divided by the largest magnitude in that gradient (or value), but at least by 1e-3. 0 means 1e-9 for
  // fp64, 1e-4 for fp32 and 2e-2 for 16-bit types.
  double tolerance = 0;
  DataParallelOptions parallel = {};
};

struct VerifyReport {
  bool same = true;
  // `step`, `what`, `parameter` and `rank` say where the first difference is: the step (counted from 1), whether a
  // "gradient" or a "value" differs, the name of the parameter, and the lowest rank that found this difference.
  int step = 0;
  std::string what = {};
  std::string parameter = {};
  int rank = 0;
  double alone = 0;        // the element that differs most, as it is when the rank trains alone
  double in_parallel = 0;  // the same element, as it is when the ranks train in parallel
  double largest = 0;      // the largest of all relative differences (see `tolerance`)
  std::string text = {};   // one line for people, the same on every rank
};

using VerifyLoss = std::function<at::Tensor(const at::Tensor& input, const at::Tensor& target)>;

VerifyReport verify(torch::nn::Module& model, const Communicator& world, const VerifyLoss& loss,
                    const at::Tensor& input, const at::Tensor& target, const VerifyOptions& options = {});

// The same as verify() above, for samples that consist of several tensors. Each of these tensors has B rows.
using VerifyLossOfSeveral =
    std::function<at::Tensor(const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& targets)>;

VerifyReport verify(torch::nn::Module& model, const Communicator& world, const VerifyLossOfSeveral& loss,
                    const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& targets,
                    const VerifyOptions& options = {});

}  // namespace reigen::parallel

namespace reigen {
using parallel::verify;
}  // namespace reigen
