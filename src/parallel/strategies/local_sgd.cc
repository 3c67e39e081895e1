#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <utility>

#include "base/check.h"
#include "parallel/strategies/average.h"
#include "parallel/strategies/weights.h"
#include "reigen/parallel/strategies.h"

namespace reigen::parallel {

namespace {

class LocalSgd : public WeightStrategy {
 public:
  LocalSgd(Communicator world, const LocalSgdOptions& options)
      : world_(std::move(world)), options_(options), step_(at::zeros({1}, at::kLong)) {}

  std::string description() const override {
    return fmt::format("local_sgd every {} start_step {}", options_.every, options_.start_step);
  }
  bool works_on_gpu() const override { return true; }
  std::uint64_t bytes_given() const override { return bytes_; }
  void attach(const std::vector<ParameterRange>& parameters) override {
    require_wide("local_sgd", parameters);
    parameters_ = parameters;
  }

  bool averages_gradients() const override { return steps() < options_.start_step; }

  void after_step() override {
    step_.add_(1);
    const std::int64_t local = steps() - options_.start_step;
    if (local > 0 && local % options_.every == 0) settle();
  }
  void settle() override {
    if (steps() <= options_.start_step) return;  // the weights are still equal
    const at::NoGradGuard no_grad;
    bytes_ += average_weights(world_, parameters_, "average of weights");
  }
  std::map<std::string, at::Tensor> state() const override { return {{"step", step_}}; }

 private:
  std::int64_t steps() const { return *step_.const_data_ptr<std::int64_t>(); }

  Communicator world_;
  const LocalSgdOptions options_;
  at::Tensor step_;
  std::vector<ParameterRange> parameters_;
  std::uint64_t bytes_ = 0;
};

}  // namespace

StrategyFactory local_sgd(const LocalSgdOptions& options) {
  REIGEN_CHECK(options.every >= 1, "[local_sgd] every is out of range\n  got: {}   expected: 1 or more", options.every);
  REIGEN_CHECK(options.start_step >= 0, "[local_sgd] start_step is out of range\n  got: {}   expected: 0 or more",
               options.start_step);
  return [options](const Communicator& world) { return std::make_unique<LocalSgd>(world, options); };
}

}  // namespace reigen::parallel
