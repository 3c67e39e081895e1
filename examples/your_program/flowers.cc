// ResNet on photos of your own: photos in classes, augmented, from a folder or a container.
//
//   reigen data pack flowers/train flowers/train.lmdb     (and val; the folders do as well)
//   build/flowers -n 2 --data.path flowers --run.dir runs/flowers
//   build/flowers test --run.dir runs/flowers
#include <reigen/data/pipeline.h>
#include <reigen/image/operations.h>
#include <reigen/models/resnet.h>
#include <reigen/train/program.h>
#include <torch/torch.h>

#include <filesystem>
using namespace reigen;

struct Flowers : train::DataModule {
  explicit Flowers(const train::Config& config) : path(config.data.path), size(config.model["data.size"]) {}
  data::DatasetPtr training() override {
    return photos("train").map(image::random_resized_crop(size)).map(image::random_flip());
  }
  data::DatasetPtr validation() override {
    return photos("val").map(image::resize_shorter(size * 8 / 7)).map(image::center_crop(size));
  }
  data::Pipeline photos(const std::string& part) const {
    const auto container = path / (part + ".lmdb");
    return data::open(std::filesystem::exists(container) ? container : path / part);
  }
  std::filesystem::path path;
  int size;
};

struct Classify : train::Task {
  explicit Classify(const train::Config& config)  // norm_batch: the number of ranks changes no result
      : model({.depth = config.model["depth"], .classes = config.model["classes"], .norm_batch = 32}) {}
  torch::nn::Module& module() override { return model; }
  void initialize(std::uint64_t seed) override { model.initialize(seed); }
  at::Tensor training_step(const data::Samples& batch) override {
    const auto loss = torch::cross_entropy_loss(model.forward(batch.input), batch.target);
    log("training_loss", loss);
    return loss;
  }
  void validation_step(const data::Samples& batch) override {
    log("accuracy", train::accuracy(model.forward(batch.input), batch.target));
  }
  models::ResNet model;
};

int main(int argc, char** argv) {
  const config::ModelConfig own{.options = {{"classes", 102, "kinds of flowers"},
                                            {"depth", 50, "layers of the ResNet"},
                                            {"data.size", 224, "pixels of a side"}}};
  return train::run<Classify, Flowers>(
      argc, argv, {.name = "flowers", .data = "a folder with train and val", .defaults = {.model = own}});
}
