// A model whose blocks have skip connections, and random pipelines for it.
#pragma once

#include <ATen/ATen.h>
#include <torch/nn/modules/linear.h>

#include <gtest/gtest.h>
#include <algorithm>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "parallel/pipeline_net.h"
#include "reigen/nn/skips.h"
#include "reigen/nn/unit.h"
#include "reigen/schedule/schedule.h"

namespace reigen::parallel::pipeline_test {

// A block that gives and takes any number of tensors. The tensors that it gives are in turn: its output itself, a
// tensor that depends on a weight, its input, and numbers without a gradient that have another shape.
struct SkipBlockImpl : torch::nn::Module {
  SkipBlockImpl(std::size_t its_gives, std::size_t takes) : gives(its_gives) {
    for (std::size_t i = 0; i < takes; ++i) {
      mix.push_back(register_parameter("mix" + std::to_string(i), at::ones({kWidth, kWidth}, at::kDouble)));
    }
    if (gives > 1) gain = register_parameter("gain", at::ones({kWidth}, at::kDouble));
  }
  nn::Carry forward(const nn::Carry& in) {
    EXPECT_EQ(in.size(), 1 + mix.size());  // nothing that goes to other units
    at::Tensor x = in[0];
    for (std::size_t i = 0; i < mix.size(); ++i) x = x + at::tanh(at::linear(in[1 + i].to(at::kDouble), mix[i]));
    const at::Tensor y = at::tanh(second(at::tanh(first(x)))) + 0.5 * x;
    nn::Carry out{y};
    for (std::size_t i = 0; i < gives; ++i) {
      switch (i % 4) {
        case 0: out.push_back(y); break;
        case 1: out.push_back(at::sin(x) * gain); break;
        case 2: out.push_back(in[0]); break;
        default: out.push_back((x.detach().sum(0, true) > 0).to(at::kLong));
      }
    }
    return out;
  }
  std::size_t gives;
  std::vector<at::Tensor> mix;
  at::Tensor gain;
  torch::nn::Linear first = register_module("first", torch::nn::Linear(kWidth, kWidth));
  torch::nn::Linear second = register_module("second", torch::nn::Linear(kWidth, kWidth));
};

inline std::string block(std::size_t number) { return "block" + std::to_string(number); }

using Ends = std::vector<std::pair<std::size_t, std::size_t>>;  // the numbers of blocks

struct SkipNet : torch::nn::Module {
  SkipNet(std::size_t blocks, const Ends& ends) {
    for (const auto& [from, to] : ends) all_skips.push_back({block(from), block(to)});
    for (std::size_t i = 0; i < blocks; ++i) {
      const auto gives = std::count_if(ends.begin(), ends.end(), [&](const auto& one) { return one.first == i; });
      const auto takes = std::count_if(ends.begin(), ends.end(), [&](const auto& one) { return one.second == i; });
      const auto made = std::make_shared<SkipBlockImpl>(gives, takes);
      parts.emplace_back(block(i), register_module(block(i), made));
    }
    set_values(*this);
  }
  at::Tensor forward(const at::Tensor& x) { return nn::fold(parts, x, all_skips); }
  const std::vector<nn::Unit>& units() const { return parts; }
  const std::vector<nn::Skip>& skips() const { return all_skips; }
  std::vector<nn::Unit> parts;
  std::vector<nn::Skip> all_skips;
};

// Connections into each other, several from one block, several between the same blocks, and to the next block.
inline const Ends kEnds = {{0, 7}, {1, 6}, {2, 5}, {3, 4}, {0, 7}, {0, 4}, {0, 5}, {6, 7}, {2, 7}};

inline std::shared_ptr<SkipNet> make_net() { return std::make_shared<SkipNet>(8, kEnds); }

// What a random placement, cut and list of actions computes.
struct Drawn {
  explicit Drawn(unsigned seed) : random(seed) {
    own.ranks = below(3) + 1;
    own.micro_batches = below(3) + 1;
    own.placement.clear();
    for (int rank = 0; rank < own.ranks; ++rank) own.placement.push_back(rank);
    for (int more = below(4); more > 0; --more) own.placement.push_back(below(own.ranks));
    std::shuffle(own.placement.begin(), own.placement.end(), random);
    std::set<std::size_t> firsts{0};
    while (firsts.size() < own.placement.size()) firsts.insert(static_cast<std::size_t>(below(8)));
    first_units.assign(firsts.begin(), firsts.end());
    for (int count = below(7); count > 0; --count) {
      const auto from = static_cast<std::size_t>(below(7));
      ends.emplace_back(from, from + 1 + static_cast<std::size_t>(below(7 - static_cast<int>(from))));
    }
    name_skips();
    add_actions();
  }

  int below(int end) { return static_cast<int>(random() % static_cast<unsigned>(end)); }
  int stage_of(std::size_t unit) const {
    return static_cast<int>(std::upper_bound(first_units.begin(), first_units.end(), unit) - first_units.begin()) - 1;
  }
  void name_skips() {
    for (const auto& [from, to] : ends) {
      const schedule::Skip skip{.from = stage_of(from), .to = stage_of(to)};
      const bool is_there = std::find(own.skips.begin(), own.skips.end(), skip) != own.skips.end();
      if (skip.from + 1 < skip.to && !is_there) own.skips.push_back(skip);
    }
    std::shuffle(own.skips.begin(), own.skips.end(), random);
  }
  // All forwards, then all backwards. Some backwards are divided, with W at once or at the end.
  void add_actions() {
    own.actions.assign(static_cast<std::size_t>(own.ranks), {});
    std::vector<schedule::Action> later;
    const auto list_of = [&](int stage) -> std::vector<schedule::Action>& {
      return own.actions[static_cast<std::size_t>(own.placement[static_cast<std::size_t>(stage)])];
    };
    for (int m = 0; m < own.micro_batches; ++m) {
      for (int s = 0; s < own.stages(); ++s) list_of(s).push_back({schedule::Kind::kForward, s, m});
    }
    for (int m = 0; m < own.micro_batches; ++m) {
      for (int s = own.stages() - 1; s >= 0; --s) {
        const int way = below(3);
        list_of(s).push_back({way == 0 ? schedule::Kind::kBackward : schedule::Kind::kBackwardInput, s, m});
        if (way == 1) list_of(s).push_back({schedule::Kind::kBackwardWeight, s, m});
        if (way == 2) later.push_back({schedule::Kind::kBackwardWeight, s, m});
      }
    }
    for (const schedule::Action& action : later) list_of(action.stage).push_back(action);
  }

  std::mt19937 random;
  schedule::Schedule own;
  std::vector<std::size_t> first_units;
  Ends ends;
};

// All forwards in order, then all backwards, for stages with these ranks.
inline schedule::Schedule in_turn(const std::vector<int>& placement, int micro_batches,
                                  const std::vector<schedule::Skip>& skips = {}) {
  schedule::Schedule made{.ranks = 1 + *std::max_element(placement.begin(), placement.end()),
                          .micro_batches = micro_batches,
                          .placement = placement,
                          .skips = skips,
                          .actions = {}};
  made.actions.resize(static_cast<std::size_t>(made.ranks));
  const auto add = [&](schedule::Kind kind, int stage, int micro_batch) {
    made.actions[static_cast<std::size_t>(placement[static_cast<std::size_t>(stage)])].push_back(
        {kind, stage, micro_batch});
  };
  for (int m = 0; m < micro_batches; ++m) {
    for (int stage = 0; stage < made.stages(); ++stage) add(schedule::Kind::kForward, stage, m);
  }
  for (int m = 0; m < micro_batches; ++m) {
    for (int stage = made.stages(); stage-- > 0;) add(schedule::Kind::kBackward, stage, m);
  }
  return made;
}

}  // namespace reigen::parallel::pipeline_test
