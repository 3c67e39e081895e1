#include <utility>

#include "parallel/strategies/average.h"
#include "reigen/parallel/strategies.h"
#include "tensor/calls.h"

namespace reigen::parallel {

namespace {

class Plain : public GradientStrategy {
 public:
  explicit Plain(Communicator world) : world_(std::move(world)) {}

  std::string description() const override { return "plain"; }
  bool keeps_zeros() const override { return true; }
  bool works_on_gpu() const override { return true; }

  void begin(const GradientBucket& bucket) override {
    works_.resize(std::max(works_.size(), bucket.index + 1));
    works_[bucket.index] = begin_average(world_, bucket.runs, bucket.tag);
    bytes_ += bytes_of(bucket.runs);
  }
  void end(const GradientBucket& bucket) override {
    tensor::wait_for(std::exchange(works_[bucket.index], Work()), bucket.runs.front());
  }
  std::uint64_t bytes_given() const override { return bytes_; }

 private:
  Communicator world_;
  std::vector<Work> works_;
  std::uint64_t bytes_ = 0;
};

}  // namespace

StrategyFactory plain() {
  return [](const Communicator& world) { return std::make_unique<Plain>(world); };
}

}  // namespace reigen::parallel
