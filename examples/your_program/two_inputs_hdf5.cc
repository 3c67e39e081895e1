// A number from a picture and a row of a table, which lie in an HDF5 file: /picture [samples, 1, 8, 8], /row
// [samples, 4] and /number [samples], all fp32. Four fifths of the samples are for training.
//
//   build/two_inputs_hdf5 -n 2 --data.path measured.h5 --run.dir runs/measured
#include <reigen/data/pipeline.h>
#include <reigen/train/program.h>
#include <torch/torch.h>

#include <vector>
using namespace reigen;

struct Measured : train::DataModule {
  explicit Measured(const train::Config& config)
      : parts(
            data::open(config.data.path, {.fields = {{"picture", "/picture"}, {"row", "/row"}, {"target", "/number"}}})
                .split({0.8, 0.2}, /*seed=*/7)) {}
  data::DatasetPtr training() override { return parts[0].map(add_noise); }
  data::DatasetPtr validation() override { return parts[1]; }
  static void add_noise(data::Sample& sample, Random& random) {
    sample.tensor("row") += 0.01 * (random.uniform() - 0.5);
  }
  std::vector<data::Pipeline> parts;
};

struct Net : torch::nn::Module {
  at::Tensor forward(const at::Tensor& picture, const at::Tensor& row) {
    const auto seen = torch::relu(convolution(picture)).mean({2, 3});
    return last(torch::tanh(joint(torch::cat({seen, row}, 1)))).squeeze(1);
  }
  torch::nn::Conv2d convolution = register_module("convolution", torch::nn::Conv2d(1, 8, 3));
  torch::nn::Linear joint = register_module("joint", torch::nn::Linear(8 + 4, 32));
  torch::nn::Linear last = register_module("last", torch::nn::Linear(32, 1));
};

struct Regress : train::Task {
  torch::nn::Module& module() override { return net; }
  at::Tensor training_step(const data::Samples& batch) override {
    return torch::mse_loss(net.forward(batch.at("picture"), batch.at("row")), batch.target);
  }
  void validation_step(const data::Samples& batch) override {
    log("squared_error", training_step(batch));
    log("largest_error",
        train::Max{(net.forward(batch.at("picture"), batch.at("row")) - batch.target).abs().max().item<double>()});
  }
  Net net;
};

int main(int argc, char** argv) {
  return train::run<Regress, Measured>(
      argc, argv,
      {.name = "two_inputs_hdf5",
       .data = "an HDF5 file with /picture, /row and /number",
       .defaults = {.train = {.epochs = 3, .global_batch = 36}, .optim = {.lr = 3e-3}}});
}
