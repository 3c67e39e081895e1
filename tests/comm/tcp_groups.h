// Groups of the backend tcp without an engine, for tests that look at their connections.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "comm/tcp/group.h"
#include "harness/ranks.h"

namespace reigen::testing {

using comm::tcp::Group;
using comm::tcp::Stream;

// Returns whether the condition becomes true within 20 seconds.
template <typename Condition>
bool comes_true(const Condition& condition) {
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  while (!condition() && !deadline.expired()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return condition();
}

inline comm::GroupOptions options_of(Rank& r) {
  return {.rank = r.rank(),
          .size = r.size(),
          .store = store::make_prefix_store(std::shared_ptr<store::Store>(&r.store(), [](auto*) {}), "g"),
          .backend = "tcp"};
}

inline void check(Group& group, int needed, std::chrono::nanoseconds waited = {}) {
  group.check({needed}, {needed}, 0, "[test]", waited);
}

}  // namespace reigen::testing
