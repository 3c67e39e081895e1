// For gradients that ranks divide (ParameterRange::share()): a bucket is a range, of which each rank gets the mean of
// its share. Thread rule: as Strategy.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reigen/parallel/strategy.h"

namespace reigen::parallel {

class GradientShares : public Strategy {
 public:
  // `sharers` divide; `replicas` have the same shares, and may be this rank alone. `type`: of fp32 gradients on their
  // way; none: as they are.
  GradientShares(Communicator sharers, Communicator replicas, std::optional<at::ScalarType> type)
      : sharers_(std::move(sharers)), replicas_(std::move(replicas)), type_(type) {}

  std::string description() const override { return "shares of gradients"; }
  std::uint64_t bytes_given() const override { return bytes_; }
  void begin(const GradientBucket&) override {}
  // gradients[own share] = the mean over all ranks of range.gradient_flat(), from begin() to end(); of segments that
  // are `added`, added to what is there.
  void begin(const ParameterRange& range, std::vector<char> added, const GradientBucket& bucket);
  // Between the two: waits until the flat is no longer needed.
  void collect(const GradientBucket& bucket);
  void end(const GradientBucket& bucket) override;

 private:
  struct Part {
    Work work;
    at::Tensor rounded;  // what travels; undefined: the flat itself
    at::Tensor arrived;  // undefined: in its place
    std::vector<char> added;
    const ParameterRange* range = nullptr;
  };
  Communicator sharers_;
  Communicator replicas_;
  std::optional<at::ScalarType> type_;
  std::vector<Part> parts_;
  std::uint64_t bytes_ = 0;
};

}  // namespace reigen::parallel
