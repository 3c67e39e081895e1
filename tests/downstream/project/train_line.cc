// Two ranks fit y = 3x, each on its own points. A user's program with the whole library.
#include <fmt/format.h>
#include <torch/torch.h>

#include "reigen/reigen.h"

int main() {
  reigen::run_threads(2, [](reigen::Communicator& world) {
    torch::nn::Linear model(torch::nn::LinearOptions(1, 1).bias(false));
    auto parallel = reigen::data_parallel(model, world);
    auto optimizer = reigen::optim::SGD(parallel.parameters(), {.lr = 0.1});
    const auto input = torch::full({8, 1}, world.rank() + 1.0);
    for (int step = 0; step < 100; ++step) {
      torch::mse_loss(parallel(input), 3 * input).backward();
      optimizer.step();
      optimizer.zero_grad();
    }
    if (world.rank() == 0) fmt::print("slope {:.3f}\n", model->weight.item<double>());
  });
}
