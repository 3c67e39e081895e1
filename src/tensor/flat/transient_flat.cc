#include "tensor/flat/transient_flat.h"

#include <ATen/ATen.h>
#include <c10/core/StorageImpl.h>

#include <utility>

#include "tensor/memory/away_memory.h"

namespace reigen::tensor {

namespace {

// What the storage of a TransientFlat owns while the tensor has memory. is_transient() recognises such a storage by its
// deleter, end_memory().
struct Lent {
  std::shared_ptr<void> memory;
  std::weak_ptr<void> owner;
};
void end_memory(void* held) { delete static_cast<Lent*>(held); }

}  // namespace

bool is_transient(const at::Tensor& tensor) {
  if (!tensor.has_storage()) return false;
  const c10::DataPtr& data = tensor.storage().data_ptr();
  return data.get_deleter() == &end_memory && !static_cast<const Lent*>(data.get_context())->owner.expired();
}

TransientFlat::TransientFlat(std::int64_t count, at::ScalarType type, const at::Device& device)
    : flat_(tensor_over(c10::DataPtr(nullptr, device), {count}, type)),
      away_(device.is_cpu() ? away_memory(flat_.nbytes()) : std::make_shared<char>()) {
  point_to_nothing();
}

void TransientFlat::put(std::shared_ptr<void> memory) {
  forgotten_.reset();
  memory_ = std::move(memory);
  void* const data = memory_.get();
  point_to({data, new Lent{memory_, away_}, &end_memory, flat_.device()});
}

std::shared_ptr<void> TransientFlat::take() {
  point_to_nothing();
  return std::exchange(memory_ ? memory_ : forgotten_, nullptr);
}

void TransientFlat::forget() {
  if (memory_) forgotten_ = take();
  ++generation_;
}

void TransientFlat::point_to_nothing() {
  point_to(flat_.is_cpu() ? away_data(away_) : c10::DataPtr(nullptr, flat_.device()));
}

// The storage owns the memory, so a tensor that outlives this object keeps the memory that it points to.
void TransientFlat::point_to(c10::DataPtr data) {
  flat_.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(data));
}

}  // namespace reigen::tensor
