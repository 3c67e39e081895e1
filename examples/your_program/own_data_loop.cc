// A pipeline of data and a loop by hand. The samples are photos in a container of any kind. The program prints the loss
// of each step.
//
//   reigen data pack photos photos.lmdb
//   reigen run -n 2 build/own_data_loop photos.lmdb
#include <reigen/data/pipeline.h>
#include <reigen/image/operations.h>
#include <reigen/models/resnet.h>
#include <reigen/reigen.h>
#include <torch/torch.h>

#include <cstdio>
using namespace reigen;

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s CONTAINER\n", argv[0]);
    return 2;
  }
  auto world = init();

  // The order of the samples and their random numbers depend on the seed alone, not on ranks, workers or the container.
  const data::Loader loader = data::open(argv[1])
                                  .map(image::random_resized_crop(32))
                                  .map(image::random_flip())
                                  .map([](data::Sample& sample, Random& random) {  // a step of your own
                                    sample.set("weight", torch::tensor(random.chance(0.5) ? 1.0F : 2.0F));
                                  })
                                  .shuffle({.seed = 1})
                                  .shard(world)
                                  .global_batch(96)
                                  .prefetch(/*batches=*/4, /*workers=*/2)
                                  .loader();

  models::ResNet model({.depth = 18, .classes = 3, .width = 8, .norm_batch = 16});
  model.initialize(/*seed=*/0);
  auto parallel = data_parallel(model, world);
  auto optimizer = optim::AdamW(parallel.parameters(), {.lr = 3e-3});
  for (int epoch = 0; epoch < 4; ++epoch) {
    for (auto& batch : loader.epoch(epoch)) {
      const auto each = torch::cross_entropy_loss(parallel(batch.input), batch.target, {}, at::Reduction::None);
      const auto loss = (each * batch.at("weight")).mean();
      (loss * batch.weight).backward();
      optimizer.step();
      optimizer.zero_grad();
      double mean = loss.item<double>() * batch.weight / world.size();
      world.all_reduce(&mean, &mean, 1, DataType::kFloat64, ReduceOp::kSum);
      if (world.rank() == 0)
        std::printf("epoch %d, %lld photos, loss %.6f\n", epoch, static_cast<long long>(batch.position), mean);
    }
  }
}
