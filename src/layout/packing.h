// Packs tensors into flat buffers: decides which tensors share a buffer, where each tensor lies in it, and where the
// ranks' shares begin.
// Thread rule: values, freely copied between threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "reigen/layout/layout.h"

namespace reigen::layout {

// Tensors that are packed together; each element type among them gets its own buffer.
struct PackingGroup {
  std::size_t unit = kNoUnit;
  std::vector<std::size_t> tensors = {};  // indices in the model
};

// One group for each unit, in the order of the units, then groups of about `limit` bytes for tensors that are in no
// unit. boxes[i]: the shape of tensor i on this rank. Groups without tensors are left out.
std::vector<PackingGroup> group_by_unit(const ModelSpec& model, const std::vector<std::size_t>& tensors,
                                        const std::vector<Shape>& boxes, std::size_t limit);

// One range for each type in the group, in the order of the types' first tensors. `shares`: the number of ranks between
// which each range is divided. has_spares: spare blocks for backward follow the gradients.
std::vector<Range> pack(const ModelSpec& model, const PackingGroup& group, const std::vector<Shape>& boxes, int shares,
                        bool has_spares);

// Rounds up to the next multiple of 64 bytes, in elements.
std::int64_t aligned(std::int64_t elements, format::TensorType type);
std::int64_t element_bytes(format::TensorType type);

// Elements of a buffer including its spare blocks, each at a multiple of 64 bytes.
std::int64_t elements_with_spares(const Range& range);

}  // namespace reigen::layout
