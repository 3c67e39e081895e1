// A part describes the elements of a tensor that one rank holds, for every kind of layout.
//
// The elements of a tensor are numbered in row-major order. A box is a rectangular block of the tensor; its elements
// are numbered in row-major order too. A part is the run [first, first + count) of the elements of a box. So a part can
// be a whole tensor, a flat share of it (ZeRO), rows or columns of it (tensor parallelism), or a flat share of such
// rows or columns. The functions allocate no memory for tensors and do not communicate.
// Thread rule: these types are values; every thread may have its own copy.
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
  Shape offset = {};  // beginning of the box, one number for each dimension
  Shape shape = {};   // sizes of the box
  std::int64_t first = 0;
  std::int64_t count = 0;
  // If it is not empty, the box lies in the tensor seen with this shape, which has as many elements. With the view
  // [3, n, m] of a tensor [3·n, m] a box can have some rows of each third.
  Shape view = {};
  bool operator==(const Part&) const = default;
};

Part whole(const Shape& tensor);
// The elements [first, first + count) of the tensor: the box is the whole tensor.
Part flat_part(const Shape& tensor, std::int64_t first, std::int64_t count);

// The shape of the tensor in which a rank holds the box. It has the dimensions of the whole tensor.
Shape local_shape(const Shape& tensor, const Part& part);

// A part without a view. Its elements begin at element `local` of those of the original part.
struct PlainPart {
  Part part = {};
  std::int64_t local = 0;
};
// Returns parts that together have the elements of `part`, in their order. If `part` has a view, this view must divide
// the first dimension of the tensor in two, and the box must have all of the first of these two.
std::vector<PlainPart> plain_parts(const Shape& tensor, const Part& part);

// numel() returns the number of elements. check_part() checks that `part` lies inside the tensor `name`. Both functions
// throw InvalidArgument, naming the wrong size or part. They also throw it if the number of elements overflows.
std::int64_t numel(const Shape& shape);
void check_part(const std::string& name, const Shape& tensor, const Part& part);

// A run of `count` elements that are contiguous in the tensor (from element `global` on) and in the part (from
// `local` on).
struct Run {
  std::int64_t global = 0;
  std::int64_t local = 0;
  std::int64_t count = 0;
  bool operator==(const Run&) const = default;
};

// The runs of a part in ascending order, as few as possible. next() returns one run at a time, because there may be
// many runs: if the box is narrower than the tensor, there is one run for each row of the box. After the last run
// next() returns nullopt.
class Runs {
 public:
  Runs(Shape tensor, Part part);
  std::optional<Run> next();

 private:
  Shape tensor_;
  Part part_;
  std::size_t split_ = 0;  // from this dimension on, the box is as large as the tensor
  std::int64_t row_ = 1;   // number of elements of the box that are contiguous in the tensor
  std::int64_t local_ = 0;
};

// Calls copy(to, from, count) for each run of elements that both parts contain. `to` is the number of the run's first
// element within the part `to`, and `from` its number within the part `from`.
void for_each_common(const Shape& tensor, const Part& to, const Part& from,
                     const std::function<void(std::int64_t to, std::int64_t from, std::int64_t count)>& copy);

}  // namespace reigen::layout
