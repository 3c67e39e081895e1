// A model of blocks for tests of pipelines, and what one process computes with it.
#pragma once

#include <torch/nn/modules/linear.h>

#include <gtest/gtest.h>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <ostream>
#include <string>
#include <vector>

#include "harness/ranks.h"
#include "harness/torch.h"
#include "reigen/base/error.h"
#include "reigen/mesh/mesh.h"
#include "reigen/nn/unit.h"
#include "reigen/parallel/data_parallel.h"
#include "reigen/parallel/pipeline.h"
#include "reigen/schedule/validate.h"

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

// Values that are the same on all ranks and in every run.
inline void set_values(torch::nn::Module& module) {
  module.to(at::kDouble);
  const at::NoGradGuard no_grad;
  for (const at::Tensor& one : module.parameters()) {
    one.copy_(at::sin(at::arange(one.numel(), at::kDouble) * 7 + static_cast<double>(one.dim())).view(one.sizes()) / 3);
  }
}

// Blocks with the names block0, block1, ...
struct Net : torch::nn::Module {
  explicit Net(int blocks, std::function<void(int block)> before = {}) {
    for (int i = 0; i < blocks; ++i) {
      const std::string name = "block" + std::to_string(i);
      const auto block = std::make_shared<BlockImpl>(before ? [before, i] { before(i); } : std::function<void()>());
      parts.emplace_back(name, register_module(name, block));
    }
    set_values(*this);
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
template <class Model>
std::map<std::string, at::Tensor> expected_gradients(Model& net, int micro_batches) {
  for (int i = 0; i < micro_batches; ++i) loss_of(net.forward(input_of(i)), i).backward();
  return gradients_of(net);
}
inline std::map<std::string, at::Tensor> expected_gradients(int blocks, int micro_batches) {
  Net net(blocks);
  return expected_gradients(net, micro_batches);
}

template <class Model>
PipelineStep step_of(Model& net) {
  return {.input = [](int i) { return nn::Carry{input_of(i)}; },
          .loss = [&net](int i) { return loss_of(net.forward(input_of(i)), i); }};
}

inline Mesh row_of(Communicator& world) { return Mesh(world, {{"pp", world.size()}}); }

struct Case {
  int ranks = 1;
  schedule::Name schedule = schedule::Name::kOneFOneB;
  int micro_batches = 1;
  int virtual_stages = 1;
};

inline void PrintTo(const Case& one, std::ostream* out) {
  *out << to_text(one.schedule) << ", " << one.ranks << " ranks, " << one.micro_batches << " micro-batches, "
       << one.virtual_stages << " stages each";
}

// For models of at least 8 units.
inline std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const schedule::Name name : schedule::names()) {
    for (const int ranks : {1, 2, 4}) {
      for (const int micro_batches : {1, 3, 8}) {
        for (const int stages : {1, 2}) {
          const auto [least, most] = schedule::virtual_stages_of(name);
          if (stages < least || stages > most) continue;
          cases.push_back({ranks, name, micro_batches, stages});
        }
      }
    }
  }
  return cases;
}

// The number of activations that a rank holds at one time is that of the schedule, counted by the runtime.
inline void expect_in_flight(const Pipeline& pipes, int micro_batches, int rank) {
  const schedule::Schedule& schedule = pipes.schedule_of(micro_batches);
  const schedule::InFlight bound = schedule::validate(schedule);
  EXPECT_EQ(pipes.last().in_flight.by_rank[static_cast<std::size_t>(rank)],
            bound.by_rank[static_cast<std::size_t>(rank)]);
  for (std::size_t s = 0; s < bound.by_stage.size(); ++s) {
    EXPECT_EQ(pipes.last().in_flight.by_stage[s], schedule.placement[s] == rank ? bound.by_stage[s] : 0)
        << "stage " << s;
  }
}

// Two steps of a pipeline, with gradients dropped between them, give the gradients of one process. `make` returns a new
// model.
template <class Make>
void expect_gradients_of_one_process(const Make& make, int ranks, int micro_batches, const PipelineOptions& options) {
  const auto whole = make();
  const auto expected = expected_gradients(*whole, micro_batches);
  std::mutex mutex;
  std::map<std::string, at::Tensor> found;
  testing::run_ranks({.ranks = ranks}, [&](testing::Rank& rank) {
    const auto net = make();
    const Pipeline pipes = pipeline(*net, row_of(rank.world()), options);
    auto parallel = data_parallel(*net, rank.world(), {.pipeline = pipes});
    for (int again = 0; again < 2; ++again) {
      for (const ParameterRange& range : parallel.parameters()) range.drop_gradients();
      pipes.step(parallel, micro_batches, step_of(*net));
    }
    expect_in_flight(pipes, micro_batches, rank.rank());
    const std::lock_guard lock(mutex);
    for (const auto& [name, gradient] : gradients_of(pipes.module())) {
      EXPECT_FALSE(found.contains(name)) << name;
      found[name] = gradient;
    }
  });
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [name, gradient] : expected) {
    EXPECT_LT((found.at(name) - gradient).abs().max().template item<double>(), 1e-13) << name;
  }
}

// The text of the InvalidArgument that `body` throws on every rank; "nothing" if it throws none.
inline std::string common_refusal(const testing::RankOptions& options,
                                  const std::function<void(testing::Rank&)>& body) {
  std::mutex mutex;
  std::string first;
  testing::run_ranks(options, [&](testing::Rank& rank) {
    std::string text = "nothing";
    try {
      body(rank);
    } catch (const InvalidArgument& error) {
      text = error.what();
    }
    const std::lock_guard lock(mutex);
    if (first.empty()) first = text;
    EXPECT_EQ(text, first);
  });
  return first;
}

}  // namespace reigen::parallel::pipeline_test
