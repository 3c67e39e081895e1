// Passes operations of LibTorch through a function of Reigen. For this it uses dispatch keys that LibTorch itself does
// not use. Reigen registers a fallback for DeferredInit at program start, and for the others when they are first
// needed.
//
// Thread rule: an Intercept or Uncaught acts on the thread that makes it; they nest.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <vector>

namespace c10 {
class OperatorHandle;
}

namespace reigen::tensor {

enum class Where {
  kFirst,          // before all other dispatch keys, also before autograd (DeferredInit)
  kBelowAutograd,  // between autograd and the kernels (Fake)
  kUse,            // before autograd, and before kFirst (TESTING_ONLY_GenericMode)
};

using Interceptor = void (*)(const c10::OperatorHandle& operation, c10::DispatchKeySet keys,
                             std::vector<c10::IValue>* stack);

// While an Intercept lives, operations of its thread pass through `function`. For each Where there is one function in
// the whole process.
class Intercept {
 public:
  Intercept(Where where, Interceptor function);
  Intercept(const Intercept&) = delete;  // an object belongs to one scope
  Intercept& operator=(const Intercept&) = delete;

 private:
  c10::impl::IncludeDispatchKeyGuard included_;
};

// From now on all operations of this thread pass through `function`, until the thread ends. A backward that this thread
// starts intercepts on the threads on which it runs.
void intercept_on_this_thread(Where where, Interceptor function);

// Runs the operation as if it were not intercepted. The operations of which LibTorch composes it are intercepted.
void pass_on(Where where, const c10::OperatorHandle& operation, c10::DispatchKeySet keys,
             std::vector<c10::IValue>* stack);

// While an Uncaught lives, no operation of its thread is intercepted at `where`. The intercepting function uses it for
// operations that it calls itself.
class Uncaught {
 public:
  explicit Uncaught(Where where);
  Uncaught(const Uncaught&) = delete;  // an object belongs to one scope
  Uncaught& operator=(const Uncaught&) = delete;

  // Runs the operation as if it were not intercepted.
  void run(const c10::OperatorHandle& operation, c10::DispatchKeySet keys, std::vector<c10::IValue>* stack) const;

 private:
  const Where where_;
  c10::impl::ExcludeDispatchKeyGuard excluded_;
};

}  // namespace reigen::tensor
