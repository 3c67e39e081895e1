// Shared by the tests of optimizers: parameters of odd sizes, gradients that depend only on the step, and one of every
// optimizer.
#pragma once

#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "harness/torch.h"
#include "reigen/optim/adagrad.h"
#include "reigen/optim/adam.h"
#include "reigen/optim/adamw.h"
#include "reigen/optim/lamb.h"
#include "reigen/optim/lars.h"
#include "reigen/optim/lion.h"
#include "reigen/optim/rmsprop.h"
#include "reigen/optim/sgd.h"
#include "reigen/tensor/flat_parameters.h"

namespace reigen::optim::testing_parameters {

using Shapes = std::vector<std::vector<std::int64_t>>;

// Odd sizes, so that vectorised kernels have tails.
inline const Shapes kShapes{{3, 5}, {7}, {1}, {33, 2}, {16}};
// Sizes for several blocks and threads: around the end of a block, and one that is cut into four.
inline const Shapes kLargeShapes{{16384}, {16383}, {1}, {130, 127}, {61441}, {3, 5}};

inline std::vector<tensor::NamedParameter> make_parameters(at::ScalarType type, const Shapes& shapes = kShapes,
                                                           const at::Device& device = at::kCPU) {
  auto generator = at::detail::createCPUGenerator(3);
  std::vector<tensor::NamedParameter> result;
  for (const auto& shape : shapes) {
    const auto values = torch::randn(shape, generator, torch::kDouble).to(type);
    result.push_back({.name = "p" + std::to_string(result.size()),
                      .parameter = values.to(device, type, /*non_blocking=*/false, /*copy=*/true).requires_grad_()});
  }
  return result;
}

inline std::vector<at::Tensor> tensors(const std::vector<tensor::NamedParameter>& parameters) {
  std::vector<at::Tensor> result;
  for (const auto& entry : parameters) result.push_back(entry.parameter);
  return result;
}

inline double difference(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  double result = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const auto distance = (a[i].detach().to(at::kDouble) - b[i].detach().to(at::kDouble)).abs().max();
    const double one = distance.item<double>();
    if (!(one <= result)) result = one;
  }
  return result;
}

// Gives both lists the same gradients. With `skip_some` every third parameter gets none, another third in each step.
inline void set_gradients(int step, const std::vector<at::Tensor>& ours, const std::vector<at::Tensor>& reference,
                          bool skip_some, double scale = 1) {
  auto generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(100 + step));
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const auto gradient = (torch::randn(ours[i].sizes(), generator, torch::kDouble) * scale).to(ours[i].scalar_type());
    if (skip_some && (static_cast<std::size_t>(step) + i) % 3 == 0) continue;
    ours[i].mutable_grad() = gradient.clone();
    if (i < reference.size()) reference[i].mutable_grad() = gradient.clone();
  }
}

struct Maker {
  std::string name;
  std::function<std::unique_ptr<Optimizer>(const std::vector<ParameterRange>&)> make;
  bool bf16_states = false;
};

template <class Kind, class Options>
Maker maker(const std::string& name, const Options& options, bool bf16_states = false) {
  return {name,
          [options](const std::vector<ParameterRange>& ranges) { return std::make_unique<Kind>(ranges, options); },
          bf16_states};
}

// Every optimizer, with every option that has its own kernel.
inline std::vector<Maker> every_optimizer() {
  const std::vector<ParameterGroup> groups{{.patterns = {"p3"}, .lr_factor = 0.5}, no_decay()};
  return {
      maker<SGD>("sgd", SGDOptions{.lr = 0.1, .weight_decay = 0.01, .groups = groups}),
      maker<SGD>("sgd momentum", SGDOptions{.lr = 0.1, .momentum = 0.9, .dampening = 0.1, .groups = groups}),
      maker<SGD>("sgd nesterov", SGDOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true}),
      maker<SGD>("sgd bf16", SGDOptions{.lr = 0.1, .momentum = 0.9, .bf16_states = true}, true),
      maker<Adam>("adam", AdamOptions{.lr = 0.01, .weight_decay = 0.1, .groups = groups}),
      maker<Adam>("adam amsgrad", AdamOptions{.lr = 0.01, .amsgrad = true}),
      maker<Adam>("adam bf16", AdamOptions{.lr = 0.01, .bf16_states = true}, true),
      maker<AdamW>("adamw", AdamWOptions{.lr = 0.01, .groups = groups}),
      maker<AdamW>("adamw amsgrad", AdamWOptions{.lr = 0.01, .amsgrad = true}),
      maker<AdamW>("adamw bf16", AdamWOptions{.lr = 0.01, .bf16_states = true}, true),
      maker<Adagrad>("adagrad", AdagradOptions{.lr = 0.1, .lr_decay = 0.01, .weight_decay = 0.01}),
      maker<RMSprop>("rmsprop", RMSpropOptions{.weight_decay = 0.01}),
      maker<RMSprop>("rmsprop momentum", RMSpropOptions{.momentum = 0.9}),
      maker<RMSprop>("rmsprop centered", RMSpropOptions{.centered = true}),
      maker<RMSprop>("rmsprop all", RMSpropOptions{.weight_decay = 0.01, .momentum = 0.9, .centered = true}),
      maker<Lion>("lion", LionOptions{.lr = 0.01, .weight_decay = 0.1, .groups = groups}),
      maker<Lion>("lion bf16", LionOptions{.lr = 0.01, .bf16_states = true}, true),
      maker<LARS>("lars", LARSOptions{.lr = 10, .weight_decay = 5e-4, .groups = groups}),
      maker<LAMB>("lamb", LAMBOptions{.lr = 0.01, .weight_decay = 0.01, .groups = groups}),
  };
}

}  // namespace reigen::optim::testing_parameters
