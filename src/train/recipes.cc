#include "train/recipes.h"

#include "reigen/train/mnist_task.h"

namespace reigen::train {

namespace {

Config mnist_defaults() {
  Config config;
  config.train.epochs = 3;
  config.optim.warmup_steps = 100;
  return config;
}

}  // namespace

const std::vector<Recipe>& recipes() {
  static const std::vector<Recipe> kRecipes = {
      {.name = "mnist",
       .summary = "a convolutional network on digits, MNIST's files or drawn",
       .defaults = mnist_defaults(),
       .batch_per_rank = 64,
       .make = [](const Config& config) -> std::unique_ptr<Task> {
         return std::make_unique<MnistTask>(MnistOptions{
             .path = config.data.path, .type = config.train.precision == "fp64" ? c10::kDouble : c10::kFloat});
       }},
  };
  return kRecipes;
}

}  // namespace reigen::train
