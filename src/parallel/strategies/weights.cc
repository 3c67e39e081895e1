#include "parallel/strategies/weights.h"

#include <ATen/ATen.h>

#include "base/check.h"
#include "parallel/strategies/average.h"
#include "tensor/calls.h"

namespace reigen::parallel {

std::uint64_t average_weights(const Communicator& world, const std::vector<ParameterRange>& parameters,
                              const char* tag) {
  std::vector<at::Tensor> values;
  for (const ParameterRange& range : parameters) values.push_back(range.values());
  tensor::wait_for(begin_average(world, values, tag), values.front());
  note_change(parameters);
  return bytes_of(values);
}

void require_wide(const char* strategy, const std::vector<ParameterRange>& parameters) {
  for (const ParameterRange& range : parameters) {
    const at::ScalarType type = range.values().scalar_type();
    REIGEN_CHECK(type == at::kFloat || type == at::kDouble,
                 "[{}] cannot bring weights of this type together\n  got: {}   expected: Float or Double\n  fix: keep "
                 "fp32 weights and compute in 16 bits (nn::Autocast)",
                 strategy, c10::toString(type));
  }
}

void note_change(const std::vector<ParameterRange>& parameters) {
  for (const ParameterRange& range : parameters) {
    for (const tensor::Segment& segment : range.segments()) {
      segment.parameter.unsafeGetTensorImpl()->bump_version();
    }
  }
}

}  // namespace reigen::parallel
