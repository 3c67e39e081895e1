// Does my model train in parallel as it does alone? A few steps both ways, compared parameter by parameter.
//
//   const auto loss = [&](const at::Tensor& x, const at::Tensor& y) { return torch::mse_loss(model->forward(x), y); };
//   const auto report = reigen::verify(*model, world, loss, input, target);
//   if (!report.same) std::cerr << report.text << '\n';
//
// Every rank gives the same whole batch of B samples (first dimension), at least one a rank. Alone: every rank takes
// `steps` steps of plain SGD with the whole batch. In parallel: with data_parallel() and its own B/P samples, shared
// out with any remainder. After every step gradients and values are compared. What usually differs, and why: batch
// normalisation (statistics of a part are not those of the whole: SyncBatchNorm), a loss that is a sum and not a mean,
// dropout, and anything random or that remembers the batches before.
//
// The model has its values, buffers and no gradients afterwards, and is not wrapped. Collective and blocking: a
// broadcast of the model, two times `steps` forwards and backwards, an all_gather of the findings.
//
// Errors: what the loss throws, on its rank, and an InvalidArgument naming that rank on the others; InvalidArgument for
// options out of range, for batches that differ between ranks or have fewer samples than ranks, and
// as data_parallel(). Thread rule: as data_parallel().
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
  // Largest difference that counts as rounding, beside the largest magnitude of the parameter's values or gradients
  // (of what is smaller than 1e-3: beside that). 0: 1e-9 for fp64, 1e-4 for fp32, 2e-2 for 16 bits.
  double tolerance = 0;
  DataParallelOptions parallel = {};
};

struct VerifyReport {
  bool same = true;
  // Where it began to differ, on the first rank that saw it: the step from 1, "gradient" or "value", and the parameter.
  int step = 0;
  std::string what = {};
  std::string parameter = {};
  int rank = 0;
  double alone = 0;        // the element with the largest difference
  double in_parallel = 0;  // the same
  double largest = 0;      // difference of all that were compared, relative as the tolerance
  std::string text = {};   // for people: one line, the same on every rank
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
