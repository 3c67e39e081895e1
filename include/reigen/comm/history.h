// The last calls of this rank. They are read from the flight record, which every rank always keeps
// (docs/flight_recorder.md). Programs can draw timelines from these calls, and examine their own communication.
//
//   for (const auto& call : world.history()) {
//     fmt::print("{} {} {} ns\n", call.kind, call.tag, call.ended - call.started);
//   }
//
// Times are nanoseconds since 1970 by this machine's clock. A time of 0 means that the event has not happened yet.
// Thread rule: these types are values; every thread may have its own copy.
#pragma once

#include <cstdint>
#include <string>

namespace reigen::comm {

struct PastCall {
  // The call's number. This rank's calls in all groups that share the flight record are numbered consecutively.
  std::uint64_t number = 0;
  std::string group = {};  // the group's name
  std::string kind = {};   // "all_reduce"
  std::string tag = {};    // CallOptions::tag
  std::uint64_t bytes = 0;
  std::int64_t called = 0;   // when the program made the call
  std::int64_t started = 0;  // when this rank began to work on the call
  std::int64_t ended = 0;    // when the call was complete on this rank, or failed
};

}  // namespace reigen::comm
