#include "tensor/hooks/taken_over.h"

#include <ATen/ATen.h>
#include <c10/util/intrusive_ptr.h>

#include <atomic>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

namespace reigen::tensor {
namespace {

// The weak pointer keeps the address from being given to another tensor.
using Weak = c10::weak_intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl>;

struct Set {
  std::shared_mutex mutex;
  std::unordered_map<const at::TensorImpl*, Weak> weights;
  std::atomic<bool> has_any{false};  // most programs take nothing over, and then need no lock
};
Set& set() {
  static auto* const all = new Set;  // never destroyed, because tensors may outlive main()
  return *all;
}

}  // namespace

void take_over(const at::Tensor& weight) {
  const std::unique_lock lock(set().mutex);
  std::erase_if(set().weights, [](const auto& entry) { return entry.second.expired(); });
  set().weights.insert_or_assign(weight.unsafeGetTensorImpl(), Weak(weight.getIntrusivePtr()));
  set().has_any = true;
}

bool is_taken_over(const at::Tensor& weight) {
  if (!set().has_any || !weight.defined()) return false;
  const std::shared_lock lock(set().mutex);
  return set().weights.contains(weight.unsafeGetTensorImpl());
}

at::Tensor used(const at::Tensor& weight) { return is_taken_over(weight) ? at::alias(weight) : weight; }

}  // namespace reigen::tensor
