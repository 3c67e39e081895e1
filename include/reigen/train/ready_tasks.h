// Tasks made from a model alone.
//
//   Net net(10);                                        // TORCH_MODULE, or a std::shared_ptr of a module
//   auto task = reigen::train::classification(net);
//   auto other = reigen::train::task_of(net, [](auto& model, const reigen::data::Samples& batch) {
//     return torch::mse_loss(model.forward(batch.input, batch.at("mask")), batch.target);
//   });
//
// The model's units() are those of the task, if it has such a function (nn/unit.h).
// Thread rule: a task belongs to one rank (task.h).
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "reigen/train/task.h"

namespace reigen::train {

namespace detail {

enum class Kind { kClassification, kRegression, kOfLoss };
using OfBatch = std::function<at::Tensor(const data::Samples& batch)>;

// `compute` is the model's forward, or with kOfLoss the loss.
std::shared_ptr<Task> make_task(std::shared_ptr<torch::nn::Module> model, std::vector<nn::Unit> units, OfBatch compute,
                                Kind kind, double label_smoothing = 0);

template <class M>
std::vector<nn::Unit> units_of(M& model) {
  if constexpr (requires {
                  { model.units() } -> std::convertible_to<std::vector<nn::Unit>>;
                })
    return model.units();
  else
    return {};
}

template <class M>
std::shared_ptr<Task> task_of_forward(const std::shared_ptr<M>& model, Kind kind, double label_smoothing = 0) {
  return make_task(
      model, units_of(*model), [model](const data::Samples& batch) { return model->forward(batch.input); }, kind,
      label_smoothing);
}

template <class Holder>
auto pointer_to(const Holder& model) {
  if constexpr (requires { model.ptr(); })
    return model.ptr();
  else
    return model;
}

}  // namespace detail

struct ClassificationOptions {
  // The share of each target that is spread over all classes, in the loss of training only; at least 0, below 1.
  double label_smoothing = 0;
};

// model.forward(input) gives scores [N, classes], `target` is a class for each sample. The loss is the cross entropy.
// Logs training_loss and training_accuracy; validation and test log test_accuracy and test_loss; predictions are
// "scores".
template <class Model>
std::shared_ptr<Task> classification(const Model& model, const ClassificationOptions& options = {}) {
  return detail::task_of_forward(detail::pointer_to(model), detail::Kind::kClassification, options.label_smoothing);
}

// model.forward(input) has the shape of `target`. The loss is the mean squared error. Logs training_loss; validation
// and test log test_loss; predictions are "output".
template <class Model>
std::shared_ptr<Task> regression(const Model& model) {
  return detail::task_of_forward(detail::pointer_to(model), detail::Kind::kRegression);
}

// loss(model, batch) is the mean loss over the batch's samples. Logs training_loss; validation and test log test_loss.
template <class Model, class Loss>
std::shared_ptr<Task> task_of(const Model& model, Loss loss) {
  const auto pointer = detail::pointer_to(model);
  return detail::make_task(
      pointer, detail::units_of(*pointer),
      [pointer, loss = std::move(loss)](const data::Samples& batch) { return loss(*pointer, batch); },
      detail::Kind::kOfLoss);
}

}  // namespace reigen::train
