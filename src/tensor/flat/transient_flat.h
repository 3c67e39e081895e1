// A flat tensor whose memory is there at times only.
//
// Views of the tensor keep their identity while the memory comes and goes, so that modules and graphs may hold them.
// Reading one while it is away gives NaN, not old values; writing ends the program.
// Thread rule: as for a tensor, one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace reigen::tensor {

// Whether a tensor is a view of memory that a TransientFlat has at the moment: what is written there is lost.
bool is_transient(const at::Tensor& tensor);

class TransientFlat {
 public:
  // One-dimensional; away.
  TransientFlat(std::int64_t count, at::ScalarType type);

  const at::Tensor& tensor() const { return flat_; }
  std::size_t bytes() const { return flat_.nbytes(); }
  bool is_there() const { return memory_ != nullptr; }
  std::byte* data() const { return static_cast<std::byte*>(memory_.get()); }  // null: away

  // Of at least bytes(), from now on what the tensor reads and writes.
  void put(std::shared_ptr<void> memory);
  // The memory leaves; null: there was none.
  std::shared_ptr<void> take();
  // Away, and what is on its way here is out of date, too. The memory stays for take().
  void forget();
  std::uint64_t generation() const { return generation_; }  // how often that was

 private:
  void point_to(c10::DataPtr data);

  at::Tensor flat_;
  std::shared_ptr<void> away_;
  std::shared_ptr<void> memory_;
  std::shared_ptr<void> forgotten_;  // memory of old values
  std::uint64_t generation_ = 0;
};

}  // namespace reigen::tensor
