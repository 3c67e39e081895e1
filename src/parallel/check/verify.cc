#include "reigen/parallel/verify.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <utility>
#include <vector>

#include "parallel/check/difference.h"
#include "reigen/base/error.h"
#include "reigen/format/hash.h"
#include "reigen/tensor/flat_parameters.h"

namespace reigen::parallel {
namespace {

using Parameters = std::vector<tensor::NamedParameter>;
using Tensors = std::vector<at::Tensor>;

Parameters trainable_of(const torch::nn::Module& model) {
  Parameters result;
  for (const tensor::NamedParameter& entry : tensor::named_parameters(model)) {
    if (entry.parameter.requires_grad()) result.push_back(entry);
  }
  return result;
}

// Copies the model's parameters and buffers. restore() and the destructor write the copies back.
class Memory {
 public:
  explicit Memory(torch::nn::Module& model) : model_(model) {
    for (const at::Tensor& tensor : everything()) values_.push_back(tensor.detach().clone());
  }
  ~Memory() { restore(); }
  Memory(const Memory&) = delete;  // only one object may restore the model
  Memory& operator=(const Memory&) = delete;

  void restore() {
    const at::NoGradGuard no_grad;
    const Tensors now = everything();
    for (std::size_t i = 0; i < now.size(); ++i) at::Tensor(now[i]).copy_(values_[i]);
    for (at::Tensor& parameter : model_.parameters()) parameter.mutable_grad() = at::Tensor();
  }

 private:
  Tensors everything() const {
    Tensors all = model_.parameters();
    const Tensors buffers = model_.buffers();
    all.insert(all.end(), buffers.begin(), buffers.end());
    return all;
  }
  torch::nn::Module& model_;
  Tensors values_;
};

// The gradients of a step, and the values of the parameters after the step.
struct Snapshot {
  Tensors gradients;
  Tensors values;
};

Snapshot step(const Parameters& parameters, double lr) {
  const at::NoGradGuard no_grad;
  Snapshot result;
  for (const tensor::NamedParameter& entry : parameters) {
    at::Tensor parameter = entry.parameter;
    const at::Tensor gradient = parameter.grad();
    if (gradient.defined()) parameter.sub_(gradient, lr);
    result.gradients.push_back(gradient.defined() ? gradient.to_dense().clone() : at::Tensor());
    result.values.push_back(parameter.detach().clone());
    parameter.mutable_grad() = at::Tensor();
  }
  return result;
}

// The result of one rank, in the form in which ranks exchange it.
struct Finding {
  std::int64_t step = 0;  // the first step with a difference; 0 means that there is none
  std::int64_t parameter = 0;
  std::int64_t is_value = 0;  // 1: the parameter's value differs; 0: its gradient differs
  double alone = 0;
  double in_parallel = 0;
  double largest = 0;
};

void compare(const Snapshot& alone, const Snapshot& in_parallel, int step, double tolerance, Finding& finding) {
  for (const bool values : {false, true}) {
    const Tensors& a = values ? alone.values : alone.gradients;
    const Tensors& b = values ? in_parallel.values : in_parallel.gradients;
    for (std::size_t i = 0; i < a.size(); ++i) {
      const Difference found = difference_of(a[i], b[i]);
      finding.largest = std::max(finding.largest, found.relative);
      if (found.relative <= tolerance || finding.step != 0) continue;
      finding = {step, static_cast<std::int64_t>(i), values ? 1 : 0, found.alone, found.in_parallel, finding.largest};
    }
  }
}

std::int64_t rows_of(const at::Tensor& tensor) { return tensor.dim() < 1 ? 0 : tensor.size(0); }

Tensors rows(const Tensors& tensors, std::int64_t begin, std::int64_t count) {
  Tensors result;
  for (const at::Tensor& tensor : tensors) result.push_back(tensor.narrow(0, begin, count));
  return result;
}

void check_batch(const Communicator& world, const Tensors& inputs, const Tensors& targets) {
  const auto refuse = [](const std::string& what, const std::string& got, const std::string& expected) {
    throw InvalidArgument(Report{.what = "[verify] " + what,
                                 .got = got,
                                 .expected = expected,
                                 .fix = "give every rank the same whole batch, not its share"});
  };
  std::uint64_t mine[2] = {0, 0};
  Tensors both = inputs;
  both.insert(both.end(), targets.begin(), targets.end());
  for (const at::Tensor& tensor : both) {
    if (tensor.dim() < 1 || !tensor.device().is_cpu()) continue;
    const at::Tensor dense = tensor.contiguous();
    mine[0] = mine[0] * 31 + format::hash64(dense.const_data_ptr(), dense.nbytes());
  }
  const std::int64_t samples = inputs.empty() ? 0 : rows_of(inputs.front());
  mine[1] = static_cast<std::uint64_t>(samples);
  std::vector<std::uint64_t> all(2 * static_cast<std::size_t>(world.size()));
  world.all_gather(mine, all.data(), 2, DataType::kInt64, {.tag = "batches to verify with"});
  for (std::size_t rank = 0; rank < all.size() / 2; ++rank) {
    if (all[2 * rank] != all[0] || all[2 * rank + 1] != all[1]) {
      refuse("the batches differ between ranks", fmt::format("another batch on rank {} than on rank 0", rank),
             "the same batch");
    }
  }
  if (samples < world.size()) {
    refuse("the batch cannot be shared out", fmt::format("{} samples", samples),
           fmt::format("at least {}", world.size()));
  }
  for (const at::Tensor& tensor : both) {
    if (rows_of(tensor) == samples) continue;
    refuse("the batch cannot be shared out", fmt::format("{} samples with {} targets", samples, rows_of(tensor)),
           fmt::format("as many targets as samples, and at least {}", world.size()));
  }
}

// Computes the loss. Before any rank runs backward, all ranks agree that no rank's forward threw. Otherwise the other
// ranks would wait for the gradients of the rank that threw.
at::Tensor agreed_loss(const Communicator& world, const VerifyLossOfSeveral& loss, const Tensors& inputs,
                       const Tensors& targets) {
  at::Tensor result;
  std::exception_ptr own;
  try {
    result = loss(inputs, targets);
  } catch (...) {
    own = std::current_exception();
  }
  std::int32_t failed = own ? world.rank() + 1 : 0;
  world.all_reduce(&failed, &failed, 1, DataType::kInt32, ReduceOp::kMax, {.tag = "whose loss threw"});
  if (own) std::rethrow_exception(own);
  if (failed == 0) return result;
  throw InvalidArgument(Report{.what = fmt::format("[verify] the loss threw on rank {}", failed - 1),
                               .expected = "a loss on every rank",
                               .fix = "look at that rank's error"});
}

std::string text_of(const VerifyReport& report, int steps) {
  if (report.same) {
    return fmt::format("the same after {} steps, to {:.1e}", steps, report.largest);
  }
  return fmt::format("step {}: the {} of {} differs on rank {}: {:.9g} in parallel, {:.9g} alone", report.step,
                     report.what, report.parameter, report.rank, report.in_parallel, report.alone);
}

}  // namespace

VerifyReport verify(torch::nn::Module& model, const Communicator& communicator, const VerifyLoss& loss,
                    const at::Tensor& input, const at::Tensor& target, const VerifyOptions& options) {
  const auto of_two = [&](const Tensors& inputs, const Tensors& targets) { return loss(inputs[0], targets[0]); };
  return verify(model, communicator, of_two, Tensors{input}, Tensors{target}, options);
}

VerifyReport verify(torch::nn::Module& model, const Communicator& communicator, const VerifyLossOfSeveral& loss,
                    const Tensors& inputs, const Tensors& targets, const VerifyOptions& options) {
  Communicator world = communicator;
  if (options.steps < 1 || !(options.lr > 0) || !(options.tolerance >= 0)) {
    throw InvalidArgument(
        Report{.what = "[verify] an option is out of range",
               .got = fmt::format("steps {}, lr {}, tolerance {}", options.steps, options.lr, options.tolerance),
               .expected = "steps at least 1, lr above 0, tolerance at least 0"});
  }
  check_batch(world, inputs, targets);
  if (options.parallel.shard != Shard::kNone) {
    throw InvalidArgument(Report{.what = "[verify] ranks that share weights (shard) cannot each train alone",
                                 .got = fmt::format("shard {}", to_text(options.parallel.shard)),
                                 .expected = "shard none, whose bits are those of the others",
                                 .fix = "leave shard out"});
  }
  const at::ScalarType type = model.parameters().empty() ? at::kFloat : model.parameters().front().scalar_type();
  const double tolerance = options.tolerance > 0 ? options.tolerance : default_tolerance(type);

  // Wrapping gives all ranks the values of rank 0. Both the run alone and the run in parallel begin with these values.
  DataParallelBase parallel(model, world, options.parallel);
  const Parameters parameters = trainable_of(model);
  Memory start(model);
  std::vector<Snapshot> alone;
  start.restore();
  {
    const auto without_others = parallel.no_sync();
    for (int i = 0; i < options.steps; ++i) {
      agreed_loss(world, loss, inputs, targets).backward();
      alone.push_back(step(parameters, options.lr));
    }
  }
  start.restore();
  Finding mine;
  const std::int64_t size = world.size();
  const std::int64_t samples = inputs.front().size(0);
  const std::int64_t begin = samples * world.rank() / size;
  const std::int64_t count = samples * (world.rank() + 1) / size - begin;
  for (int i = 0; i < options.steps; ++i) {
    parallel.prepare_forward();
    // The mean over all samples is the mean of the ranks' means, each weighted by its number of samples.
    const double weight = static_cast<double>(count * size) / static_cast<double>(samples);
    const at::Tensor mean = agreed_loss(world, loss, rows(inputs, begin, count), rows(targets, begin, count));
    (mean * weight).backward();
    const Snapshot now = step(parameters, options.lr);
    parallel.after_step();
    compare(alone[static_cast<std::size_t>(i)], now, i + 1, tolerance, mine);
  }
  parallel.settle();  // applies changes of weights that are still in flight

  std::vector<Finding> all(static_cast<std::size_t>(size));
  world.all_gather(&mine, all.data(), sizeof mine, DataType::kUint8, {.tag = "what was verified"});
  VerifyReport report;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const Finding& one = all[rank];
    report.largest = std::max(report.largest, one.largest);
    if (one.step == 0 || (!report.same && report.step <= one.step)) continue;
    report.same = false;
    report.step = static_cast<int>(one.step);
    report.what = one.is_value != 0 ? "value" : "gradient";
    report.parameter = parameters[static_cast<std::size_t>(one.parameter)].name;
    report.rank = static_cast<int>(rank);
    report.alone = one.alone;
    report.in_parallel = one.in_parallel;
  }
  report.text = text_of(report, options.steps);
  return report;
}

}  // namespace reigen::parallel
