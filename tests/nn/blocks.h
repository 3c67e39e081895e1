// A small model made of units, for the tests of this folder.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "harness/torch.h"
#include "parallel/oracle.h"
#include "reigen/nn/unit.h"

namespace reigen::testing {

struct Block : torch::nn::Module {
  Block(int width, double dropout, bool normalised) {
    up = register_module("up", torch::nn::Linear(width, 3 * width));
    down = register_module("down", torch::nn::Linear(3 * width, width));
    drop = register_module("drop", torch::nn::Dropout(dropout));
    if (normalised) norm = register_module("norm", torch::nn::BatchNorm1d(width));
  }
  at::Tensor forward(const at::Tensor& x) {
    forwards += 1;
    const at::Tensor y = norm ? norm(x) : x;
    return x + down(drop(torch::tanh(up(y))));
  }
  torch::nn::Linear up{nullptr}, down{nullptr};
  torch::nn::Dropout drop{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  int forwards = 0;
};

struct BlocksOptions {
  int width = 5;
  int depth = 3;
  double dropout = 0;
  bool normalised = false;
};

struct Blocks : torch::nn::Module {
  explicit Blocks(const BlocksOptions& options = {}) {
    for (int i = 0; i < options.depth; ++i) {
      const std::string name = "block" + std::to_string(i);
      blocks.push_back(
          register_module(name, std::make_shared<Block>(options.width, options.dropout, options.normalised)));
      list.emplace_back(name, blocks.back());
    }
    to(torch::kDouble);  // converts buffers too
    testing_oracle::fill(*this);
  }
  at::Tensor forward(const at::Tensor& x) { return nn::fold(list, x); }
  std::vector<nn::Unit> units() const { return list; }

  std::vector<std::shared_ptr<Block>> blocks;
  std::vector<nn::Unit> list;
};

}  // namespace reigen::testing
