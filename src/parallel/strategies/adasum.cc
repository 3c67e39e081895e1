#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"
#include "parallel/strategies/error_memory.h"
#include "reigen/comm/call_group.h"
#include "reigen/parallel/strategies.h"
#include "reigen/tensor/data_type.h"
#include "tensor/shared_tensor.h"

namespace reigen::parallel {

namespace {

// out = (1 - a·b / 2a²)·a + (1 - a·b / 2b²)·b. One order of additions: both ranks of a pair get the same bits.
template <class Number>
void combine(const Number* a, const Number* b, Number* out, std::int64_t count) {
  double ab = 0;
  double aa = 0;
  double bb = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto x = static_cast<double>(a[i]);
    const auto y = static_cast<double>(b[i]);
    ab += x * y;
    aa += x * x;
    bb += y * y;
  }
  const auto of_a = static_cast<Number>(aa == 0 ? 1 : 1 - ab / (2 * aa));
  const auto of_b = static_cast<Number>(bb == 0 ? 1 : 1 - ab / (2 * bb));
  for (std::int64_t i = 0; i < count; ++i) out[i] = of_a * a[i] + of_b * b[i];
}

// In round k rank r exchanges with rank r xor 2^k what both have then: after log2 P rounds all have the same.
class Adasum : public Strategy {
 public:
  explicit Adasum(Communicator world) : world_(std::move(world)) {}

  std::string description() const override { return "adasum"; }
  std::uint64_t bytes_given() const override { return bytes_; }
  bool averages() const override { return false; }
  void attach(const std::vector<ParameterRange>&) override {
    // Here and not in the constructor: every rank has compared its options, so every rank throws.
    REIGEN_CHECK(std::has_single_bit(static_cast<unsigned>(world_.size())),
                 "[adasum] needs a power of 2 of ranks\n  got: {}   expected: 2, 4, 8, ...", world_.size());
  }

  void begin(const GradientBucket& bucket) override {
    const at::NoGradGuard no_grad;
    parts_.resize(std::max(parts_.size(), bucket.index + 1));
    Part& part = parts_[bucket.index];
    std::int64_t count = 0;
    for (const at::Tensor& gradient : bucket.gradients) count += gradient.numel();
    const at::ScalarType type = wide_type(bucket.gradients.front().scalar_type());
    tensor::ensure_shared(part.mine, world_, count, type);
    tensor::ensure_shared(part.theirs, world_, count, type);
    std::int64_t at = 0;
    for (const at::Tensor& gradient : bucket.gradients) {
      part.mine.narrow(0, at, gradient.numel()).copy_(gradient.view({-1}));
      at += gradient.numel();
    }
    part.work = exchange(part, 1, bucket.tag);
  }

  void end(const GradientBucket& bucket) override {
    const at::NoGradGuard no_grad;
    Part& part = parts_[bucket.index];
    std::exchange(part.work, Work()).wait();
    for (int distance = 1; distance < world_.size(); distance *= 2) {
      if (distance > 1) exchange(part, distance, bucket.tag).wait();
      const bool first = (world_.rank() & distance) == 0;
      AT_DISPATCH_FLOATING_TYPES(part.mine.scalar_type(), "adasum", [&] {
        auto* mine = part.mine.mutable_data_ptr<scalar_t>();
        const auto* theirs = part.theirs.const_data_ptr<scalar_t>();
        for (const at::Tensor& gradient : bucket.gradients) {
          combine(first ? mine : theirs, first ? theirs : mine, mine, gradient.numel());
          mine += gradient.numel();
          theirs += gradient.numel();
        }
      });
    }
    std::int64_t at = 0;
    for (const at::Tensor& gradient : bucket.gradients) {
      at::Tensor(gradient).view({-1}).copy_(part.mine.narrow(0, at, gradient.numel()));
      at += gradient.numel();
    }
  }

 private:
  struct Part {
    at::Tensor mine = {};
    at::Tensor theirs = {};
    Work work = {};
  };

  Work exchange(Part& part, int distance, const std::string& tag) {
    const int peer = world_.rank() ^ distance;
    const auto count = static_cast<std::size_t>(part.mine.numel());
    const DataType type = tensor::to_data_type(part.mine.scalar_type());
    CallGroup calls(world_);
    world_.send(part.mine.const_data_ptr(), count, type, peer, {.tag = tag});
    world_.recv(part.theirs.mutable_data_ptr(), count, type, peer, {.tag = tag});
    bytes_ += part.mine.nbytes();
    return calls.run({.async = true});
  }

  Communicator world_;
  std::vector<Part> parts_;  // by bucket
  std::uint64_t bytes_ = 0;
};

}  // namespace

StrategyFactory adasum() {
  return [](const Communicator& world) { return std::make_unique<Adasum>(world); };
}

}  // namespace reigen::parallel
