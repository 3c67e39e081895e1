// Makes operations of LibTorch pass through a function of ours, by a dispatch key that LibTorch leaves to others. A
// process without an Intercept leaves these keys to other code.
// Thread rule: a guard counts for the thread that makes it; guards nest.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <vector>

namespace c10 {
class OperatorHandle;
}

namespace reigen::tensor {

enum class Where {
  kFirst,          // before everything, autograd too (DeferredInit)
  kBelowAutograd,  // between autograd and the kernels (Fake)
};

using Interceptor = void (*)(const c10::OperatorHandle& operation, c10::DispatchKeySet keys,
                             std::vector<c10::IValue>* stack);

// While an Intercept lives, operations pass through its function. A place has one function, the same in the whole
// process.
class Intercept {
 public:
  Intercept(Where where, Interceptor function);
  Intercept(const Intercept&) = delete;  // one scope
  Intercept& operator=(const Intercept&) = delete;

 private:
  c10::impl::IncludeDispatchKeyGuard included_;
};

// While an Uncaught lives, nothing is intercepted at this place: it is for operations that the function itself calls.
class Uncaught {
 public:
  explicit Uncaught(Where where);
  Uncaught(const Uncaught&) = delete;  // one scope
  Uncaught& operator=(const Uncaught&) = delete;

  // Does what the operation would have done.
  void run(const c10::OperatorHandle& operation, c10::DispatchKeySet keys, std::vector<c10::IValue>* stack) const;

 private:
  const Where where_;
  c10::impl::ExcludeDispatchKeyGuard excluded_;
};

}  // namespace reigen::tensor
