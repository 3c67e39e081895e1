// A training script in C++ as a user would write it for Horovod. It wraps any optimizer of LibTorch and calls the model
// directly (docs/horovod.md).
//
//   reigen run -n 2 build/bin/horovod_style
#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include "reigen/reigen.h"

int main() try {
  auto world = reigen::init();
  torch::manual_seed(static_cast<std::uint64_t>(world.rank()));  // ranks have different weights until the broadcast
  torch::nn::Sequential model(torch::nn::Linear(8, 64), torch::nn::Tanh(), torch::nn::Linear(64, 1));

  // The gradients of two backward passes add up. During the second pass, the ranks all-reduce the sum of both.
  auto optimizer = reigen::DistributedOptimizer(torch::optim::AdamW(model->parameters(), 5e-3), model, world,
                                                {.backward_passes_per_step = 2});
  // A checkpoint would be loaded here, on rank 0 only.
  reigen::broadcast_parameters(*model, 0, world);
  reigen::broadcast_optimizer_state(optimizer.wrapped(), 0, world);

  auto numbers = at::make_generator<at::CPUGeneratorImpl>(1234);  // the same numbers on every rank
  for (int step = 1; step <= 300; ++step) {
    const auto batch = torch::empty({240, 8}).uniform_(0, 1, numbers);
    const auto rows = batch.tensor_split(world.size())[static_cast<std::size_t>(world.rank())];
    auto total = torch::zeros({});
    optimizer.zero_grad();
    for (const auto& input : rows.tensor_split(2)) {
      const auto target = input.sin().sum(1, true) - input.prod(1, true);
      const auto loss = torch::mse_loss(model->forward(input), target) / 2;
      loss.backward();
      total += loss.detach();
    }
    optimizer.synchronize();
    torch::nn::utils::clip_grad_norm_(model->parameters(), 1.0);
    {
      const auto scope = optimizer.skip_synchronize();
      optimizer.step();
    }
    if (step % 50 != 0) continue;
    const auto mean = reigen::all_reduce(total, world, {.op = reigen::ReduceOp::kAvg});
    if (world.rank() == 0) fmt::print("step {} loss {:.6f}\n", step, mean.item<double>());
  }
  return 0;
} catch (const reigen::Error& error) {
  fmt::print(stderr, "error: {}\n", error.what());
  return static_cast<int>(error.exit_code());
} catch (const std::exception& error) {
  fmt::print(stderr, "error: {}\n", error.what());
  return 2;
}
