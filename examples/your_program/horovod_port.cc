// An ordinary LibTorch program with LibTorch's own dataset, loader and optimizer. Numbers [1] to [5] mark the few lines
// that Horovod would add too.
//
//   reigen run -n 2 build/horovod_port
#include <reigen/reigen.h>
#include <torch/torch.h>

#include <cmath>
#include <cstdio>
#include <optional>

constexpr std::size_t kSamples = 480;
constexpr std::size_t kGlobalBatch = 48;

// A dataset of points on a surface. It holds one rank's samples: the rank's share of every global batch.
struct Surface : torch::data::datasets::Dataset<Surface> {
  Surface(std::size_t rank, std::size_t ranks)
      : share(kGlobalBatch / ranks), first(rank * share), count(kSamples / ranks) {}
  torch::data::Example<> get(std::size_t index) override {
    const auto i = static_cast<double>(index / share * kGlobalBatch + first + index % share);
    const auto input = torch::tensor({std::sin(i), std::cos(2 * i), std::sin(3 * i)}, torch::kFloat);
    return {input, input.prod().unsqueeze(0)};
  }
  std::optional<std::size_t> size() const override { return count; }
  std::size_t share, first, count;
};

int main() {
  auto world = reigen::init();  // [1] hvd.init()
  const auto ranks = static_cast<std::size_t>(world.size());

  // [2] each rank reads its share of every global batch
  const Surface surface(static_cast<std::size_t>(world.rank()), ranks);
  auto loader = torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(
      Surface(surface).map(torch::data::transforms::Stack<>()), surface.share);

  torch::manual_seed(1);
  torch::nn::Sequential model(torch::nn::Linear(3, 32), torch::nn::Tanh(), torch::nn::Linear(32, 1));
  // [3] wraps the optimizer; [4] gives all ranks the weights of rank 0
  auto optimizer = reigen::DistributedOptimizer(torch::optim::SGD(model->parameters(), 0.1), model, world);
  reigen::broadcast_parameters(*model, 0, world);

  int step = 0;
  for (int epoch = 0; epoch < 10; ++epoch) {
    for (auto& batch : *loader) {
      optimizer.zero_grad();
      auto loss = torch::mse_loss(model->forward(batch.data), batch.target);
      loss.backward();
      optimizer.step();
      // [5] computes the mean loss of all ranks
      const auto mean = reigen::all_reduce(loss.detach(), world, {.op = reigen::ReduceOp::kAvg});
      if (++step % 10 == 0 && world.rank() == 0) std::printf("step %d loss %.7f\n", step, mean.item<double>());
    }
  }
}
