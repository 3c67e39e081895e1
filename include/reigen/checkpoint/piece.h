// Parts of named tensors in memory, which a rank gives to a checkpoint or reads from one.
// Thread rule: plain values.
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

// A part of a named tensor in memory. `bytes` is not owned; it holds part.count elements, little-endian.
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
// Whether the piece's elements contain NaNs or infinities. One pass; integers have none.
NotFinite not_finite_in(const Piece& piece);

// A part of a named tensor that is to be filled. `bytes` is not owned.
struct Target {
  std::string name;
  format::TensorType type = format::TensorType::kF32;
  Shape shape = {};
  Part part = {};
  std::span<std::byte> bytes = {};
};

}  // namespace reigen::checkpoint
