#include "parallel/strategies/weights.h"

#include <ATen/ATen.h>

#include "parallel/strategies/average.h"

namespace reigen::parallel {

std::uint64_t average_weights(Communicator& world, const std::vector<ParameterRange>& parameters, const char* tag) {
  std::vector<at::Tensor> values;
  for (const ParameterRange& range : parameters) values.push_back(range.values());
  begin_average(world, values, tag).wait();
  note_change(parameters);
  return bytes_of(values);
}

void note_change(const std::vector<ParameterRange>& parameters) {
  for (const ParameterRange& range : parameters) {
    for (const tensor::Segment& segment : range.segments()) {
      segment.parameter.unsafeGetTensorImpl()->bump_version();
    }
  }
}

}  // namespace reigen::parallel
