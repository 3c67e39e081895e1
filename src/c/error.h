// What is thrown becomes a status and this thread's last error: no exception may enter C.
#pragma once

#include <utility>

#include "reigen/base/error.h"
#include "reigen/c/comm.h"

namespace reigen::c {

// Inside of a catch.
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
