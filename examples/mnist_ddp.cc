// `reigen train mnist` as a training loop of your own: the same model, data, order and seed, and therefore the same
// losses.
//
//   reigen run -n 2 build/bin/mnist_ddp                     digits that the library draws
//   reigen run -n 2 build/bin/mnist_ddp data/mnist 200      MNIST's own files, 200 steps
#include <fmt/format.h>
#include <torch/types.h>

#include <charconv>
#include <string>
#include <string_view>

#include "reigen/models/mnist_cnn.h"
#include "reigen/reigen.h"

int main(int argc, char** argv) try {
  const std::string_view folder = argc > 1 ? argv[1] : "";
  const std::string_view wanted = argc > 2 ? argv[2] : "2147483647";
  int steps = 0;
  const auto [end, error] = std::from_chars(wanted.data(), wanted.data() + wanted.size(), steps);
  if (folder.starts_with('-') || argc > 3 || error != std::errc() || *end != '\0' || steps < 1) {
    fmt::print(stderr, "usage: mnist_ddp [FOLDER [STEPS]]\n  FOLDER: MNIST's own files; STEPS: at least 1\n");
    return 2;
  }

  auto world = reigen::init();  // takes rank and size from reigen run, torchrun, srun or mpirun
  auto data = folder.empty() ? reigen::data::digits() : reigen::data::mnist(std::string(folder));
  auto loader = reigen::data::Loader(data, {.batch_size = 64, .shuffle = true}, world);  // 64 per rank

  reigen::models::MnistCnn model;
  reigen::nn::initialize(model, 0);
  auto parallel = reigen::data_parallel(model, world);
  auto optimizer = reigen::optim::AdamW(parallel.parameters(), {.lr = 1e-3, .weight_decay = 0.01});

  int step = 0;
  for (int epoch = 0; epoch < 3 && step < steps; ++epoch) {
    for (auto& batch : loader.epoch(epoch)) {
      auto loss = torch::cross_entropy_loss(parallel(batch.input), batch.target);
      // Buckets are all-reduced while backward runs. The weight corrects the mean of a last batch in which ranks have
      // unequal numbers of samples.
      (loss * batch.weight).backward();
      optimizer.set_lr(reigen::optim::warm_up(1e-3, step, 100));
      optimizer.step();
      optimizer.zero_grad();

      double sum = loss.item<double>() * static_cast<double>(batch.count);
      world.all_reduce(&sum, &sum, 1, reigen::DataType::kFloat64, reigen::ReduceOp::kSum);
      sum /= static_cast<double>(batch.global_count);
      if (++step % 10 == 0 && world.rank() == 0) fmt::print("epoch {} step {} loss {}\n", epoch + 1, step, sum);
      if (step == steps) break;
    }
  }
  return 0;
} catch (const reigen::Error& error) {
  fmt::print(stderr, "error: {}\n", error.what());
  return static_cast<int>(error.exit_code());
} catch (const std::exception& error) {
  fmt::print(stderr, "error: {}\n", error.what());
  return 2;
}
