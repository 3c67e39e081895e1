// Shared by the data-parallel tests: models whose values depend only on their names, data that depends only on a seed,
// ranks as threads that return their results, and the comparison with one process.
//
// The whole process has one default generator, so no function here uses it.
#pragma once

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "harness/torch.h"
#include "reigen/base/error.h"
#include "reigen/optim/adamw.h"
#include "reigen/optim/sgd.h"
#include "reigen/parallel/data_parallel.h"
#include "reigen/runtime/init.h"

namespace reigen::testing_oracle {

// Whether ranks compute on GPUs, each on one of its own. on_gpu.cc sets it, for a program in which LibTorch's device
// "cuda" is played by the CPU.
inline bool on_gpu = false;
// Where the calling thread makes models and data.
inline thread_local at::Device here = at::kCPU;

// Sets values that depend only on the parameter's name, so they are the same on every rank and in every layout.
inline void fill(torch::nn::Module& module, at::ScalarType type = at::kDouble) {
  torch::NoGradGuard no_grad;
  for (auto& entry : module.named_parameters()) {
    auto generator = at::detail::createCPUGenerator(std::hash<std::string>()(entry.key()));
    auto& parameter = entry.value();
    parameter.set_data((torch::randn(parameter.sizes(), generator, torch::kDouble) * 0.5).to(type));
  }
  if (here.is_cuda()) module.to(here);
}

inline at::Tensor numbers(std::uint64_t seed, at::IntArrayRef shape) {
  auto generator = at::detail::createCPUGenerator(seed);
  return torch::randn(shape, generator, torch::kDouble).to(here);
}

// This rank's rows of a global batch, where this rank computes.
inline at::Tensor share(const at::Tensor& batch, const Communicator& world) {
  return batch.chunk(world.size())[static_cast<std::size_t>(world.rank())].to(here);
}

// An input for a model. The backward throws std::runtime_error after it has computed the gradients of all weights.
inline at::Tensor input_that_fails(const at::Tensor& values) {
  at::Tensor input = values.clone().requires_grad_();
  input.register_hook([](const at::Tensor& gradient) -> at::Tensor {
    throw std::runtime_error("planted");
    return gradient;
  });
  return input;
}

// Three layers with odd sizes; 4 inputs, 3 outputs.
struct Mlp : torch::nn::Module {
  explicit Mlp(at::ScalarType type = at::kDouble) {
    first = register_module("first", torch::nn::Linear(4, 17));
    second = register_module("second", torch::nn::Linear(17, 9));
    third = register_module("third", torch::nn::Linear(9, 3));
    fill(*this, type);
  }
  at::Tensor forward(const at::Tensor& x) { return third(torch::tanh(second(torch::tanh(first(x))))); }
  torch::nn::Linear first{nullptr}, second{nullptr}, third{nullptr};
};

using Tensors = std::vector<at::Tensor>;

inline Tensors values_of(const torch::nn::Module& module) {
  Tensors result;
  for (const auto& parameter : module.parameters()) result.push_back(parameter.detach().clone().cpu());
  return result;
}

inline Tensors buffers_of(const torch::nn::Module& module) {
  Tensors result;
  for (const at::Tensor& buffer : module.buffers()) result.push_back(buffer.clone().cpu());
  return result;
}

// Copies of the gradients. An undefined gradient remains undefined.
inline Tensors gradients_of(const torch::nn::Module& module) {
  Tensors result;
  for (const auto& parameter : module.parameters()) {
    result.push_back(parameter.grad().defined() ? parameter.grad().detach().clone().cpu() : at::Tensor());
  }
  return result;
}

inline bool same_bits(const Tensors& a, const Tensors& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].defined() != b[i].defined()) return false;
    if (a[i].defined() && !a[i].equal(b[i])) return false;
  }
  return true;
}

// The largest difference of any element. Infinite if one list lacks a tensor that the other has.
inline double distance(const Tensors& a, const Tensors& b) {
  constexpr double kFar = std::numeric_limits<double>::infinity();
  if (a.size() != b.size() || a.empty()) return kFar;
  double result = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].defined() != b[i].defined()) return kFar;
    if (!a[i].defined() || a[i].numel() == 0) continue;
    if (a[i].sizes() != b[i].sizes()) return kFar;
    const double one = (a[i].to(at::kDouble) - b[i].to(at::kDouble)).abs().max().item<double>();
    if (std::isnan(one)) return kFar;
    result = std::max(result, one);
  }
  return result;
}

using MakeOptimizer = std::function<std::unique_ptr<optim::Optimizer>(const std::vector<ParameterRange>&)>;

template <class Kind, class Options>
MakeOptimizer maker(const Options& options) {
  return [options](const std::vector<ParameterRange>& ranges) { return std::make_unique<Kind>(ranges, options); };
}

// Runs `function` on every rank and returns the results, as tensors of the CPU. An exception of a rank fails the test
// with its text.
inline std::vector<Tensors> on_ranks(int ranks, const std::function<Tensors(Communicator&)>& function,
                                     const std::string& backend = "auto") {
  std::vector<Tensors> results(static_cast<std::size_t>(ranks));
  const auto run = [&](Communicator& world) {
    at::set_num_threads(1);
    if (on_gpu) here = at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(world.device().index));
    // A stream of the rank's own, as threads share the default stream.
    c10::OptionalStreamGuard guard;
    if (on_gpu) guard.reset_stream(c10::impl::VirtualGuardImpl(at::kCUDA).getNewStream(here));
    Tensors& own = results[static_cast<std::size_t>(world.rank())];
    own = function(world);
    for (at::Tensor& tensor : own)
      if (tensor.defined()) tensor = tensor.cpu();
  };
  try {
    run_threads(
        ranks, run,
        {.backend = backend, .device = on_gpu ? Device::cuda() : Device::cpu(), .timeout = std::chrono::seconds(60)});
  } catch (const std::exception& error) {
    ADD_FAILURE() << error.what();
  }
  return results;
}

// Like on_ranks(), and all ranks must return the same bits. If ranks compute on GPUs, ranks on CPUs must return them
// too. More than two ranks that divide weights over a network add in another order there, so theirs may differ by
// rounding.
inline Tensors agreed(int ranks, const std::function<Tensors(Communicator&)>& function,
                      const std::string& backend = "auto") {
  const auto results = on_ranks(ranks, function, backend);
  EXPECT_FALSE(results[0].empty());
  for (int rank = 1; rank < ranks; ++rank) {
    EXPECT_TRUE(same_bits(results[0], results[static_cast<std::size_t>(rank)])) << "rank " << rank;
  }
  if (on_gpu) {
    constexpr double kRounding = 1e-6;
    on_gpu = false;
    here = at::kCPU;
    const auto on_cpus = on_ranks(ranks, function, backend == "auto" ? "tcp" : backend);
    on_gpu = true;
    const double apart = distance(results[0], on_cpus[0]);
    EXPECT_TRUE(same_bits(results[0], on_cpus[0]) || (ranks > 2 && apart < kRounding)) << "CPUs differ by " << apart;
  }
  return results[0];
}

// The text of the InvalidArgument that each rank gets, or "no error".
inline std::vector<std::string> errors_on(int ranks, const std::function<void(Communicator&)>& function,
                                          const std::string& backend = "auto") {
  std::vector<std::string> texts(static_cast<std::size_t>(ranks), "no error");
  const auto run = [&](Communicator& world) -> Tensors {
    try {
      function(world);
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::kConfiguration);
      texts[static_cast<std::size_t>(world.rank())] = error.what();
    }
    world.barrier();
    return {torch::zeros(1)};
  };
  on_ranks(ranks, run, backend);
  return texts;
}

}  // namespace reigen::testing_oracle
