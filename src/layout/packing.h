// Flat buffers: which tensors lie in one, where, and where the shares of ranks begin.
// Thread rule: values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "reigen/layout/layout.h"

namespace reigen::layout {

// Tensors that go into one set of buffers.
struct PackingGroup {
  std::size_t unit = kNoUnit;
  std::vector<std::size_t> tensors = {};  // of the model
};

// One group for each unit, in the order of the units, then groups of about `limit` bytes for what is of no unit.
// boxes[i]: what lies here of tensor i. Groups without tensors are left out.
std::vector<PackingGroup> group_by_unit(const ModelSpec& model, const std::vector<std::size_t>& tensors,
                                        const std::vector<Shape>& boxes, std::size_t limit);

// One range for each type in the group, in the order of the types' first tensors; `shares` ranks divide each.
// has_spares: backward's blocks follow the gradients.
std::vector<Range> pack(const ModelSpec& model, const PackingGroup& group, const std::vector<Shape>& boxes, int shares,
                        bool has_spares);

// The next multiple of 64 bytes, in elements.
std::int64_t aligned(std::int64_t elements, format::TensorType type);
std::int64_t element_bytes(format::TensorType type);

// Elements of a buffer with its spare blocks, each at a multiple of 64 bytes.
std::int64_t elements_with_spares(const Range& range);

}  // namespace reigen::layout
