// Samples of several tensors. The inputs of the model are a picture and a row of a table. Its outputs are a class and a
// number.
//
//   build/two_inputs -n 2 --train.epochs 3
#include <reigen/reigen.h>
#include <reigen/train/program.h>
#include <torch/torch.h>

struct Net : torch::nn::Module {
  at::Tensor features(const at::Tensor& picture, const at::Tensor& row) {
    const auto seen = torch::relu(convolution(picture)).mean({2, 3});
    return torch::tanh(joint(torch::cat({seen, row}, 1)));
  }
  torch::nn::Conv2d convolution = register_module("convolution", torch::nn::Conv2d(1, 8, 3));
  torch::nn::Linear joint = register_module("joint", torch::nn::Linear(8 + 4, 32));
  torch::nn::Linear which = register_module("which", torch::nn::Linear(32, 2));
  torch::nn::Linear how_much = register_module("how_much", torch::nn::Linear(32, 1));
};

class TwoInputs : public reigen::train::Task {
 public:
  const std::string& name() const override {
    static const std::string name = "two_inputs";
    return name;
  }
  Net& module() override { return net_; }
  reigen::data::DatasetPtr training_data() override { return samples(360, 1); }
  reigen::data::DatasetPtr test_data() override { return samples(120, 2); }

  // loss_of() and score_of() receive all tensors of the samples. loss() and score() would receive only the first input
  // and the first target.
  at::Tensor loss_of(const reigen::data::Samples& samples) override {
    const auto features = net_.features(samples.inputs[0], samples.inputs[1]);
    return torch::cross_entropy_loss(net_.which(features), samples.targets[0]) +
           torch::mse_loss(net_.how_much(features).squeeze(1), samples.targets[1]);
  }
  reigen::train::Scores score_of(const reigen::data::Samples& samples) override {
    const auto features = net_.features(samples.inputs[0], samples.inputs[1]);
    const auto classes = net_.which(features);
    const auto count = samples.targets[0].size(0);
    return {.loss_sum = loss_of(samples).item<double>() * static_cast<double>(count),
            .correct = classes.argmax(1).eq(samples.targets[0]).sum().item<std::int64_t>(),
            .count = count};
  }

 private:
  static reigen::data::DatasetPtr samples(std::int64_t count, std::uint64_t seed) {
    const auto picture = torch::empty({count, 1, 8, 8});
    const auto row = torch::empty({count, 4});
    reigen::nn::fill_uniform(picture, "picture", seed, 1.0);  // every rank draws the same values
    reigen::nn::fill_uniform(row, "row", seed, 1.0);
    const auto brightness = picture.mean({1, 2, 3}) + row.select(1, 0);
    return reigen::data::in_memory({picture, row}, {brightness.gt(0).to(torch::kLong), row.sum(1)}, "drawn");
  }

  Net net_;
};

int main(int argc, char** argv) {
  return reigen::train::run<TwoInputs>(
      argc, argv,
      {.name = "two_inputs",
       .summary = "a picture and a row of a table in, a class and a number out",
       .defaults = {.train = {.epochs = 2, .global_batch = 36}, .optim = {.lr = 3e-3}}});
}
