// Parts of tensors: what a rank has of one, whatever the layout.
//
// A tensor's elements are numbered in row-major order. A part is a run [first, first + count) of the elements of a box
// inside the tensor. The elements of the box are numbered the same way. So a part is a whole tensor, a flat share of
// one (ZeRO), rows or columns of one (tensor parallelism), or a flat share of those. Pure: no memory, no communication.
// Thread rule: values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace reigen::layout {

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

// The runs of a part, ascending, as few as there can be. They come one at a time: where the box is narrower than the
// tensor there are as many as the box has rows.
class Runs {
 public:
  Runs(Shape tensor, Part part);
  std::optional<Run> next();

 private:
  Shape tensor_;
  Part part_;
  std::size_t split_ = 0;  // from this dimension on the box takes all
  std::int64_t row_ = 1;   // elements that lie one after the other
  std::int64_t local_ = 0;
};

// Calls copy(to, from, count) for all elements that both parts have: `to` and `from` number them within each part.
void for_each_common(const Shape& tensor, const Part& to, const Part& from,
                     const std::function<void(std::int64_t to, std::int64_t from, std::int64_t count)>& copy);

}  // namespace reigen::layout
