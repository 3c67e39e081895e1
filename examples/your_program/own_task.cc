// A task of your own. The program has everything that `reigen train mnist` has: flags, --help, progress, checkpoints,
// a clean stop on Ctrl-C, resume, exit codes. The model learns a curve, so the task reports no accuracy. The program
// makes its data itself and reads no data file.
//
//   build/own_task -n 2 --model.dim 64 --loss.quantile 0.9
#include <reigen/reigen.h>
#include <reigen/train/program.h>
#include <torch/torch.h>

class Curve : public reigen::train::Task {
 public:
  explicit Curve(const reigen::train::Config& config)
      : quantile_(config.model.real("loss.quantile")),
        model_(torch::nn::Linear(1, config.model["dim"]), torch::nn::Tanh(),
               torch::nn::Linear(config.model["dim"], 1)) {
    if (config.train.precision == "fp64") model_->to(torch::kDouble);
    type_ = model_->parameters().front().scalar_type();
  }

  const std::string& name() const override {
    static const std::string name = "curve";
    return name;
  }
  torch::nn::Module& module() override { return *model_; }
  reigen::data::DatasetPtr training_data() override { return points(600, "train"); }
  reigen::data::DatasetPtr test_data() override { return points(150, "test"); }

  // Returns the mean loss over the samples. The trainer calls backward() on this mean.
  at::Tensor loss(const at::Tensor& x, const at::Tensor& y) override { return losses(x, y).mean(); }

  // Returns sums over the samples. The trainer adds up the sums of all batches and ranks.
  reigen::train::Scores score(const at::Tensor& x, const at::Tensor& y) override {
    return {.loss_sum = losses(x, y).sum(torch::kDouble).item<double>(), .count = x.size(0)};
  }

 private:
  at::Tensor losses(const at::Tensor& x, const at::Tensor& y) {  // quantile loss of each sample
    const auto apart = y - model_->forward(x);
    return torch::maximum(quantile_ * apart, (quantile_ - 1) * apart);
  }

  reigen::data::DatasetPtr points(std::int64_t count, const char* name) const {
    const auto x = torch::linspace(-2, 2, count, type_).unsqueeze(1);
    return reigen::data::in_memory(x, torch::sin(3 * x) + 0.1 * torch::cos(40 * x), name);
  }

  double quantile_;
  torch::nn::Sequential model_;
  at::ScalarType type_;
};

int main(int argc, char** argv) {
  return reigen::train::run<Curve>(
      argc, argv,
      {.name = "curve",
       .summary = "a curve between points",
       .defaults = {.train = {.epochs = 4, .global_batch = 60},
                    .optim = {.lr = 1e-2},
                    .model = {.options = {{.key = "dim", .value = 32, .meaning = "width of the hidden layer"},
                                          {.key = "loss.quantile",
                                           .value = 0.5,
                                           .meaning = "share of the points that lie below the curve",
                                           .low = 0,
                                           .high = 1}}}}});
}
