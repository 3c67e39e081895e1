// Turns exceptions into a status and this thread's last error, because no exception may leave a function of the C
// interface.
#pragma once

#include <utility>

#include "reigen/base/error.h"
#include "reigen/c/comm.h"

namespace reigen::c {

// Stores the exception that is being handled as this thread's last error. To be called inside a catch block.
reigen_status remember_current_error() noexcept;

template <class Function>
reigen_status guarded(Function&& function) noexcept {
  try {
    std::forward<Function>(function)();
    return REIGEN_OK;
  } catch (...) {
    return remember_current_error();
  }
}

[[noreturn]] void throw_null(const char* function, const char* what, const char* expected);

template <class Pointer>
Pointer not_null(Pointer pointer, const char* function, const char* what, const char* expected) {
  if (pointer == nullptr) throw_null(function, what, expected);
  return pointer;
}

}  // namespace reigen::c
