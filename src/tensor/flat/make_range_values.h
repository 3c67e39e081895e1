// Makes the kind of RangeValues (range_values.h) that a placement asks for.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "reigen/layout/placement.h"
#include "reigen/tensor/range_values.h"
#include "tensor/flat/transient_flat.h"

namespace reigen::tensor {

// Where a parameter lies in a flat buffer, in elements.
struct Extent {
  std::int64_t offset = 0;
  std::int64_t numel = 0;
};

std::shared_ptr<RangeValues> make_range_values(const layout::Placement& placement, std::optional<Shares> shares,
                                               const at::Tensor& values, std::vector<Extent> parameters);

}  // namespace reigen::tensor
