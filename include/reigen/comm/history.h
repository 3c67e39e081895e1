// What this rank's communicator did last, from the flight record that is always on (docs/flight_recorder.md): for
// timelines and for programs that look at their own communication.
//
//   for (const auto& call : world.history()) {
//     fmt::print("{} {} {} ns\n", call.kind, call.tag, call.ended - call.started);
//   }
//
// Times are nanoseconds since 1970 of this machine's clock; 0: that has not happened.
// Thread rule: values.
#pragma once

#include <cstdint>
#include <string>

namespace reigen::comm {

struct PastCall {
  std::uint64_t number = 0;  // counts this rank's calls, in all of its groups
  std::string group = {};
  std::string kind = {};  // "all_reduce"
  std::string tag = {};   // the caller's
  std::uint64_t bytes = 0;
  std::int64_t called = 0;
  std::int64_t started = 0;  // this rank began to work on it
  std::int64_t ended = 0;
};

}  // namespace reigen::comm
