#include "tensor/hooks/taken_over.h"

#include <ATen/ATen.h>
#include <c10/util/intrusive_ptr.h>

#include <atomic>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <utility>

namespace reigen::tensor {
namespace {

// The weak pointer keeps the address from being given to another tensor.
struct Entry {
  c10::weak_intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl> tensor;
  std::shared_ptr<const void> what;
};

struct Table {
  std::shared_mutex mutex;
  std::unordered_map<const at::TensorImpl*, Entry> weights;
  std::atomic<bool> has_any{false};  // most programs take nothing over, and then need no lock
};
Table& table() {
  static auto* const all = new Table;  // never destroyed, because tensors may outlive main()
  return *all;
}

}  // namespace

void take_over(const at::Tensor& weight, std::shared_ptr<const void> what) {
  const std::unique_lock lock(table().mutex);
  std::erase_if(table().weights, [](const auto& entry) { return entry.second.tensor.expired(); });
  table().weights.insert_or_assign(
      weight.unsafeGetTensorImpl(),
      Entry{.tensor = decltype(Entry::tensor)(weight.getIntrusivePtr()), .what = std::move(what)});
  table().has_any = true;
}

std::shared_ptr<const void> taken_over(const at::Tensor& weight) {
  if (!table().has_any || !weight.defined()) return nullptr;
  const std::shared_lock lock(table().mutex);
  const auto found = table().weights.find(weight.unsafeGetTensorImpl());
  return found == table().weights.end() ? nullptr : found->second.what;
}

at::Tensor used(const at::Tensor& weight) { return is_taken_over(weight) ? at::alias(weight) : weight; }

}  // namespace reigen::tensor
