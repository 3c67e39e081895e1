#include "parallel/trained_parameters.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <unordered_map>
#include <utility>

namespace reigen::parallel {

TrainedParameters trained_parameters(std::vector<ParameterRange> ranges, const std::vector<at::Tensor>& in_order) {
  TrainedParameters result{.ranges = std::move(ranges), .places = {}, .index = {}};
  std::unordered_map<const at::TensorImpl*, ParameterPlace> where;
  for (std::size_t range = 0; range < result.ranges.size(); ++range) {
    const std::vector<tensor::Segment>& segments = result.ranges[range].segments();
    result.index.emplace_back(segments.size());
    for (std::size_t i = 0; i < segments.size(); ++i) {
      where[segments[i].parameter.unsafeGetTensorImpl()] = {range, i, segments[i].parameter.nbytes()};
    }
  }
  for (const at::Tensor& parameter : in_order) {
    const ParameterPlace& place = result.places.emplace_back(where.at(parameter.unsafeGetTensorImpl()));
    result.index[place.range][place.segment] = result.places.size() - 1;
  }
  return result;
}

void TrainedParameters::fill_slot(std::size_t parameter) const {
  const ParameterRange& range = range_of(parameter);
  const std::size_t segment = places[parameter].segment;
  if (range.is_active(segment)) return range.take_gradient(segment);
  at::Tensor slot = range.gradient_slot(segment);
  const at::NoGradGuard no_grad;
  slot.zero_();
}

std::vector<ParameterPlace> TrainedParameters::places_of(const std::vector<std::size_t>& order) const {
  std::vector<ParameterPlace> result;
  for (const std::size_t parameter : order) result.push_back(places[parameter]);
  return result;
}

std::vector<std::size_t> TrainedParameters::last_first() const {
  std::vector<std::size_t> order(size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = order.size() - 1 - i;
  return order;
}

}  // namespace reigen::parallel
