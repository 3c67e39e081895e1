// Parts of named tensors in memory. A rank writes such parts to a checkpoint, or reads them from one. Thread rule:
// these types are values; every thread may have its own copy. The memory of `bytes` belongs to the caller.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "reigen/format/safetensors.h"
#include "reigen/layout/part.h"

namespace reigen::checkpoint {

using layout::flat_part;
using layout::Part;
using layout::Shape;
using layout::whole;

// A part of a named tensor, to be written. `bytes` refers to part.count elements, little-endian.
struct Piece {
  std::string name;
  format::TensorType type = format::TensorType::kF32;
  Shape shape = {};  // shape of the whole tensor
  Part part = {};
  std::span<const std::byte> bytes = {};
};

struct NotFinite {
  bool has_nan = false;
  bool has_infinity = false;
};
// Whether the piece's elements contain NaNs or infinities. The function reads the bytes once. For integers both members
// are false.
NotFinite not_finite_in(const Piece& piece);

// A part of a named tensor, to be read. part.count elements are written to `bytes`, little-endian.
struct Target {
  std::string name;
  format::TensorType type = format::TensorType::kF32;
  Shape shape = {};  // shape of the whole tensor
  Part part = {};
  std::span<std::byte> bytes = {};
};

}  // namespace reigen::checkpoint
