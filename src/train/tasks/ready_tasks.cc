#include "reigen/train/ready_tasks.h"
#include "reigen/train/mixed_loss.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <sstream>

#include "reigen/base/error.h"
#include "train/tasks/classification.h"

namespace reigen::train::detail {

namespace {

// Without this check a target [N] and an output [N, 1] would be compared pair by pair.
void require_same_shape(const at::Tensor& output, const at::Tensor& target) {
  if (target.defined() && output.sizes() == target.sizes()) return;
  std::ostringstream got;
  got << "output " << output.sizes();
  if (target.defined()) got << ", target " << target.sizes();
  throw InvalidArgument(Report{.what = "regression(): output and target have different shapes",
                               .got = got.str(),
                               .expected = "the same shape",
                               .fix = "squeeze(1) in the model's forward, or unsqueeze(1) in the data"});
}

class ReadyTask final : public Task {
 public:
  ReadyTask(std::shared_ptr<torch::nn::Module> model, std::vector<nn::Unit> units, OfBatch compute, Kind kind,
            double label_smoothing)
      : model_(std::move(model)),
        units_(std::move(units)),
        compute_(std::move(compute)),
        kind_(kind),
        label_smoothing_(label_smoothing) {}

  torch::nn::Module& module() override { return *model_; }
  std::vector<nn::Unit> units() override { return units_; }

  at::Tensor training_step(const data::Samples& batch) override {
    const at::Tensor computed = compute_(batch);
    const at::Tensor loss = loss_of(computed, batch);
    log("training_loss", loss);
    if (kind_ == Kind::kClassification) log("training_accuracy", accuracy(computed.detach(), batch.target));
    return loss;
  }

  void validation_step(const data::Samples& batch) override {
    const at::Tensor computed = compute_(batch);
    if (kind_ != Kind::kClassification) return log("test_loss", loss_of(computed, batch));
    const ClassFigures figures = figures_of_classes(computed, batch.target);
    log("test_accuracy", figures.accuracy);
    log("test_loss", figures.loss);
  }

  std::vector<data::NamedTensor> predict_step(const data::Samples& batch) override {
    if (kind_ == Kind::kOfLoss) return Task::predict_step(batch);  // a loss says nothing of the model's output
    return {{kind_ == Kind::kClassification ? "scores" : "output", compute_(batch)}};
  }

 private:
  at::Tensor loss_of(const at::Tensor& computed, const data::Samples& batch) const {
    if (kind_ == Kind::kOfLoss) return computed;
    if (kind_ == Kind::kClassification) return mixed_cross_entropy(computed, batch, label_smoothing_);
    require_same_shape(computed, batch.target);
    return at::mse_loss(computed, batch.target);
  }

  std::shared_ptr<torch::nn::Module> model_;
  std::vector<nn::Unit> units_;
  OfBatch compute_;
  Kind kind_;
  double label_smoothing_;
};

}  // namespace

std::shared_ptr<Task> make_task(std::shared_ptr<torch::nn::Module> model, std::vector<nn::Unit> units, OfBatch compute,
                                Kind kind, double label_smoothing) {
  if (!model) throw InvalidArgument(Report{.what = "a task needs a model", .got = "a null pointer"});
  if (!(label_smoothing >= 0 && label_smoothing < 1)) {
    throw InvalidArgument(Report{.what = "classification(): label_smoothing is out of range",
                                 .got = fmt::format("{}", label_smoothing),
                                 .expected = "at least 0 and below 1"});
  }
  return std::make_shared<ReadyTask>(std::move(model), std::move(units), std::move(compute), kind, label_smoothing);
}

}  // namespace reigen::train::detail
