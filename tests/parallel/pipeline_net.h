// A model of blocks for tests of pipelines, and what one process computes with it.
#pragma once

#include <torch/nn/modules/linear.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "harness/torch.h"
#include "reigen/mesh/mesh.h"
#include "reigen/nn/unit.h"
#include "reigen/parallel/pipeline.h"

namespace reigen::parallel::pipeline_test {

inline constexpr std::int64_t kWidth = 6;

struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(std::function<void()> before = {}) : before_forward(std::move(before)) {}
  at::Tensor forward(const at::Tensor& x) {
    if (before_forward) before_forward();
    return x + at::tanh(second(at::tanh(first(x))));
  }
  std::function<void()> before_forward;
  torch::nn::Linear first = register_module("first", torch::nn::Linear(kWidth, kWidth));
  torch::nn::Linear second = register_module("second", torch::nn::Linear(kWidth, kWidth));
};

// Blocks with the names block0, block1, ...
struct Net : torch::nn::Module {
  explicit Net(int blocks, std::function<void(int block)> before = {}) {
    for (int i = 0; i < blocks; ++i) {
      const std::string name = "block" + std::to_string(i);
      const auto block = std::make_shared<BlockImpl>(before ? [before, i] { before(i); } : std::function<void()>());
      parts.emplace_back(name, register_module(name, block));
    }
    to(at::kDouble);
    const at::NoGradGuard no_grad;
    for (const at::Tensor& one : parameters()) {
      one.copy_(at::sin(at::arange(one.numel(), at::kDouble) * 7 + static_cast<double>(one.dim())).view(one.sizes()) /
                3);
    }
  }
  at::Tensor forward(const at::Tensor& x) { return nn::fold(parts, x); }
  const std::vector<nn::Unit>& units() const { return parts; }
  std::vector<nn::Unit> parts;
};

inline at::Tensor input_of(int micro_batch) {
  const std::int64_t rows = 2 + micro_batch % 3;  // micro-batches may differ
  return at::cos(at::arange(rows * kWidth, at::kDouble) * 3 + micro_batch).view({rows, kWidth});
}

inline at::Tensor loss_of(const at::Tensor& y, int micro_batch) { return (y * y).sum() / (3.0 + micro_batch); }

inline std::map<std::string, at::Tensor> gradients_of(const torch::nn::Module& module) {
  std::map<std::string, at::Tensor> result;
  for (const auto& item : module.named_parameters()) {
    if (item.value().grad().defined()) result[item.key()] = item.value().grad().detach().clone();
  }
  return result;
}

// The gradients of one process.
inline std::map<std::string, at::Tensor> expected_gradients(int blocks, int micro_batches) {
  Net net(blocks);
  for (int i = 0; i < micro_batches; ++i) loss_of(net.forward(input_of(i)), i).backward();
  return gradients_of(net);
}

inline PipelineStep step_of(Net& net) {
  return {.input = [](int i) { return nn::Carry{input_of(i)}; },
          .loss = [&net](int i) { return loss_of(net.forward(input_of(i)), i); }};
}

inline Mesh row_of(Communicator& world) { return Mesh(world, {{"pp", world.size()}}); }

}  // namespace reigen::parallel::pipeline_test
