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
  Net& module() override { return net_; }

  at::Tensor training_step(const reigen::data::Samples& batch) override {
    const auto features = net_.features(batch.at("picture"), batch.at("row"));
    const auto classes = torch::cross_entropy_loss(net_.which(features), batch.at("class"));
    const auto number = torch::mse_loss(net_.how_much(features).squeeze(1), batch.target);
    log("loss_of_class", classes);
    log("loss_of_number", number);
    return classes + number;
  }
  void validation_step(const reigen::data::Samples& batch) override {
    const auto features = net_.features(batch.at("picture"), batch.at("row"));
    log("accuracy", reigen::train::accuracy(net_.which(features), batch.at("class")));
    log("squared_error", torch::mse_loss(net_.how_much(features).squeeze(1), batch.target));
  }

 private:
  Net net_;
};

class Drawn : public reigen::train::DataModule {
 public:
  reigen::data::DatasetPtr training() override { return samples(360, 1); }
  reigen::data::DatasetPtr validation() override { return samples(120, 2); }

 private:
  static reigen::data::DatasetPtr samples(std::int64_t count, std::uint64_t seed) {
    const auto picture = torch::empty({count, 1, 8, 8});
    const auto row = torch::empty({count, 4});
    reigen::nn::fill_uniform(picture, "picture", seed, 1.0);  // every rank draws the same values
    reigen::nn::fill_uniform(row, "row", seed, 1.0);
    const auto brightness = picture.mean({1, 2, 3}) + row.select(1, 0);
    return reigen::data::in_memory(
        {{"picture", picture}, {"row", row}, {"class", brightness.gt(0).to(torch::kLong)}, {"target", row.sum(1)}},
        "drawn");
  }
};

int main(int argc, char** argv) {
  return reigen::train::run<TwoInputs, Drawn>(
      argc, argv,
      {.name = "two_inputs",
       .summary = "a picture and a row of a table in, a class and a number out",
       .defaults = {.train = {.epochs = 2, .global_batch = 36}, .optim = {.lr = 3e-3}}});
}
