// Finds ranks whose weights differ. In every step each rank hashes 16 of its weights, and it chooses other weights than
// in the step before. The hash is a part of the tag of the call that sends the step's first bucket. Ranks compare the
// tags of every call anyway, so this adds no call. If an optimizer makes a different step on one rank, all weights of
// that rank differ, and the backward after that step finds this. If a model has n weights, a weight is sampled about
// once in n / 16 steps on average. Cost: 2 to 14 microseconds a step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reigen/tensor/parameter_range.h"

namespace reigen::parallel {

class WeightSample {
 public:
  // The ranges outlive this object, and the memory of their weights does not move.
  explicit WeightSample(const std::vector<tensor::ParameterRange>& ranges);

  // Returns a text such as "weights 1a2b3c4d", with a hash of some weights as they are now. Ranks with the same weights
  // and the same `step` get the same text.
  std::string text(std::int64_t step) const;

 private:
  struct Place {
    const char* data = nullptr;
    std::uint64_t numel = 0;
    std::uint64_t bytes = 0;  // size of an element
  };
  std::vector<Place> places_;  // one per parameter
};

// `text`: the text of a CollectiveMismatch, which contains the tags of the calls that differ between ranks. `label`:
// the beginning of the tag of a bucket ("step 7 bucket 0"). If the tags begin with `label` and contain different hashes
// of weights, throws an Error that says that the weights differ. Otherwise does nothing.
void throw_if_weights_differ(const std::string& text, const std::string& label);

}  // namespace reigen::parallel
