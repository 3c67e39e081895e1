#include "tensor/transient_flat.h"

#include <ATen/ATen.h>
#include <c10/core/StorageImpl.h>

#include <utility>

#include "tensor/away_memory.h"

namespace reigen::tensor {

TransientFlat::TransientFlat(std::int64_t count, at::ScalarType type)
    : flat_(at::empty({count}, at::TensorOptions().dtype(type))), away_(away_memory(flat_.nbytes())) {
  point_to(away_data(away_));
}

void TransientFlat::put(std::shared_ptr<void> memory) {
  forgotten_.reset();
  memory_ = std::move(memory);
  void* const data = memory_.get();
  point_to({data, new std::shared_ptr<void>(memory_),
            [](void* held) { delete static_cast<std::shared_ptr<void>*>(held); }, at::kCPU});
}

std::shared_ptr<void> TransientFlat::take() {
  point_to(away_data(away_));
  return std::exchange(memory_ ? memory_ : forgotten_, nullptr);
}

void TransientFlat::forget() {
  if (memory_) forgotten_ = take();
  ++generation_;
}

// A tensor that outlives this object keeps what it points to.
void TransientFlat::point_to(c10::DataPtr data) {
  flat_.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(data));
}

}  // namespace reigen::tensor
