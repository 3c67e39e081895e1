// A flat tensor whose memory is there only at times.
//
// Views of the tensor keep their identity while its memory comes and goes, so modules and graphs may hold them. While
// the memory is away, reading a view gives NaN, not old values, and writing to it ends the program. On a GPU there
// is no memory at all then: a kernel that uses such a view fails, and with it the GPU's context.
// Thread rule: as for a tensor, one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace reigen::tensor {

// Whether a tensor is a view of memory that a TransientFlat has only for the moment: values written there are lost.
bool is_transient(const at::Tensor& tensor);

class TransientFlat {
 public:
  // Makes a one-dimensional tensor, whose memory is away.
  TransientFlat(std::int64_t count, at::ScalarType type, const at::Device& device);

  const at::Tensor& tensor() const { return flat_; }
  std::size_t bytes() const { return flat_.nbytes(); }
  bool is_there() const { return memory_ != nullptr; }
  std::byte* data() const { return static_cast<std::byte*>(memory_.get()); }  // null: away

  // From now on the tensor reads and writes this memory, which has at least bytes().
  void put(std::shared_ptr<void> memory);
  // Takes the memory away and returns it; null: there was none.
  std::shared_ptr<void> take();
  // The values have changed: the memory is away from now on, and values that are being gathered are out of date too.
  // take() still returns the memory.
  void forget();
  std::uint64_t generation() const { return generation_; }  // how often forget() was called

 private:
  void point_to(c10::DataPtr data);
  void point_to_nothing();

  at::Tensor flat_;
  std::shared_ptr<void> away_;  // of a GPU: no memory, it only shows that this object lives
  std::shared_ptr<void> memory_;
  std::shared_ptr<void> forgotten_;  // memory of old values
  std::uint64_t generation_ = 0;
};

}  // namespace reigen::tensor
