// Short names for the tests of stores.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "reigen/base/deadline.h"
#include "reigen/base/error.h"

namespace reigen::store {

using namespace std::chrono_literals;

inline Deadline soon() { return Deadline::after(30s); }  // for events that must happen
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
