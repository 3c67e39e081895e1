// Have the ranks the same weights? A few of them, other ones in every step, become a number that travels in the tag of
// the step's first exchange, which ranks compare anyway: a difference that is everywhere, as of an optimizer that
// decided otherwise on one rank, is found in the backward behind it; one of a single weight of n in about n / 16 steps.
// Cost: 2 to 14 microseconds a step, no call more.
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
