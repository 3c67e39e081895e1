// A flat tensor that has memory only part of the time.
//
// Views of the tensor keep their identity while its memory comes and goes, so modules and graphs may hold them. On the
// CPU, while the memory is away, reading a view gives NaN, not old values, and writing to a view ends the program. On a
// GPU, a kernel that uses a view while the memory is away fails, and the GPU's context fails with it.
// Thread rule: as for a tensor, one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace reigen::tensor {

// Whether a tensor is a view of memory that a TransientFlat may take away again. Values that are written to such a
// tensor are lost.
bool is_transient(const at::Tensor& tensor);

class TransientFlat {
 public:
  // Makes a one-dimensional tensor whose memory is away.
  TransientFlat(std::int64_t count, at::ScalarType type, const at::Device& device);

  const at::Tensor& tensor() const { return flat_; }
  std::size_t bytes() const { return flat_.nbytes(); }
  bool is_there() const { return memory_ != nullptr; }
  std::byte* data() const { return static_cast<std::byte*>(memory_.get()); }  // null while the memory is away

  // From now on the tensor reads and writes this memory, which has at least bytes().
  void put(std::shared_ptr<void> memory);
  // Takes the memory away and returns it, or null if there was none.
  std::shared_ptr<void> take();
  // Call it when the values have changed. From now on the memory is away, and values that are being gathered are out of
  // date too. take() still returns the memory.
  void forget();
  std::uint64_t generation() const { return generation_; }  // how often forget() was called

 private:
  void point_to(c10::DataPtr data);
  void point_to_nothing();

  at::Tensor flat_;
  // On the CPU: the area that the tensor points to while its memory is away (away_memory.h). On a GPU: no memory; it
  // only shows that this object still exists.
  std::shared_ptr<void> away_;
  std::shared_ptr<void> memory_;
  std::shared_ptr<void> forgotten_;  // memory of old values
  std::uint64_t generation_ = 0;
};

}  // namespace reigen::tensor
