// The state that a rank reports to the other ranks through the store while any rank waits: a sign of life, and its last
// calls.
// Thread rule: values, freely copied between threads.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "comm/backend.h"
#include "comm/call/signature.h"

namespace reigen::comm::control {

inline constexpr std::size_t kRemembered = 64;  // a rank reports this many of its last calls

struct CallRecord {
  std::uint64_t sequence = 0;
  CallSignature call = {};

  bool operator==(const CallRecord&) const = default;
};

struct RankState {
  bool left = false;
  std::uint64_t beat = 0;               // grows while the rank is alive
  std::uint64_t calls = 0;              // number of calls made so far
  std::deque<CallRecord> records = {};  // the last of these calls, oldest first

  const CallRecord* find(std::uint64_t sequence) const;
  std::string last_call() const;  // "its last call was #4 barrier"
};

std::string encode(const RankState& state);
RankState decode_state(const std::string& text);

// Two ranks made different calls under one sequence number. `cause` is the error that all ranks throw; it names both
// calls. If there are several mismatches, find_mismatch() returns the one with the lowest sequence number. Its error
// names two ranks: the lowest rank that is known to have made a call with that number, and the lowest rank whose call
// differs from that call.
struct Mismatch {
  AbortCause cause;
  int compared_with = 0;  // the first of the two ranks: the lowest rank known to have made a call with that number
};
std::optional<Mismatch> find_mismatch(const std::vector<RankState>& states, const std::string& group);

std::string encode(const AbortCause& cause);
AbortCause decode_cause(const std::string& text);

}  // namespace reigen::comm::control
