// Ranks shard weights, gradients and optimizer states (FSDP), block by block. They write checkpoints from which any
// number of ranks can go on.
//
//   reigen run -n 2 build/bin/sharded runs/sharded          60 steps
//   reigen run -n 4 build/bin/sharded runs/sharded          60 more steps from that checkpoint, on four ranks
#include <fmt/format.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <string>
#include <vector>

#include "reigen/reigen.h"

namespace {

struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(std::int64_t width) {
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
    up = register_module("up", torch::nn::Linear(width, 4 * width));
    down = register_module("down", torch::nn::Linear(4 * width, width));
  }
  at::Tensor forward(const at::Tensor& x) { return x + down(torch::gelu(up(norm(x)))); }
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Linear up{nullptr}, down{nullptr};
};

// forward() runs the parts one after the other. data_parallel() gathers the weights of a unit before the unit runs, and
// frees them after it.
struct Net : torch::nn::Module {
  Net() {
    const auto add = [&](const std::string& name, const auto& part) {
      parts.emplace_back(name, register_module(name, part));
    };
    add("stem", std::make_shared<torch::nn::LinearImpl>(28 * 28, 128));
    for (int i = 0; i < 6; ++i) add(fmt::format("block{}", i), std::make_shared<BlockImpl>(128));
    add("head", std::make_shared<torch::nn::LinearImpl>(128, 10));
  }
  at::Tensor forward(const at::Tensor& images) { return reigen::nn::fold(parts, images.flatten(1)); }
  std::vector<reigen::nn::Unit> parts;
};

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) {
    fmt::print(stderr, "usage: sharded DIRECTORY\n  DIRECTORY: of the checkpoints\n");
    return 2;
  }
  constexpr std::int64_t kSteps = 60;
  auto world = reigen::init();
  auto data = reigen::data::digits();
  auto loader = reigen::data::Loader(data, {.batch_size = 64 / world.size(), .shuffle = true}, world);

  Net model;
  reigen::nn::initialize(model, 0);
  // The blocks are gathered one at a time; stem and head, which are small, are gathered with the first forward.
  auto parallel = reigen::data_parallel(
      model, world, {.shard = reigen::Shard::kParameters, .units = reigen::nn::units_of_type<BlockImpl>(model.parts)});
  const auto found = reigen::checkpoint::find_newest(argv[1]);
  if (found.newest) parallel.load(*found.newest);
  auto optimizer = reigen::optim::AdamW(parallel.parameters(), {.lr = 1e-3});
  std::int64_t step = 0;
  std::int64_t epoch = 0;
  std::int64_t position = 0;  // samples of this epoch that were already used
  if (found.newest) {
    step = found.newest->manifest().step;
    epoch = found.newest->manifest().epoch;
    position = found.newest->manifest().position;
    optimizer.load_state(reigen::tensor::read_group(*found.newest, "optimizer", optimizer.state()), step);
    if (world.rank() == 0) fmt::print("going on after step {}\n", step);
  }

  reigen::checkpoint::Saver saver(argv[1], world, {.keep = 2, .asynchronous = true});
  const std::int64_t end = step + kSteps;
  for (; step < end; ++epoch, position = 0) {
    for (auto& batch : loader.epoch(epoch, position)) {
      auto loss = torch::cross_entropy_loss(parallel(batch.input), batch.target);
      (loss * batch.weight).backward();
      optimizer.step();
      optimizer.zero_grad();
      if (++step % 20 == 0) {
        double sum = loss.item<double>() * static_cast<double>(batch.count);
        world.all_reduce(&sum, &sum, 1, reigen::DataType::kFloat64, reigen::ReduceOp::kSum);
        if (world.rank() == 0) fmt::print("step {} loss {:.4f}\n", step, sum / static_cast<double>(batch.global_count));
        // save() copies the pieces. A thread writes the copy during the next steps.
        const reigen::tensor::Pieces weights(parallel.own_weights());
        const reigen::tensor::Pieces states(parallel.own(optimizer.state()));
        saver.save({.step = step,
                    .epoch = epoch,
                    .position = batch.position,
                    .global_batch = loader.global_batch(),
                    .world_size = world.size(),
                    .optimizer_steps = step},
                   {{"model", weights.pieces()}, {"optimizer", states.pieces()}});
      }
      if (step == end) break;
    }
  }
  saver.wait();
  return 0;
} catch (const reigen::Error& error) {
  fmt::print(stderr, "error: {}\n", error.what());
  return static_cast<int>(error.exit_code());
} catch (const std::exception& error) {
  fmt::print(stderr, "error: {}\n", error.what());
  return 2;
}
