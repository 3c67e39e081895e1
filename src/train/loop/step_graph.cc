#include "train/loop/step_graph.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <utility>

#include "reigen/base/error.h"
#include "train/model/micro_batch.h"
#include "train/run/failure.h"

namespace reigen::train {

namespace {

// In the first steps libraries make their handles and choose their algorithms, which a capture forbids.
constexpr std::int64_t kStepsBefore = 3;

InvalidArgument refused(const std::string& what, const std::string& got, const std::string& expected,
                        const std::string& fix) {
  InvalidArgument error(Report{.what = what, .got = got, .expected = expected, .fix = fix});
  error.mark_common();
  return error;
}

// Whether the graph can read `from` from the memory of `to`.
bool are_alike(const std::vector<at::Tensor>& to, const std::vector<at::Tensor>& from) {
  return std::equal(to.begin(), to.end(), from.begin(), from.end(), [](const at::Tensor& a, const at::Tensor& b) {
    return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() && b.layout() == at::kStrided;
  });
}

}  // namespace

void StepGraph::require_possible() const {
  if (!is_wanted()) return;
  if (run_.device.is_cpu()) {
    throw refused("train.graph step is for a model on a GPU", "a model on the CPU", "train.device cuda",
                  "set train.device, or leave train.graph out");
  }
  if (run_.world.size() > 1) {
    throw refused("train.graph step is for one rank", fmt::format("{} ranks", run_.world.size()), "one rank",
                  "leave train.graph out: calls between ranks cannot be captured yet");
  }
  static_cast<void>(tensor::graph_calls());  // a missing plug-in is told before the run begins
}

namespace {

std::vector<at::Tensor> tensors_of(const data::Samples& samples) {
  std::vector<at::Tensor> tensors;
  samples.for_each([&](std::string_view, const at::Tensor& one) { tensors.push_back(one); });
  return tensors;
}

// While it lives, what the task logs belongs to no step.
class Apart {
 public:
  explicit Apart(Metrics& metrics) : metrics_(metrics) { std::swap(metrics_, kept_); }
  ~Apart() { std::swap(metrics_, kept_); }
  Apart(const Apart&) = delete;  // swaps back once
  Apart& operator=(const Apart&) = delete;

 private:
  Metrics& metrics_;
  Metrics kept_;
};

}  // namespace

bool StepGraph::takes(const data::Batch& batch) {
  if (!is_wanted() || batch.count != data_.samples_per_step()) return false;
  const auto is_dense = [](const at::Tensor& one) { return one.layout() == at::kStrided; };
  if (!graph_) {
    const std::vector<at::Tensor> tensors = tensors_of(batch);
    return std::all_of(tensors.begin(), tensors.end(), is_dense) && ++steps_before_ > kStepsBefore;
  }
  return std::equal(parts_.begin(), parts_.end(), batch.parts.begin(), batch.parts.end(),
                    [](const data::MicroBatch& to, const data::MicroBatch& from) {
                      return are_alike(tensors_of(to), tensors_of(from));
                    });
}

void StepGraph::drop() {
  graph_.reset();
  gradients_.clear();
  parts_.clear();
  numbers_.clear();
  logged_.reset();
  steps_before_ = 0;
}

// Enqueues forward and backward of one part.
void StepGraph::enqueue(std::size_t part) {
  const at::Tensor mean = loss_of(run_, parts_[part]);
  const auto index = static_cast<std::int64_t>(2 * part);
  {
    const at::NoGradGuard no_grad;
    sum_.add_(mean.detach().to(at::kDouble).mul(on_gpu_.select(0, index + 1)));
  }
  // A loss in 16 bits is multiplied in fp32, as by a number of the host.
  const at::ScalarType computed = mean.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  (mean.to(computed) * on_gpu_.select(0, index).to(computed)).backward();
}

void StepGraph::capture(const data::Batch& batch) {
  const auto options = at::TensorOptions().dtype(at::kDouble).device(run_.device);
  parts_ = batch.parts;
  for (data::MicroBatch& part : parts_) part.transform([](const at::Tensor& one) { return one.clone(); });
  on_gpu_ = at::zeros({static_cast<std::int64_t>(2 * parts_.size())}, options);
  sum_ = at::zeros({1}, options);
  graph_.emplace(run_.device);
  const Apart apart(run_.metrics);
  try {
    graph_->capture([&] {
      sum_.zero_();
      for (std::size_t i = 0; i < parts_.size(); ++i) enqueue(i);
    });
    logged_ = run_.metrics.take_for_replay();
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const c10::Error& error) {
    throw refused(
        "train.graph step: forward and backward of this task cannot be captured", first_line_of(error),
        "work of the GPU alone, the same in each step",
        "leave train.graph out; or in the task: no .item(), no printing of tensors, no choice by their values");
  }
  if (const std::vector<std::string> names = logged_->names_of_host(); !names.empty()) {
    throw refused("train.graph step: a figure of the host is logged, which a replay does not compute",
                  fmt::format("{}", fmt::join(names, ", ")), "tensors on the GPU",
                  "log it as a tensor, or leave train.graph out");
  }
  for (const at::Tensor& parameter : model_.module().parameters()) gradients_.push_back(parameter.grad());
}

void StepGraph::set_numbers(const data::Batch& batch) {
  std::vector<double> numbers;
  for (const data::MicroBatch& part : batch.parts) {
    numbers.push_back(part.weight);
    numbers.push_back(static_cast<double>(part.terms));
  }
  if (numbers == numbers_) return;
  on_gpu_.copy_(at::tensor(numbers, at::kDouble).pin_memory(), /*non_blocking=*/true);
  numbers_ = std::move(numbers);
}

OwnLoss StepGraph::run(const data::Batch& batch) {
  const at::NoGradGuard no_grad;
  model_.parallel().prepare_forward();
  if (!graph_) {
    const at::AutoGradMode with_grad(true);
    capture(batch);
  }
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const std::vector<at::Tensor> from = tensors_of(batch.parts[i]);
    auto next = from.begin();
    for (const at::Tensor& to : tensors_of(parts_[i])) to.copy_(*next++, /*non_blocking=*/true);
  }
  set_numbers(batch);
  graph_->replay();
  std::vector<std::int64_t> terms;
  for (const data::MicroBatch& part : batch.parts) terms.push_back(part.terms);
  run_.metrics.add_again(*logged_, terms);
  auto gradient = gradients_.begin();
  for (const at::Tensor& parameter : model_.module().parameters()) parameter.mutable_grad() = *gradient++;
  return OwnLoss(sum_);
}

}  // namespace reigen::train
