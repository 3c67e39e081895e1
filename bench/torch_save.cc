// Writes files with C++'s torch::save, for scripts/compare/files.
//   torch_save FOLDER     writes the files into it
#include <torch/torch.h>

#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

namespace {

struct Inner : torch::nn::Module {
  Inner() {
    linear = register_module("linear", torch::nn::Linear(3, 2));
    norm = register_module("norm", torch::nn::BatchNorm1d(2));
    scale = register_parameter("scale", torch::randn({}));
    count = register_buffer("count", torch::arange(3));
  }
  torch::nn::Linear linear{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  at::Tensor scale;
  at::Tensor count;
};

struct Outer : torch::nn::Module {
  Outer() {
    register_module("first", std::make_shared<Inner>());
    register_module("list", torch::nn::ModuleList(torch::nn::Conv2d(1, 2, 3),
                                                  torch::nn::LayerNorm(torch::nn::LayerNormOptions({4}))));
    register_module("sequence", torch::nn::Sequential(torch::nn::Linear(2, 2), torch::nn::ReLU()));
    register_module("rnn", torch::nn::LSTM(2, 3));
    register_module("attention", torch::nn::MultiheadAttention(4, 2));
  }
};

void save_tensors(const std::filesystem::path& folder) {
  const at::Tensor values = torch::randn({3, 4});
  torch::save(values, folder / "tensor_float.pt");
  torch::save(values.to(torch::kDouble), folder / "tensor_double.pt");
  torch::save(values.to(torch::kHalf), folder / "tensor_half.pt");
  torch::save(values.to(torch::kFloat8_e4m3fn), folder / "tensor_float8.pt");
  torch::save(values.to(torch::kComplexFloat), folder / "tensor_complex.pt");
  torch::save(values.to(torch::kComplexDouble), folder / "tensor_complex_double.pt");
  torch::save(torch::arange(6).to(torch::kUInt16), folder / "tensor_uint16.pt");
  torch::save(values > 0, folder / "tensor_bool.pt");
  torch::save(torch::tensor(2.5), folder / "tensor_scalar.pt");
  torch::save(torch::empty({2, 0, 3}), folder / "tensor_empty.pt");
  torch::save(values.t(), folder / "tensor_transposed.pt");
  torch::save(std::vector<at::Tensor>{values, values.narrow(0, 1, 2), torch::arange(5)}, folder / "vector.pt");
}

void save_modules(const std::filesystem::path& folder) {
  torch::save(torch::nn::Linear(3, 2), folder / "module_linear.pt");
  const torch::nn::Sequential net(torch::nn::Linear(3, 2), torch::nn::BatchNorm1d(2), torch::nn::Linear(2, 2));
  torch::save(net, folder / "module_sequential.pt");
  torch::save(std::make_shared<Outer>(), folder / "module_nested.pt");
}

template <class Optimizer, class Options>
void save_optimizer(const std::filesystem::path& path, const Options& options) {
  const torch::nn::Linear first(3, 2);
  const torch::nn::Linear second(2, 2);
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(first->parameters());
  groups.emplace_back(second->parameters());
  Optimizer optimizer(groups, options);
  for (const auto& group : groups) {
    for (const at::Tensor& parameter : group.params()) parameter.mutable_grad() = torch::randn_like(parameter);
  }
  optimizer.step();
  torch::save(optimizer, path);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "torch_save FOLDER\n";
    return 64;
  }
  const std::filesystem::path folder(argv[1]);
  torch::manual_seed(1);
  save_tensors(folder);
  save_modules(folder);
  namespace optim = torch::optim;
  save_optimizer<optim::Adam>(folder / "optimizer_adam.pt", optim::AdamOptions(1e-3).amsgrad(true));
  save_optimizer<optim::AdamW>(folder / "optimizer_adamw.pt", optim::AdamWOptions(1e-3));
  save_optimizer<optim::SGD>(folder / "optimizer_sgd.pt", optim::SGDOptions(1e-3).momentum(0.9));
  save_optimizer<optim::RMSprop>(folder / "optimizer_rmsprop.pt", optim::RMSpropOptions(1e-3));
  save_optimizer<optim::Adagrad>(folder / "optimizer_adagrad.pt", optim::AdagradOptions(1e-3));
  torch::serialize::OutputArchive archive;
  archive.write("weight", torch::randn({2}));
  archive.write("mean", torch::randn({2}), true);
  archive.write("epoch", c10::IValue(std::int64_t{3}));
  archive.write("name", c10::IValue("net"));
  archive.save_to(folder / "archive.pt");
  return 0;
}
