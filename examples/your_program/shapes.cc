// A classification of your own: a model, data, a figure and options. The program draws its pictures: bars that stand or
// lie, and squares.
//
//   build/shapes -n 2 --train.epochs 3 --run.dir runs/shapes        and then
//   build/shapes test --run.dir runs/shapes                          (validate, predict)
#include <reigen/reigen.h>
#include <reigen/train/program.h>
#include <torch/torch.h>
using namespace reigen;

struct Shapes : train::DataModule {
  explicit Shapes(const train::Config& config) : noise(config.model.real("data.noise")) {}
  data::DatasetPtr training() override { return draw(600, "training"); }
  data::DatasetPtr validation() override { return draw(150, "validation"); }
  data::DatasetPtr draw(std::int64_t count, const char* name) const {
    const auto picture = torch::empty({count, 1, 12, 12});
    nn::fill_normal(picture, name, 1, noise);  // the same values on every rank
    const auto kind = torch::arange(count).remainder(3);
    for (std::int64_t i = 0; i < count; ++i) {
      const auto high = i % 3 == 0 ? 8 : 3, wide = i % 3 == 1 ? 8 : 3;
      picture[i][0].narrow(0, i % 4, high).narrow(1, i / 3 % 4, wide) += 1;
    }
    return data::in_memory(picture, kind, name);
  }
  double noise;
};

struct Largest {  // a figure of your own
  double most = 0;
  void merge(const Largest& other) { most = std::max(most, other.most); }
  double value() const { return most; }
};

struct Classify : train::Task {
  explicit Classify(const train::Config& config)
      : net(torch::nn::Conv2d(1, config.model["channels"], 5), torch::nn::ReLU(), torch::nn::AdaptiveMaxPool2d(2),
            torch::nn::Flatten(), torch::nn::Linear(4 * config.model["channels"], 3)) {}
  torch::nn::Module& module() override { return *net; }
  at::Tensor training_step(const data::Samples& batch) override {
    const auto scores = net->forward(batch.input);
    log("training_accuracy", train::accuracy(scores, batch.target));
    log("largest_score", Largest{scores.max().item<double>()});
    return torch::cross_entropy_loss(scores, batch.target);
  }
  void validation_step(const data::Samples& batch) override {
    log("accuracy", train::accuracy(net->forward(batch.input), batch.target));
  }
  std::vector<data::NamedTensor> predict_step(const data::Samples& batch) override {
    return {{"kind", net->forward(batch.input).argmax(1)}};
  }
  torch::nn::Sequential net;
};

int main(int argc, char** argv) {
  const config::ModelConfig own{
      .options = {{"channels", 8, "of the convolution"}, {"data.noise", 0.3, "in a picture"}}};
  return train::run<Classify, Shapes>(
      argc, argv, {.name = "shapes", .defaults = {.train = {.global_batch = 60}, .optim = {.lr = 1e-2}, .model = own}});
}
