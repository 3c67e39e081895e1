// The parameters that get gradients in a backward: the trainable parameters in the module's order, and where each of
// them lies in the flat ranges.
// Thread rule: a value; each thread may use its own copy.
#pragma once

#include <cstddef>
#include <vector>

#include "parallel/exchange/bucket_plan.h"
#include "reigen/tensor/parameter_range.h"

namespace reigen::parallel {

struct TrainedParameters {
  std::vector<ParameterRange> ranges;
  std::vector<ParameterPlace> places;           // one for each parameter
  std::vector<std::vector<std::size_t>> index;  // index[range][segment] is the parameter's number

  std::size_t size() const { return places.size(); }
  const ParameterRange& range_of(std::size_t parameter) const { return ranges[places[parameter].range]; }
  const tensor::Segment& segment_of(std::size_t parameter) const {
    return range_of(parameter).segments()[places[parameter].segment];
  }
  // Returns the places of the parameters whose numbers are in `order`, in the same order.
  std::vector<ParameterPlace> places_of(const std::vector<std::size_t>& order) const;
  // Returns the numbers of all parameters, the last parameter of the module first. Backward makes gradients in about
  // this order.
  std::vector<std::size_t> last_first() const;
  // Sets the parameter's slot (its place in the range's gradient buffer) to its gradient, or to zeros if it has none.
  void fill_slot(std::size_t parameter) const;
  bool has_gradient(std::size_t parameter) const { return range_of(parameter).is_active(places[parameter].segment); }
};

// `in_order`: the trainable parameters in the module's order. Each of them must be in one of the ranges.
TrainedParameters trained_parameters(std::vector<ParameterRange> ranges, const std::vector<at::Tensor>& in_order);

}  // namespace reigen::parallel
