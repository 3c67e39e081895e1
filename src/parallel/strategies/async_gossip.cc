#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <utility>

#include "base/check.h"
#include "parallel/strategies/late_exchange.h"
#include "parallel/strategies/weights.h"
#include "reigen/parallel/strategies.h"

namespace reigen::parallel {

namespace {

constexpr std::int64_t kBlock = 1024;  // number of weights that share a scale

std::int64_t blocks_of(std::int64_t count) { return (count + kBlock - 1) / kBlock; }

// Each rank has weights x and a public copy y of its weights, which its neighbours can compute from its messages. In
// step n a rank sends its neighbours q_n = round((x - y) / scale), and adds scale·q_n to y. For each neighbour it keeps
// d = y_neighbour - y_own, both after the same number of messages, and adds gain·d to x. The neighbour's d has the same
// bits with the opposite sign, so the mean of all x does not change. A change that is small compared with others in its
// block rounds to zero. It is sent in a later step, after the large changes.
class AsyncGossip : public WeightStrategy {
 public:
  AsyncGossip(Communicator world, const AsyncGossipOptions& options)
      : world_(std::move(world)), staleness_(options.staleness) {}

  std::string description() const override { return fmt::format("async_gossip staleness {}", staleness_); }
  bool works_on_gpu() const override { return true; }
  std::uint64_t bytes_given() const override { return bytes_; }

  void attach(const std::vector<ParameterRange>& parameters) override {
    require_wide("async_gossip", parameters);
    parameters_ = parameters;
    const int size = world_.size();
    std::vector<int> neighbours{(world_.rank() + 1) % size};
    if (size > 2) neighbours.push_back((world_.rank() + size - 1) % size);
    for (const ParameterRange& range : parameters) {
      const std::int64_t padded = blocks_of(range.values().numel()) * kBlock;
      counts_.push_back(padded);
      message_bytes_ += padded + padded / kBlock * static_cast<std::int64_t>(sizeof(float));
      public_.push_back(at::zeros({padded}, range.values().options()));
      differences_.emplace_back();
      for (std::size_t i = 0; i < neighbours.size(); ++i) differences_.back().push_back(at::zeros_like(public_.back()));
    }
    forget();
    exchange_.emplace(world_, neighbours, static_cast<std::size_t>(message_bytes_));
    neighbours_ = neighbours.size();
    gain_ = stable_gain();
  }

  void after_step() override {
    const at::NoGradGuard no_grad;
    tell();
    take(exchange_->sent() - staleness_);
  }

  void settle() override {
    const at::NoGradGuard no_grad;
    take(exchange_->sent());
    bytes_ += average_weights(world_, parameters_, "average of weights");
    forget();
  }

 private:
  // d lags behind x by up to `staleness` messages of the neighbour and as many messages of this rank. With a lag of s
  // steps, s = `staleness`, the step x' = x - g·x(t - s) is stable for g below 2·sin(pi / (4s + 2)). Here g is the gain
  // times the largest eigenvalue of the ring's Laplacian: 2 for a pair, else 4.
  double stable_gain() const {
    const double largest = world_.size() == 2 ? 2 : 4;
    const double limit = 2 * std::sin(std::numbers::pi / static_cast<double>(4 * staleness_ + 2));
    return std::min(1.0 / static_cast<double>(neighbours_ + 1), 0.5 * limit / largest);
  }

  // Call it when all ranks have the same weights. Then y = x and d = 0 on every rank.
  void forget() {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const at::Tensor& values = parameters_[i].values();
      public_[i].narrow(0, 0, values.numel()).copy_(values);
      for (at::Tensor& difference : differences_[i]) difference.zero_();
    }
  }

  std::int64_t scale_bytes(std::size_t range) const {
    return counts_[range] / kBlock * static_cast<std::int64_t>(sizeof(float));
  }
  std::int64_t size_of(std::size_t range) const { return counts_[range] + scale_bytes(range); }
  // The message's bytes for a range. Messages are in the host's memory, also if the weights are on a GPU.
  at::Tensor on_host(const std::byte* message, std::size_t range) const {
    return at::from_blob(const_cast<std::byte*>(message), {size_of(range)}, at::kByte);
  }
  at::Tensor scales_in(const at::Tensor& message, std::size_t range) const {
    return message.narrow(0, 0, scale_bytes(range)).view(at::kFloat).view({-1, 1});
  }
  at::Tensor steps_in(const at::Tensor& message, std::size_t range) const {
    return message.narrow(0, scale_bytes(range), counts_[range]).view(at::kChar).view({-1, kBlock});
  }
  // Returns the change of y (scale·q_n) that a message contains, in the weights' type and on their device.
  at::Tensor decode(const at::Tensor& message, std::size_t range) const {
    const at::ScalarType type = public_[range].scalar_type();
    const at::Tensor bytes = message.to(public_[range].device());
    return steps_in(bytes, range).to(type).mul_(scales_in(bytes, range).to(type)).view({-1});
  }

  void tell() {
    auto* message = static_cast<std::byte*>(exchange_->message());
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const at::Tensor& values = parameters_[i].values();
      at::Tensor change = public_[i].neg();
      change.narrow(0, 0, values.numel()).add_(values);
      change = change.view({-1, kBlock});
      const at::Tensor sent = on_host(message, i);
      const at::Tensor bytes = values.is_cpu() ? sent : at::empty_like(sent, values.device());
      at::Tensor scales = scales_in(bytes, i);
      scales.copy_(change.abs().amax({1}, true).div_(127));
      const at::Tensor divisors = scales.to(change.scalar_type()).masked_fill(scales == 0, 1);
      steps_in(bytes, i).copy_(change.div_(divisors).round_().clamp_(-127, 127));
      public_[i].add_(decode(bytes, i));
      if (!values.is_cpu()) at::Tensor(sent).copy_(bytes);
      message += size_of(i);
    }
    exchange_->send();
    bytes_ += static_cast<std::uint64_t>(message_bytes_) * neighbours_;
  }

  void take(std::int64_t until) {
    exchange_->receive(until, [this](std::size_t neighbour, const std::byte* theirs, const std::byte* ours) {
      std::int64_t at = 0;
      for (std::size_t i = 0; i < parameters_.size(); ++i) {
        at::Tensor& difference = differences_[i][neighbour];
        difference.add_(decode(on_host(theirs + at, i), i).sub_(decode(on_host(ours + at, i), i)));
        at::Tensor values = parameters_[i].values();
        values.add_(difference.narrow(0, 0, values.numel()), gain_);
        at += size_of(i);
      }
    });
    note_change(parameters_);
  }

  Communicator world_;
  const std::int64_t staleness_;
  double gain_ = 0;
  std::size_t neighbours_ = 0;
  std::vector<ParameterRange> parameters_;
  std::vector<std::int64_t> counts_;                  // by range: number of weights, padded to whole blocks
  std::vector<at::Tensor> public_;                    // y, by range
  std::vector<std::vector<at::Tensor>> differences_;  // d, by range and neighbour
  std::int64_t message_bytes_ = 0;
  std::optional<LateExchange> exchange_;
  std::uint64_t bytes_ = 0;
};

}  // namespace

StrategyFactory async_gossip(const AsyncGossipOptions& options) {
  REIGEN_CHECK(options.staleness >= 0 && options.staleness <= 1000,
               "[async_gossip] staleness is out of range\n  got: {}   expected: 0 to 1000", options.staleness);
  return [options](const Communicator& world) { return std::make_unique<AsyncGossip>(world, options); };
}

}  // namespace reigen::parallel
