// Memory that the batches of a pipeline use again. A batch of pictures takes some 100 MB, and the kernel clears each
// page that a program gets from it, which costs a tenth of the time of the decoding.
// Thread rule: any thread may call any function.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "reigen/image/draft.h"

namespace reigen::data {

// Gives out tensors, and gives out a tensor again when nobody else has it or a view of it.
class TensorPool {
 public:
  at::Tensor take(at::IntArrayRef sizes, c10::ScalarType type);

 private:
  static constexpr std::size_t kFew = 16;  // tensors that are kept
  std::mutex mutex_;
  std::vector<at::Tensor> tensors_;
};

// Gives out values of T for the time of a call.
template <class T>
class Pool {
 public:
  class Lease {
   public:
    Lease(Pool& pool, std::unique_ptr<T> value) : pool_(pool), value_(std::move(value)) {}
    ~Lease() { pool_.put(std::move(value_)); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    T& operator*() { return *value_; }

   private:
    Pool& pool_;
    std::unique_ptr<T> value_;
  };

  Lease take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return Lease(*this, std::make_unique<T>());
    std::unique_ptr<T> value = std::move(free_.back());
    free_.pop_back();
    return Lease(*this, std::move(value));
  }

 private:
  void put(std::unique_ptr<T> value) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(value));
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<T>> free_;
};

struct BatchMemory {
  TensorPool tensors;
  Pool<image::Workspace> workspaces;
};

}  // namespace reigen::data
