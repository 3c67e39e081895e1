// The training of examples/your_program/shapes.cc in a loop by hand, with its task and its data. Prints the loss of
// each step, with all digits.
#define main main_of_shapes
#include "shapes.cc"
#undef main
#include <reigen/train/metrics.h>

#include <cstdio>

int main() {
  auto world = init();
  train::Config config{.train = {.global_batch = 60}, .optim = {.lr = 1e-2}};
  config.model.options = {{"channels", 8, ""}, {"data.noise", 0.3, ""}};
  Shapes shapes(config);
  Classify task(config);
  train::Metrics metrics;
  task.log_to(&metrics);
  task.initialize(0);
  auto parallel = data_parallel(task.module(), world);
  auto optimizer = optim::AdamW(parallel.parameters(), {.lr = 1e-2});
  data::Loader loader(shapes.training(), {.global_batch = 60, .shuffle = true}, world);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : loader.epoch(epoch)) {
      metrics.begin_batch(batch.terms);
      const auto loss = task.training_step(batch);
      (loss * batch.weight).backward();
      optimizer.step();
      optimizer.zero_grad();
      double sum = loss.item<double>() * static_cast<double>(batch.terms);
      world.all_reduce(&sum, &sum, 1, DataType::kFloat64, ReduceOp::kSum);
      if (world.rank() == 0) std::printf("%.17g\n", sum / static_cast<double>(batch.global_terms));
      metrics.finish(metrics.take());
    }
    const auto figures = metrics.gather(world);
    if (world.rank() == 0) std::printf("epoch %.17g\n", figures.at("training_accuracy"));
  }
}
