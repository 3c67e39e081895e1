#include "parallel/exchange/predivided.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "reigen/base/error.h"
#include "reigen/parallel/strategies.h"

namespace reigen::parallel {
namespace {

class Predivided : public GradientStrategy {
 public:
  Predivided(std::unique_ptr<GradientStrategy> inner, double factor) : inner_(std::move(inner)), factor_(factor) {}

  std::string description() const override {
    return fmt::format("{} of gradients divided by {}", inner_->description(), factor_);
  }
  std::uint64_t bytes_given() const override { return inner_->bytes_given(); }
  void attach(const std::vector<ParameterRange>& ranges) override { inner_->attach(ranges); }
  bool keeps_zeros() const override { return inner_->keeps_zeros(); }
  bool works_on_gpu() const override { return inner_->works_on_gpu(); }
  bool averages() const override { return inner_->averages(); }
  void begin(const GradientBucket& bucket) override {
    scale(bucket, 1 / factor_);
    inner_->begin(bucket);
  }
  void end(const GradientBucket& bucket) override {
    inner_->end(bucket);
    scale(bucket, factor_);
  }
  void settle() override { inner_->settle(); }
  std::map<std::string, at::Tensor> state() const override { return inner_->state(); }

 private:
  static void scale(const GradientBucket& bucket, double factor) {
    const at::NoGradGuard no_grad;
    for (const at::Tensor& gradient : bucket.gradients) gradient.mul_(factor);
  }

  std::unique_ptr<GradientStrategy> inner_;
  double factor_;
};

}  // namespace

StrategyFactory predivided(StrategyFactory strategy, double factor) {
  if (factor == 1) return strategy;
  StrategyFactory result = strategy;
  result.gradients = [inner = strategy.gradients ? strategy.gradients : plain().gradients,
                      factor](const Communicator& world) -> std::unique_ptr<GradientStrategy> {
    if (!std::isfinite(factor) || factor <= 0) {
      throw InvalidArgument(Report{.what = "[distributed_optimizer] gradient_predivide_factor is out of range",
                                   .got = fmt::format("{}", factor),
                                   .expected = "a finite number above 0",
                                   .fix = "leave it at 1 unless gradients overflow"});
    }
    return std::make_unique<Predivided>(inner(world), factor);
  };
  if (!strategy.weights) return result;
  result.weights = [inner = strategy.weights, factor](const Communicator& world) {
    auto made = inner(world);
    if (made->averages_gradients()) return made;
    throw InvalidArgument(Report{.what = "[distributed_optimizer] gradient_predivide_factor is for sums of gradients",
                                 .got = fmt::format("{}, strategy {}", factor, made->description()),
                                 .expected = "a strategy that sends gradients",
                                 .fix = "leave one of them out"});
  };
  return result;
}

}  // namespace reigen::parallel
