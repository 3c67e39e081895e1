#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <optional>
#include <utility>

#include "base/check.h"
#include "parallel/strategies/weights.h"
#include "reigen/parallel/strategies.h"

namespace reigen::parallel {

namespace {

class HierarchicalSgd : public WeightStrategy {
 public:
  HierarchicalSgd(Communicator world, const HierarchicalSgdOptions& options)
      : world_(std::move(world)), options_(options), step_(at::zeros({1}, at::kLong)) {}

  std::string description() const override {
    return fmt::format("hierarchical_sgd group_size {} every {} global_every {}", options_.group_size, options_.every,
                       options_.global_every);
  }
  bool works_on_gpu() const override { return true; }
  std::uint64_t bytes_given() const override { return bytes_; }
  void attach(const std::vector<ParameterRange>& parameters) override {
    require_wide("hierarchical_sgd", parameters);
    parameters_ = parameters;
    group_ = world_.split(static_cast<int>(world_.rank() / options_.group_size));
  }

  void after_step() override {
    step_.add_(1);
    const std::int64_t steps = *step_.const_data_ptr<std::int64_t>();
    if (steps % options_.every != 0) return;
    if (steps / options_.every % options_.global_every == 0) return settle();
    if (group_->size() == 1) return;
    const at::NoGradGuard no_grad;
    bytes_ += average_weights(*group_, parameters_, "average of a group's weights");
  }
  void settle() override {
    const at::NoGradGuard no_grad;
    bytes_ += average_weights(world_, parameters_, "average of all weights");
  }
  std::map<std::string, at::Tensor> state() const override { return {{"step", step_}}; }

 private:
  Communicator world_;
  const HierarchicalSgdOptions options_;
  at::Tensor step_;
  std::optional<Communicator> group_;
  std::vector<ParameterRange> parameters_;
  std::uint64_t bytes_ = 0;
};

}  // namespace

StrategyFactory hierarchical_sgd(const HierarchicalSgdOptions& options) {
  const auto check = [](const char* name, std::int64_t value) {
    REIGEN_CHECK(value >= 1, "[hierarchical_sgd] {} is out of range\n  got: {}   expected: 1 or more", name, value);
  };
  check("group_size", options.group_size);
  check("every", options.every);
  check("global_every", options.global_every);
  return [options](const Communicator& world) { return std::make_unique<HierarchicalSgd>(world, options); };
}

}  // namespace reigen::parallel
