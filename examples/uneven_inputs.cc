// Every rank has a different number of batches, for example because each reads files of its own. No sample is left out,
// no rank waits for ever, and all ranks end with the same weights and the same optimizer state.
//
//   reigen run -n 3 build/bin/uneven_inputs
#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "reigen/reigen.h"

namespace {

at::Tensor target_of(const at::Tensor& input) { return input.sin().sum(1, true); }

}  // namespace

int main() try {
  auto world = reigen::init();
  torch::nn::Sequential model(torch::nn::Linear(8, 64), torch::nn::Tanh(), torch::nn::Linear(64, 1));
  auto parallel = reigen::data_parallel(model, world);  // all ranks begin with rank 0's weights
  auto optimizer = reigen::optim::AdamW(parallel.parameters(), {.lr = 5e-3});

  auto numbers = at::make_generator<at::CPUGeneratorImpl>(static_cast<std::uint64_t>(1234 + world.rank()));
  const auto draw = [&](std::int64_t rows) { return torch::empty({rows, 8}).uniform_(0, 1, numbers); };
  const auto judged = torch::full({64, 8}, 0.5) + torch::linspace(-0.4, 0.4, 64).unsqueeze(1);
  const auto show = [&](const char* when) {
    const torch::NoGradGuard no_grad;
    const auto loss = torch::mse_loss(model->forward(judged), target_of(judged));
    if (world.rank() == 0) fmt::print("{} loss {:.6f}\n", when, loss.item<double>());
  };

  show("before");
  const int batches = 60 + 20 * world.rank();
  for (int epoch = 0; epoch < 3; ++epoch) {
    reigen::Join join(parallel);
    for (int batch = 0; batch < batches; ++batch) {
      const auto input = draw(32);
      optimizer.zero_grad();
      torch::mse_loss(parallel(input), target_of(input)).backward();
      optimizer.step();
    }
    join.finish([&] { optimizer.step(); });  // calls step() as long as another rank has batches
  }
  show("after");

  auto ends = torch::cat(
      {parallel.parameters()[0].values().max().unsqueeze(0), parallel.parameters()[0].values().sum().unsqueeze(0)});
  const auto largest = reigen::all_reduce(ends, world, {.op = reigen::ReduceOp::kMax});
  const auto smallest = reigen::all_reduce(ends, world, {.op = reigen::ReduceOp::kMin});
  if (!largest.equal(smallest)) throw reigen::InternalError("the ranks' weights differ");
  if (world.rank() == 0) fmt::print("the same weights on every rank\n");
  return 0;
} catch (const reigen::Error& error) {
  fmt::print(stderr, "error: {}\n", error.what());
  return static_cast<int>(error.exit_code());
} catch (const std::exception& error) {
  fmt::print(stderr, "error: {}\n", error.what());
  return 2;
}
