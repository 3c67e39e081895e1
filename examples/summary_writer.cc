// A loop by hand whose curves, weights, pictures and parameters TensorBoard shows.
//
//   build/bin/summary_writer runs/by_hand
//   tensorboard --logdir runs
//
// With a second word it also writes a curve of so many points: build/bin/summary_writer runs/by_hand 1000000
#include <fmt/format.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <filesystem>
#include <string>

#include "reigen/reigen.h"
#include "reigen/train/summary_writer.h"

int main(int argc, char** argv) try {
  const std::filesystem::path directory = argc > 1 ? argv[1] : "runs/by_hand";
  const auto data = reigen::data::digits({.split = reigen::data::Split::kTrain});
  torch::manual_seed(1);
  torch::nn::Sequential model(torch::nn::Flatten(), torch::nn::Linear(784, 32), torch::nn::ReLU(),
                              torch::nn::Linear(32, 10));
  const double lr = 0.1;
  torch::optim::SGD optimizer(model->parameters(), lr);

  reigen::train::SummaryWriter board(directory);
  board.hparams({{"lr", lr}, {"hidden", 32.0}, {"optimizer", std::string("sgd")}, {"flatten", true}}, {"train/loss"});
  board.graph(*model);
  board.text("about", "**Digits** that a program draws, and a net of two layers.", 0);
  constexpr std::int64_t kSteps = 100, kBatch = 32;
  double loss_of_step = 0;
  for (std::int64_t step = 1; step <= kSteps; ++step) {
    std::vector<std::int64_t> indices;
    for (std::int64_t i = 0; i < kBatch; ++i) indices.push_back((step - 1) * kBatch + i);
    const reigen::data::Samples batch = data->gather(indices);
    optimizer.zero_grad();
    const auto loss = torch::nn::functional::cross_entropy(model->forward(batch.input), batch.target);
    loss.backward();
    optimizer.step();
    loss_of_step = loss.item<double>();
    board.scalar("train/loss", loss_of_step, step);
    if (step == 1) board.images("first batch", batch.input * 0.3081 + 0.1307, step);  // as data::digits normalised them
    if (step % 20 != 0) continue;
    for (const auto& item : model->named_parameters()) {
      board.histogram("weights/" + item.key(), item.value(), step);
      board.histogram("gradients/" + item.key(), item.value().grad(), step);
    }
  }
  const std::int64_t points = argc > 2 ? std::stoll(argv[2]) : 0;
  for (std::int64_t i = 0; i < points; ++i) board.scalar("curve", std::sin(static_cast<double>(i) / 1000), i);
  board.hparams_end(true, kSteps);
  board.flush();
  fmt::print("loss {:.4f}, events in {}\n", loss_of_step, board.path().string());
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "error: {}\n", error.what());
  return 1;
}
