// What the store's tests say in one word.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "reigen/base/deadline.h"
#include "reigen/base/error.h"

namespace reigen::store {

using namespace std::chrono_literals;

inline Deadline soon() { return Deadline::after(30s); }  // for what must happen
inline Deadline now() { return Deadline::after(0s); }

inline std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "(no error)";
}

}  // namespace reigen::store
