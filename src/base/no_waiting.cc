#include "base/no_waiting.h"

#include <utility>

#include "base/check.h"

namespace reigen::base {
namespace {

thread_local const char* scope = nullptr;
thread_local std::int64_t waits = 0;

}  // namespace

NoWaiting::NoWaiting(const char* where) : outer_(std::exchange(scope, where)) {}

NoWaiting::~NoWaiting() { scope = outer_; }

bool waiting_is_allowed() { return scope == nullptr; }

void require_waiting_allowed() {
  ++waits;
  REIGEN_ASSERT(scope == nullptr, "{} waits for another rank", scope);
}

std::int64_t waits_of_this_thread() { return waits; }

}  // namespace reigen::base
