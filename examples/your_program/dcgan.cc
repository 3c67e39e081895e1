// DCGAN, the tutorial of LibTorch's C++ front end, on any number of ranks. Two nets have an optimizer each, and the
// task makes their steps itself. Without --data.path the program draws digits; with it, the folder holds MNIST's files.
//
//   build/dcgan -n 2 --train.epochs 3 --run.dir runs/dcgan                and then
//   build/dcgan predict --run.dir runs/dcgan                              (pictures, in predictions.safetensors)
#include <reigen/data/pipeline.h>
#include <reigen/reigen.h>
#include <reigen/train/manual_task.h>
#include <reigen/train/program.h>
#include <torch/torch.h>
using namespace reigen;

constexpr std::int64_t kNoise = 100;

struct Gan : torch::nn::Module {
  explicit Gan(std::int64_t width) {
    using namespace torch::nn;
    const auto grow = [](std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride) {
      return ConvTranspose2d(ConvTranspose2dOptions(in, out, kernel).stride(stride).padding(stride - 1).bias(false));
    };
    const auto shrink = [](std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride) {
      return Conv2d(Conv2dOptions(in, out, kernel).stride(stride).padding(stride - 1).bias(false));
    };
    const LeakyReLUOptions leaky = LeakyReLUOptions().negative_slope(0.2);
    const auto w = width;
    generator = register_module(
        "generator",
        Sequential(grow(kNoise, 4 * w, 4, 1), BatchNorm2d(4 * w), ReLU(), grow(4 * w, 2 * w, 3, 2), BatchNorm2d(2 * w),
                   ReLU(), grow(2 * w, w, 4, 2), BatchNorm2d(w), ReLU(), grow(w, 1, 4, 2), Tanh()));
    discriminator = register_module(
        "discriminator", Sequential(shrink(1, w, 4, 2), LeakyReLU(leaky), shrink(w, 2 * w, 4, 2), BatchNorm2d(2 * w),
                                    LeakyReLU(leaky), shrink(2 * w, 4 * w, 4, 2), BatchNorm2d(4 * w), LeakyReLU(leaky),
                                    shrink(4 * w, 1, 3, 1), Flatten()));
  }
  torch::nn::Sequential generator{nullptr}, discriminator{nullptr};
};

struct Dcgan : train::ManualTask {
  explicit Dcgan(const train::Config& config) : gan(config.model["width"]) {}
  torch::nn::Module& module() override { return gan; }
  std::vector<train::PartOptimizer> optimizers(const train::Config&) override {
    const auto adam = [](double lr) { return optim::AdamOptions{.lr = lr, .betas = {0.9, 0.5}}; };
    return {{.name = "generator", .parameters = {"generator.*"}, .optimizer = {.rule = adam(2e-4)}},
            {.name = "discriminator", .parameters = {"discriminator.*"}, .optimizer = {.rule = adam(5e-4)}}};
  }
  at::Tensor manual_step(const data::Samples& batch, train::ManualSteps& steps) override {
    const auto fake = gan.generator->forward(batch.at("noise"));
    const auto judged =
        loss(gan.discriminator->forward(batch.input), 0.9) + loss(gan.discriminator->forward(fake.detach()), 0);
    steps.backward(judged);
    steps.step("discriminator");
    const auto fooled = loss(gan.discriminator->forward(fake), 1);
    steps.backward(fooled);
    steps.step("generator");
    log("loss_of_generator", fooled);
    return judged;
  }
  std::vector<data::NamedTensor> predict_step(const data::Samples& batch) override {
    return {{"picture", gan.generator->forward(batch.at("noise"))}};
  }
  static at::Tensor loss(const at::Tensor& score, double label) {
    return torch::binary_cross_entropy_with_logits(score, torch::full_like(score, label));
  }
  Gan gan;
};

struct Digits : train::DataModule {
  explicit Digits(const train::Config& config) : folder(config.data.path) {}
  data::DatasetPtr training() override { return with_noise(folder.empty() ? data::digits() : data::mnist(folder)); }
  data::DatasetPtr predict() override { return with_noise(data::digits({.size = 64})); }
  // The noise of a sample is the same on any number of ranks.
  static data::DatasetPtr with_noise(const data::DatasetPtr& digits) {
    return data::Pipeline(digits).map([](data::Sample& sample, Random& random) {
      at::Tensor& picture = sample.tensor("input");
      picture = (picture * 0.3081 + 0.1307) * 2 - 1;  // mnist() normalises; a generator draws from -1 to 1
      const auto noise = torch::empty({kNoise, 1, 1});
      for (float& one : std::span(noise.mutable_data_ptr<float>(), kNoise)) one = static_cast<float>(random.normal());
      sample.set("noise", noise);
    });
  }
  std::string folder;
};

int main(int argc, char** argv) {
  const config::ModelConfig own{.options = {{"width", 64, "channels of the largest maps"}}};
  return train::run<Dcgan, Digits>(argc, argv,
                                   {.name = "dcgan",
                                    .summary = "digits from noise",
                                    .data = "a folder with the files of MNIST; without it, digits are drawn",
                                    .defaults = {.train = {.epochs = 30, .global_batch = 64}, .model = own}});
}
