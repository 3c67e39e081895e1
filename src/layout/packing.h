// Packs tensors into flat buffers: decides which tensors share a buffer, where each tensor lies in it, and where the
// ranks' shares begin.
// Thread rule: values, freely copied between threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "reigen/layout/layout.h"

namespace reigen::layout {

// Tensors that are packed together. The tensors of each element type and of each optimizer get a buffer of their own.
struct PackingGroup {
  std::size_t unit = kNoUnit;
  std::vector<std::size_t> tensors = {};  // indices in ModelSpec::tensors
};

// Returns one group for each unit, in the order of the units, and after them groups of about `limit` bytes for the
// tensors that are in no unit. boxes[i] is the shape of tensor i on this rank. Groups without tensors are left out.
std::vector<PackingGroup> group_by_unit(const ModelSpec& model, const std::vector<std::size_t>& tensors,
                                        const std::vector<Shape>& boxes, std::size_t limit);

// Returns one flat buffer (Range) for each element type and each optimizer in the group, in the order of their first
// tensors.
// `shares` is the number of ranks among which each buffer is divided. `has_spares` says whether spare blocks for
// backward follow the gradients (Range::spares).
std::vector<Range> pack(const ModelSpec& model, const PackingGroup& group, const std::vector<Shape>& boxes, int shares,
                        bool has_spares);

// Rounds a number of elements up, so that the elements take a multiple of 64 bytes.
std::int64_t aligned(std::int64_t elements, format::TensorType type);
std::int64_t element_bytes(format::TensorType type);

// Returns the number of elements of a buffer including its spare blocks. Each spare block begins at a multiple of 64
// bytes.
std::int64_t elements_with_spares(const Range& range);

}  // namespace reigen::layout
