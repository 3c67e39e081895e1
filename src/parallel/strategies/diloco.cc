#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <utility>

#include "base/check.h"
#include "parallel/strategies/error_memory.h"
#include "parallel/strategies/weights.h"
#include "reigen/parallel/strategies.h"

namespace reigen::parallel {

namespace {

// After every `every` steps there is an outer step:
//   d = anchor - mean of all ranks' weights; m = momentum·m + d; anchor -= lr·(d + momentum·m); weights = anchor
// Here lr and momentum are the options outer_lr and outer_momentum.
class Diloco : public WeightStrategy {
 public:
  Diloco(Communicator world, const DilocoOptions& options)
      : world_(std::move(world)), options_(options), step_(at::zeros({1}, at::kLong)) {}

  std::string description() const override {
    return fmt::format("diloco every {} outer_lr {} outer_momentum {}", options_.every, options_.outer_lr,
                       options_.outer_momentum);
  }
  bool works_on_gpu() const override { return true; }
  std::uint64_t bytes_given() const override { return bytes_; }
  void attach(const std::vector<ParameterRange>& parameters) override {
    require_wide("diloco", parameters);
    parameters_ = parameters;
    for (const ParameterRange& range : parameters) {
      anchors_.push_back(range.values().to(wide_type(range.values().scalar_type())).clone());
      momenta_.push_back(at::zeros_like(anchors_.back()));
    }
  }

  void after_step() override {
    step_.add_(1);
    if (*step_.const_data_ptr<std::int64_t>() % options_.every != 0) return;
    settle();
    const at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const at::Tensor change = anchors_[i] - parameters_[i].values();
      momenta_[i].mul_(options_.outer_momentum).add_(change);
      anchors_[i].sub_(change, options_.outer_lr).sub_(momenta_[i], options_.outer_lr * options_.outer_momentum);
      at::Tensor(parameters_[i].values()).copy_(anchors_[i]);
    }
  }
  void settle() override {
    const at::NoGradGuard no_grad;
    bytes_ += average_weights(world_, parameters_, "average of weights");
  }
  std::map<std::string, at::Tensor> state() const override {
    std::map<std::string, at::Tensor> result{{"step", step_}};
    for (std::size_t i = 0; i < anchors_.size(); ++i) {
      result[fmt::format("anchor.{}", i)] = anchors_[i];
      result[fmt::format("momentum.{}", i)] = momenta_[i];
    }
    return result;
  }

 private:
  Communicator world_;
  const DilocoOptions options_;
  at::Tensor step_;
  std::vector<ParameterRange> parameters_;
  std::vector<at::Tensor> anchors_;  // the weights after the last outer step, one tensor for each range
  std::vector<at::Tensor> momenta_;
  std::uint64_t bytes_ = 0;
};

}  // namespace

StrategyFactory diloco(const DilocoOptions& options) {
  REIGEN_CHECK(options.every >= 1, "[diloco] every is out of range\n  got: {}   expected: 1 or more", options.every);
  REIGEN_CHECK(options.outer_lr > 0, "[diloco] outer_lr is out of range\n  got: {}   expected: above 0",
               options.outer_lr);
  REIGEN_CHECK(options.outer_momentum >= 0 && options.outer_momentum < 1,
               "[diloco] outer_momentum is out of range\n  got: {}   expected: 0 or more, below 1",
               options.outer_momentum);
  return [options](const Communicator& world) { return std::make_unique<Diloco>(world, options); };
}

}  // namespace reigen::parallel
