#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <optional>
#include <utility>

#include "base/check.h"
#include "parallel/strategies/late_exchange.h"
#include "parallel/strategies/weights.h"
#include "reigen/parallel/strategies.h"

namespace reigen::parallel {

namespace {

class StaleSynchronous : public WeightStrategy {
 public:
  StaleSynchronous(Communicator world, const StaleSynchronousOptions& options)
      : world_(std::move(world)), staleness_(options.staleness) {}

  std::string description() const override { return fmt::format("stale_synchronous staleness {}", staleness_); }
  bool works_on_gpu() const override { return true; }
  std::uint64_t bytes_given() const override { return bytes_; }

  void attach(const std::vector<ParameterRange>& parameters) override {
    require_wide("stale_synchronous", parameters);
    parameters_ = parameters;
    for (const ParameterRange& range : parameters) {
      before_.push_back(range.values().clone());
      message_bytes_ += range.values().nbytes();
    }
    std::vector<int> others;
    for (int rank = 0; rank < world_.size(); ++rank) {
      if (rank != world_.rank()) others.push_back(rank);
    }
    exchange_.emplace(world_, others, message_bytes_);
  }

  void after_step() override {
    const at::NoGradGuard no_grad;
    auto* message = static_cast<std::byte*>(exchange_->message());
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      at::Tensor values = parameters_[i].values();
      at::Tensor sent = on_host(message, values);
      at::Tensor change = values.is_cpu() ? sent : at::empty_like(values);
      at::sub_out(change, values, before_[i]);
      change.div_(static_cast<double>(world_.size()));
      at::add_out(values, before_[i], change);
      if (!values.is_cpu()) sent.copy_(change);
      message += values.nbytes();
    }
    exchange_->send();
    bytes_ += message_bytes_ * static_cast<std::uint64_t>(world_.size() - 1);
    take(exchange_->sent() - staleness_);
  }

  void settle() override {
    const at::NoGradGuard no_grad;
    take(exchange_->sent());
    // Every rank has added the same changes, but in its own order. So the ranks' weights differ by rounding errors.
    bytes_ += average_weights(world_, parameters_, "average of weights");
    remember();
  }

 private:
  // The message's values for a range. Messages are in the host's memory, also if the weights are on a GPU.
  static at::Tensor on_host(const std::byte* message, const at::Tensor& values) {
    return at::from_blob(const_cast<std::byte*>(message), {values.numel()}, values.options().device(at::kCPU));
  }
  void take(std::int64_t until) {
    exchange_->receive(until, [this](std::size_t, const std::byte* theirs, const std::byte*) {
      for (const ParameterRange& range : parameters_) {
        at::Tensor values = range.values();
        values.add_(on_host(theirs, values).to(values.device()));
        theirs += values.nbytes();
      }
    });
    remember();
    note_change(parameters_);
  }
  void remember() {
    for (std::size_t i = 0; i < parameters_.size(); ++i) before_[i].copy_(parameters_[i].values());
  }

  Communicator world_;
  const std::int64_t staleness_;
  std::vector<ParameterRange> parameters_;
  std::vector<at::Tensor> before_;  // weights before the step, one tensor for each range
  std::size_t message_bytes_ = 0;
  std::optional<LateExchange> exchange_;
  std::uint64_t bytes_ = 0;
};

}  // namespace

StrategyFactory stale_synchronous(const StaleSynchronousOptions& options) {
  REIGEN_CHECK(options.staleness >= 0 && options.staleness <= 1000,
               "[stale_synchronous] staleness is out of range\n  got: {}   expected: 0 to 1000", options.staleness);
  return [options](const Communicator& world) { return std::make_unique<StaleSynchronous>(world, options); };
}

}  // namespace reigen::parallel
