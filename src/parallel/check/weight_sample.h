// Finds ranks whose weights differ. In every step each rank hashes 16 of its weights, other ones than in the step
// before. The hash travels in the tag of the step's first exchange. Ranks compare tags of every call, so no call is
// added. An optimizer that took another step on one rank changes all weights: the backward after that step finds it. A
// single weight out of n is looked at once in about n / 16 steps. Cost: 2 to 14 microseconds a step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reigen/tensor/parameter_range.h"

namespace reigen::parallel {

class WeightSample {
 public:
  // The ranges outlive this object, and their weights stay where they are.
  explicit WeightSample(const std::vector<tensor::ParameterRange>& ranges);

  // "weights 1a2b3c4d" of these weights now; the same on every rank that has the same weights and step.
  std::string text(std::int64_t step) const;

 private:
  struct Place {
    const char* data = nullptr;
    std::uint64_t numel = 0;
    std::uint64_t bytes = 0;  // of an element
  };
  std::vector<Place> places_;  // a parameter each
};

// An error of ranks whose calls differ in nothing but these words says so; else it stays as it is. `label`: what the
// tag of the calls begins with.
void throw_if_weights_differ(const std::string& text, const std::string& label);

}  // namespace reigen::parallel
