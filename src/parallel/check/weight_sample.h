// Finds ranks whose weights differ. In every step each rank hashes 16 of its weights, not the same ones as in the step
// before. The hash travels in the tag of the step's first exchange. Ranks compare the tags of every call anyway, so
// this adds no call. An optimizer that took another step on one rank changes all weights: the backward after that step
// finds it. A single weight out of n is sampled about once in n / 16 steps. Cost: 2 to 14 microseconds a step.
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

  // "weights 1a2b3c4d": a hash of sampled weights now; equal on all ranks that have the same weights and step.
  std::string text(std::int64_t step) const;

 private:
  struct Place {
    const char* data = nullptr;
    std::uint64_t numel = 0;
    std::uint64_t bytes = 0;  // size of an element
  };
  std::vector<Place> places_;  // one per parameter
};

// `text` is that of an error of ranks whose calls differ. If the calls' tags begin with `label` and carry different
// hashes of weights, throws an Error that says that the weights differ; else does nothing.
void throw_if_weights_differ(const std::string& text, const std::string& label);

}  // namespace reigen::parallel
