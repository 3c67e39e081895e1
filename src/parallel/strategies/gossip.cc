#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <bit>
#include <utility>

#include "base/check.h"
#include "parallel/strategies/weights.h"
#include "reigen/comm/call_list.h"
#include "reigen/parallel/strategies.h"
#include "reigen/tensor/data_type.h"
#include "tensor/calls.h"
#include "tensor/memory/shared_tensor.h"

namespace reigen::parallel {

namespace {

class Gossip : public WeightStrategy {
 public:
  Gossip(Communicator world, const GossipOptions& options)
      : world_(std::move(world)), topology_(options.topology), step_(at::zeros({1}, at::kLong)) {}

  std::string description() const override {
    return fmt::format("gossip {}", topology_ == Topology::kRing ? "ring" : "exponential");
  }
  bool works_on_gpu() const override { return true; }
  std::uint64_t bytes_given() const override { return bytes_; }
  void attach(const std::vector<ParameterRange>& parameters) override {
    require_wide("gossip", parameters);
    parameters_ = parameters;
    const std::size_t neighbours = topology_ == Topology::kRing && world_.size() > 2 ? 2 : 1;
    arrived_.resize(neighbours);
    for (auto& of_neighbour : arrived_) {
      for (const ParameterRange& range : parameters) {
        const at::Tensor& values = range.values();
        of_neighbour.push_back(tensor::shared_tensor(world_, values.numel(), values.scalar_type(), values.device()));
      }
    }
  }

  void after_step() override {
    const at::NoGradGuard no_grad;
    exchange();
    const double share = 1.0 / static_cast<double>(arrived_.size() + 1);
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      at::Tensor values = parameters_[i].values();
      for (const auto& of_neighbour : arrived_) values.add_(of_neighbour[i]);
      values.mul_(share);
    }
    note_change(parameters_);
    step_.add_(1);
  }
  void settle() override {
    const at::NoGradGuard no_grad;
    bytes_ += average_weights(world_, parameters_, "average of weights");
  }
  std::map<std::string, at::Tensor> state() const override { return {{"step", step_}}; }

 private:
  int distance() const {
    if (topology_ == Topology::kRing) return 1;
    const auto rounds = std::bit_width(static_cast<unsigned>(world_.size()) - 1);
    return 1 << (*step_.const_data_ptr<std::int64_t>() % rounds);
  }

  // Sends weights to rank + distance and receives weights from rank - distance. On a ring of more than two ranks it
  // also does so in the other direction.
  void exchange() {
    const int size = world_.size();
    const at::Tensor& first = parameters_.front().values();
    const comm::CallOptions options{.tag = "gossip", .after = tensor::stream_of(first)};
    CallList calls;
    for (std::size_t way = 0; way < arrived_.size(); ++way) {
      const int forward = way == 0 ? distance() : size - distance();
      for (std::size_t i = 0; i < parameters_.size(); ++i) {
        const at::Tensor& values = parameters_[i].values();
        const auto count = static_cast<std::size_t>(values.numel());
        const DataType type = tensor::to_data_type(values.scalar_type());
        calls.send(values.const_data_ptr(), count, type, (world_.rank() + forward) % size, options);
        calls.recv(arrived_[way][i].mutable_data_ptr(), count, type, (world_.rank() + size - forward) % size, options);
        bytes_ += values.nbytes();
      }
    }
    tensor::run_calls(world_, calls, first);
  }

  Communicator world_;
  const Topology topology_;
  at::Tensor step_;
  std::vector<ParameterRange> parameters_;
  std::vector<std::vector<at::Tensor>> arrived_;  // received weights, by neighbour and range
  std::uint64_t bytes_ = 0;
};

}  // namespace

StrategyFactory gossip(const GossipOptions& options) {
  return [options](const Communicator& world) { return std::make_unique<Gossip>(world, options); };
}

}  // namespace reigen::parallel
