// For a machine with a GPU: what does data_parallel() cost one rank?
//
//   check_step [--small]    --small: a small model; its speeds mean nothing
//
// The program trains GPT-2 (124 M, in bf16) in two loops, in turn: a bare loop, and the same loop with the model in
// data_parallel() over a group of one rank. Both use LibTorch's fused AdamW. It prints the time of a step of each loop
// for every round, and then the median of the bare loop's time as a share of the other loop's. The exit code is 69 if
// there is no GPU.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string_view>
#include <vector>

#include "reigen/base/error.h"
#include "reigen/models/gpt.h"
#include "reigen/nn/autocast.h"
#include "reigen/nn/cross_entropy.h"
#include "reigen/parallel/data_parallel.h"
#include "reigen/runtime/init.h"
#include "tensor/gpu/torch_cuda.h"

namespace reigen {
namespace {

constexpr int kRounds = 7;
constexpr int kStepsBefore = 4;  // data_parallel() forms new buckets after its first step

struct Sizes {
  std::int64_t batch;
  models::GptOptions model;
  int steps;  // steps of a round that are measured
};
const Sizes kGpt2{
    .batch = 8, .model = {.vocab = 50304, .layers = 12, .dim = 768, .heads = 12, .context = 1024}, .steps = 12};
const Sizes kSmall{.batch = 2, .model = {.vocab = 64, .layers = 1, .dim = 32, .heads = 2, .context = 16}, .steps = 2};

class Loop {
 public:
  Loop(const Sizes& sizes, const at::Device& gpu) : sizes_(sizes), model_(sizes.model) {
    model_.initialize(0);
    model_.to(gpu);
    const at::TensorOptions numbers = at::TensorOptions().dtype(at::kLong).device(gpu);
    const std::int64_t shape[] = {sizes.batch, sizes.model.context};
    tokens_ = at::randint(sizes.model.vocab, shape, numbers);
    targets_ = at::randint(sizes.model.vocab, shape, numbers).flatten();
    for (const at::Tensor& parameter : model_.parameters()) {
      means_.push_back(at::zeros_like(parameter));
      squares_.push_back(at::zeros_like(parameter));
      done_.push_back(at::zeros({}, at::TensorOptions().dtype(at::kFloat).device(gpu)));
    }
  }

  // Milliseconds of a step of the bare loop.
  double bare() {
    return time([&] { return model_.forward(tokens_); });
  }
  // Milliseconds of a step with data_parallel().
  double wrapped(const Communicator& world) {
    auto parallel = data_parallel(model_, world);
    return time([&] { return parallel(tokens_); });
  }

 private:
  using Forward = std::function<at::Tensor()>;

  double time(const Forward& forward) {
    for (int i = 0; i < kStepsBefore; ++i) step(forward);
    wait();
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < sizes_.steps; ++i) step(forward);
    wait();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count() / sizes_.steps;
  }

  void step(const Forward& forward) {
    at::Tensor loss;
    {
      const nn::Autocast autocast(at::kBFloat16, at::kCUDA);
      loss = nn::cross_entropy(forward().flatten(0, 1), targets_);
    }
    loss.backward();
    const at::NoGradGuard no_grad;
    const std::vector<at::Tensor> parameters = model_.parameters();
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& parameter : parameters) gradients.push_back(parameter.grad());
    at::_foreach_add_(done_, 1);
    at::_fused_adamw_(parameters, gradients, means_, squares_, {}, done_, /*lr=*/1e-4, /*beta1=*/0.9, /*beta2=*/0.999,
                      /*weight_decay=*/0.01, /*eps=*/1e-8, /*amsgrad=*/false, /*maximize=*/false);
    for (const at::Tensor& parameter : parameters) parameter.mutable_grad() = at::Tensor();
  }

  // Waits for the GPU: the number is copied after all work on the current stream.
  void wait() const { static_cast<void>(model_.parameters().back().flatten()[0].item<float>()); }

  Sizes sizes_;
  models::Gpt model_;
  at::Tensor tokens_;
  at::Tensor targets_;
  std::vector<at::Tensor> means_;  // the states of AdamW
  std::vector<at::Tensor> squares_;
  std::vector<at::Tensor> done_;
};

int run(const Sizes& sizes) {
  tensor::open_torch_cuda();
  const Communicator world = init({.device = Device::cuda()});
  Loop loop(sizes, at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(world.device().index)));
  loop.bare();  // warms up
  fmt::print("| round | bare loop, ms | data_parallel, ms |\n|---|---|---|\n");
  std::vector<double> shares;
  for (int round = 0; round < kRounds; ++round) {
    const double bare = loop.bare();
    const double wrapped = loop.wrapped(world);
    shares.push_back(bare / wrapped);
    fmt::print("| {} | {:.3f} | {:.3f} |\n", round + 1, bare, wrapped);
  }
  std::nth_element(shares.begin(), shares.begin() + kRounds / 2, shares.end());
  fmt::print("speed with data_parallel as a share of the bare loop's: {:.4f}\n", shares[kRounds / 2]);
  return 0;
}

}  // namespace
}  // namespace reigen

int main(int argc, char** argv) {
  const bool small = argc == 2 && std::string_view(argv[1]) == "--small";
  if (argc > 1 && !small) {
    fmt::print(stderr, "check_step: wrong words; usage: check_step [--small]\n");
    return static_cast<int>(reigen::ExitCode::kUsage);
  }
  try {
    return reigen::run(small ? reigen::kSmall : reigen::kGpt2);
  } catch (const reigen::Error& error) {
    fmt::print(stderr, "check_step: {}\n", error.what());
    return static_cast<int>(error.exit_code());
  }
}
