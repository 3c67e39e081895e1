#include "tensor/hooks/intercept.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <array>
#include <atomic>

#include "base/check.h"

namespace reigen::tensor {
namespace {

constexpr std::array kKeys = {c10::DispatchKey::DeferredInit, c10::DispatchKey::Fake,
                              c10::DispatchKey::TESTING_ONLY_GenericMode};

c10::DispatchKey key_of(Where where) { return kKeys.at(static_cast<std::size_t>(where)); }

template <Where kWhere>
struct Place {
  static inline std::atomic<Interceptor> function = nullptr;

  static void call(const c10::OperatorHandle& operation, c10::DispatchKeySet keys, std::vector<c10::IValue>* stack) {
    function.load(std::memory_order_relaxed)(operation, keys, stack);
  }
  static void claim(Interceptor wanted) {
    Interceptor before = nullptr;
    const bool is_first = function.compare_exchange_strong(before, wanted);
    REIGEN_ASSERT(is_first || before == wanted, "two functions intercept at one place");
  }
};

// A fallback changes the dispatch table of every operation, so it is registered before there are threads.
TORCH_LIBRARY_IMPL(_, DeferredInit, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&Place<Where::kFirst>::call>());
}

// The other keys are registered when they are first needed, so a program that does not need them leaves them to other
// libraries.
template <Where kWhere>
void register_fallback() {
  static const torch::Library kLibrary = [] {
    torch::Library library(torch::Library::IMPL, "_", key_of(kWhere), __FILE__, __LINE__);
    library.fallback(torch::CppFunction::makeFromBoxedFunction<&Place<kWhere>::call>());
    return library;
  }();
}

// Installs `function` as the one function that intercepts at `where`, and returns the dispatch key of `where`.
c10::DispatchKey claimed(Where where, Interceptor function) {
  switch (where) {
    case Where::kFirst: Place<Where::kFirst>::claim(function); break;
    case Where::kBelowAutograd:
      Place<Where::kBelowAutograd>::claim(function);
      register_fallback<Where::kBelowAutograd>();
      break;
    case Where::kUse:
      Place<Where::kUse>::claim(function);
      register_fallback<Where::kUse>();
      break;
  }
  return key_of(where);
}

}  // namespace

Intercept::Intercept(Where where, Interceptor function) : included_(claimed(where, function)) {}

void intercept_on_this_thread(Where where, Interceptor function) {
  c10::impl::tls_set_dispatch_key_included(claimed(where, function), true);
}

void pass_on(Where where, const c10::OperatorHandle& operation, c10::DispatchKeySet keys,
             std::vector<c10::IValue>* stack) {
  operation.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, key_of(where)), stack);
}

Uncaught::Uncaught(Where where) : where_(where), excluded_(key_of(where)) {}

void Uncaught::run(const c10::OperatorHandle& operation, c10::DispatchKeySet keys,
                   std::vector<c10::IValue>* stack) const {
  if (where_ == Where::kFirst) {
    operation.callBoxed(stack);
  } else {
    pass_on(where_, operation, keys, stack);
  }
}

}  // namespace reigen::tensor
