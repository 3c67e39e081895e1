#include "parallel/strategies/averaged_in_step.h"

#include "parallel/strategies/average.h"

namespace reigen::parallel {

namespace {

class AveragedInStep : public Strategy {
 public:
  std::string description() const override { return "averaged in the step"; }
  void begin(const GradientBucket& bucket) override { bytes_ += bytes_of(bucket.runs); }
  std::uint64_t bytes_given() const override { return bytes_; }

 private:
  std::uint64_t bytes_ = 0;
};

}  // namespace

StrategyFactory averaged_in_step() {
  return [](const Communicator&) { return std::make_unique<AveragedInStep>(); };
}

}  // namespace reigen::parallel
