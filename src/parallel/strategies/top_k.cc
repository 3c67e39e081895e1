#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "parallel/strategies/average.h"
#include "parallel/strategies/error_memory.h"
#include "reigen/parallel/strategies.h"
#include "tensor/calls.h"

namespace reigen::parallel {

namespace {

// A bucket's message: the chosen values of all its parameters, then their places in the parameters, 32 bits each.
class TopK : public GradientStrategy {
 public:
  TopK(Communicator world, const TopKOptions& options) : world_(std::move(world)), share_(options.share) {}

  std::string description() const override { return fmt::format("top_k share {}", share_); }
  bool works_on_gpu() const override { return true; }
  std::uint64_t bytes_given() const override { return bytes_; }
  void attach(const std::vector<ParameterRange>& parameters) override { errors_.attach(parameters); }

  void begin(const GradientBucket& bucket) override {
    const at::NoGradGuard no_grad;
    parts_.resize(std::max(parts_.size(), bucket.index + 1));
    Part& part = parts_[bucket.index];
    make_room(part, bucket);
    const at::Tensor values = values_in(part, part.mine);
    const at::Tensor places = places_in(part, part.mine);
    std::int64_t at = 0;
    for (std::size_t i = 0; i < bucket.gradients.size(); ++i) {
      const std::int64_t count = part.counts[i];
      if (count == 0) continue;
      at::Tensor kept = errors_.add(bucket.names[i], bucket.gradients[i]);
      const at::Tensor largest = std::get<1>(kept.abs().topk(count, 0, true, false));
      values.narrow(0, at, count).copy_(kept.index_select(0, largest));
      places.narrow(0, at, count).copy_(largest);
      kept.index_fill_(0, largest, 0);
      at += count;
    }
    const Stream after = tensor::stream_of(part.mine);
    part.work = world_.start_all_gather(
        part.mine.const_data_ptr(), part.all.mutable_data_ptr(), part.mine.nbytes(), DataType::kUint8,
        {.progress = beside_backward(world_, after.device), .tag = bucket.tag, .after = after});
    bytes_ += part.mine.nbytes() * static_cast<std::uint64_t>(world_.size() - 1);
  }

  void end(const GradientBucket& bucket) override {
    const at::NoGradGuard no_grad;
    Part& part = parts_[bucket.index];
    tensor::wait_for(std::exchange(part.work, Work()), part.mine);
    for (const at::Tensor& gradient : bucket.gradients) at::Tensor(gradient).zero_();
    for (std::int64_t rank = 0; rank < world_.size(); ++rank) {
      const at::Tensor message = part.all.narrow(0, rank * part.mine.numel(), part.mine.numel());
      const at::Tensor values = values_in(part, message).div(static_cast<double>(world_.size()));
      const at::Tensor places = places_in(part, message);
      std::int64_t at = 0;
      for (std::size_t i = 0; i < bucket.gradients.size(); ++i) {
        const std::int64_t count = part.counts[i];
        if (count == 0) continue;
        at::Tensor sum = bucket.gradients[i].view({-1});
        sum.index_add_(0, places.narrow(0, at, count), values.narrow(0, at, count).to(sum.scalar_type()));
        at += count;
      }
    }
  }

  void settle() override { errors_.settle(world_); }
  std::map<std::string, at::Tensor> state() const override {
    std::map<std::string, at::Tensor> result;
    errors_.add_state(result);
    return result;
  }

 private:
  struct Part {
    std::vector<std::int64_t> counts = {};  // how many elements of each parameter are sent
    std::int64_t count = 0;
    at::ScalarType type = at::kFloat;
    at::Tensor mine = {};
    at::Tensor all = {};
    Work work = {};
  };

  static at::Tensor values_in(const Part& part, const at::Tensor& message) {
    const auto size = static_cast<std::int64_t>(c10::elementSize(part.type));
    return message.narrow(0, 0, part.count * size).view(part.type);
  }
  static at::Tensor places_in(const Part& part, const at::Tensor& message) {
    const auto size = static_cast<std::int64_t>(c10::elementSize(part.type));
    return message.narrow(0, part.count * size, part.count * 4).view(at::kInt);
  }

  void make_room(Part& part, const GradientBucket& bucket) {
    part.counts.clear();
    part.count = 0;
    for (const at::Tensor& gradient : bucket.gradients) {
      const auto wanted = static_cast<std::int64_t>(std::ceil(share_ * static_cast<double>(gradient.numel())));
      part.counts.push_back(
          std::clamp<std::int64_t>(wanted, std::min<std::int64_t>(1, gradient.numel()), gradient.numel()));
      part.count += part.counts.back();
    }
    part.type = wide_type(bucket.gradients.front().scalar_type());
    // The messages of all ranks lie one after the other. Their sizes are multiples of 8, so that the first element of
    // each message is aligned.
    const auto size = static_cast<std::int64_t>(c10::elementSize(part.type));
    const std::int64_t bytes = (part.count * (size + 4) + 7) / 8 * 8;
    const at::Device device = bucket.gradients.front().device();
    ensure_room(part.mine, world_, bytes, at::kByte, device);
    ensure_room(part.all, world_, bytes * world_.size(), at::kByte, device);
  }

  Communicator world_;
  const double share_;
  ErrorMemory errors_;
  std::vector<Part> parts_;  // indexed by bucket
  std::uint64_t bytes_ = 0;
};

}  // namespace

StrategyFactory top_k(const TopKOptions& options) {
  REIGEN_CHECK(options.share > 0 && options.share <= 1,
               "[top_k] share is out of range\n  got: {}   expected: above 0, up to 1", options.share);
  return [options](const Communicator& world) { return std::make_unique<TopK>(world, options); };
}

}  // namespace reigen::parallel
