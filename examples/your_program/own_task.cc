// A task of your own. The program has everything that `reigen train mnist` has: flags, --help, progress, checkpoints,
// a clean stop on Ctrl-C, resume, exit codes. The model learns a curve, so the task reports no accuracy. The program
// makes its data itself and reads no data file.
//
//   build/own_task -n 2 --model.dim 64 --loss.quantile 0.9
#include <reigen/reigen.h>
#include <reigen/train/program.h>
#include <torch/torch.h>

class Points : public reigen::train::DataModule {
 public:
  explicit Points(const reigen::train::Config& config)
      : type_(config.train.precision == "fp64" ? torch::kDouble : torch::kFloat) {}
  reigen::data::DatasetPtr training() override { return points(600, "train"); }
  reigen::data::DatasetPtr validation() override { return points(150, "validation"); }

 private:
  reigen::data::DatasetPtr points(std::int64_t count, const char* name) const {
    const auto x = torch::linspace(-2, 2, count, type_).unsqueeze(1);
    return reigen::data::in_memory(x, torch::sin(3 * x) + 0.1 * torch::cos(40 * x), name);
  }
  at::ScalarType type_;
};

class Curve : public reigen::train::Task {
 public:
  explicit Curve(const reigen::train::Config& config)
      : quantile_(config.model.real("loss.quantile")),
        model_(torch::nn::Linear(1, config.model["dim"]), torch::nn::Tanh(),
               torch::nn::Linear(config.model["dim"], 1)) {
    if (config.train.precision == "fp64") model_->to(torch::kDouble);
  }

  torch::nn::Module& module() override { return *model_; }

  // Returns the mean loss over the samples. The trainer calls backward() on this mean.
  at::Tensor training_step(const reigen::data::Samples& batch) override {
    const auto apart = batch.target - model_->forward(batch.input);
    log("largest_error", reigen::train::Max{apart.abs().max().item<double>()});
    return torch::maximum(quantile_ * apart, (quantile_ - 1) * apart).mean();  // quantile loss
  }
  // Logs means over the samples. The trainer adds them up over all batches and ranks.
  void validation_step(const reigen::data::Samples& batch) override {
    log("below", batch.target.le(model_->forward(batch.input)).to(torch::kDouble).mean());
    Task::validation_step(batch);  // logs the loss as "test_loss"
  }

 private:
  double quantile_;
  torch::nn::Sequential model_;
};

int main(int argc, char** argv) {
  return reigen::train::run<Curve, Points>(
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
