#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <utility>

#include "base/check.h"
#include "parallel/strategies/average.h"
#include "reigen/parallel/strategies.h"
#include "tensor/calls.h"

namespace reigen::parallel {

namespace {

class Compressed : public GradientStrategy {
 public:
  Compressed(Communicator world, at::ScalarType type) : world_(std::move(world)), type_(type) {}

  std::string description() const override { return fmt::format("compressed {}", c10::toString(type_)); }
  bool keeps_zeros() const override { return true; }
  bool works_on_gpu() const override { return true; }

  void begin(const GradientBucket& bucket) override {
    at::NoGradGuard no_grad;
    parts_.resize(std::max(parts_.size(), bucket.index + 1));
    Part& part = parts_[bucket.index];
    if (is_narrow(bucket)) {
      part.work = begin_average(world_, bucket.runs, bucket.tag);
      bytes_ += bytes_of(bucket.runs);
      return;
    }
    std::int64_t count = 0;
    for (const at::Tensor& run : bucket.runs) count += run.numel();
    ensure_room(part.whole, world_, count, type_, bucket.runs.front().device());
    std::int64_t at = 0;
    for (const at::Tensor& run : bucket.runs) {
      part.whole.narrow(0, at, run.numel()).copy_(run);
      at += run.numel();
    }
    part.work = begin_average(world_, {part.whole}, bucket.tag);
    bytes_ += part.whole.nbytes();
  }

  void end(const GradientBucket& bucket) override {
    at::NoGradGuard no_grad;
    Part& part = parts_[bucket.index];
    const bool is_whole = is_narrow(bucket);
    tensor::wait_for(std::exchange(part.work, Work()), bucket.runs.front());
    if (is_whole) return;
    std::int64_t at = 0;
    for (const at::Tensor& run : bucket.runs) {
      run.copy_(part.whole.narrow(0, at, run.numel()));
      at += run.numel();
    }
  }

  std::uint64_t bytes_given() const override { return bytes_; }

 private:
  struct Part {
    at::Tensor whole = {};  // the bucket's runs, one after the other, rounded to type_
    Work work = {};
  };

  static bool is_narrow(const GradientBucket& bucket) { return bucket.runs.front().element_size() <= 2; }

  Communicator world_;
  const at::ScalarType type_;
  std::vector<Part> parts_;  // indexed by bucket
  std::uint64_t bytes_ = 0;
};

}  // namespace

StrategyFactory compressed(at::ScalarType type) {
  REIGEN_CHECK(type == at::kBFloat16 || type == at::kHalf,
               "[compressed] gradients cannot travel in this type\n  got: {}   expected: BFloat16 or Half",
               c10::toString(type));
  return [type](const Communicator& world) { return std::make_unique<Compressed>(world, type); };
}

}  // namespace reigen::parallel
