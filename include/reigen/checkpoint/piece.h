// Parts of tensors: what a rank holds of one, whatever the layout.
//
// A tensor's elements are numbered in row-major order. A part is a run [first, first + count) of the elements of a box
// inside the tensor, which are numbered the same way: a whole tensor, a flat share of one (ZeRO), rows or columns of
// one (tensor parallelism), or a flat share of those.
// Pure: no files, no communication. Thread rule: no shared state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "reigen/format/safetensors.h"

namespace reigen::checkpoint {

using Shape = std::vector<std::int64_t>;

struct Part {
  Shape offset = {};  // where the box begins, one number a dimension
  Shape shape = {};   // its sizes
  std::int64_t first = 0;
  std::int64_t count = 0;
  bool operator==(const Part&) const = default;
};

Part whole(const Shape& tensor);
// Elements [first, first + count) of the tensor.
Part flat_part(const Shape& tensor, std::int64_t first, std::int64_t count);

// Throws InvalidArgument naming what does not fit, for sizes that overflow too.
std::int64_t numel(const Shape& shape);
void check_part(const std::string& name, const Shape& tensor, const Part& part);

// `count` elements that lie one after the other in the tensor, from `global` on, and in the part, from `local` on.
struct Run {
  std::int64_t global = 0;
  std::int64_t local = 0;
  std::int64_t count = 0;
  bool operator==(const Run&) const = default;
};

// Those of a part, ascending, as few as there can be. One at a time: there are as many as rows where the box does not
// take these whole.
class Runs {
 public:
  Runs(Shape tensor, Part part);
  std::optional<Run> next();

 private:
  Shape tensor_;
  Part part_;
  std::size_t split_ = 0;  // behind this dimension the box takes all
  std::int64_t row_ = 1;   // elements that lie one after the other
  std::int64_t local_ = 0;
};

// copy(to, from, count): elements of two parts of a tensor that are the same of the tensor.
void for_each_common(const Shape& tensor, const Part& to, const Part& from,
                     const std::function<void(std::int64_t to, std::int64_t from, std::int64_t count)>& copy);

// A part of a named tensor in memory. `bytes` is borrowed: part.count elements, little-endian.
struct Piece {
  std::string name;
  format::TensorType type = format::TensorType::kF32;
  Shape shape = {};  // of the tensor
  Part part = {};
  std::span<const std::byte> bytes = {};
};

struct NotFinite {
  bool has_nan = false;
  bool has_infinity = false;
};
// What there is among its elements. One pass; integers have none.
NotFinite not_finite_in(const Piece& piece);

// The same to be filled.
struct Target {
  std::string name;
  format::TensorType type = format::TensorType::kF32;
  Shape shape = {};
  Part part = {};
  std::span<std::byte> bytes = {};
};

}  // namespace reigen::checkpoint
