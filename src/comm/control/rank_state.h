// What a rank tells the others through the store while somebody waits: that it lives, and what it called last.
// Thread rule: values.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "comm/backend.h"
#include "comm/call/signature.h"

namespace reigen::comm::control {

inline constexpr std::size_t kRemembered = 64;  // calls that a rank still tells of

struct CallRecord {
  std::uint64_t sequence = 0;
  CallSignature call = {};

  bool operator==(const CallRecord&) const = default;
};

struct RankState {
  bool left = false;
  std::uint64_t beat = 0;               // grows: a sign of life
  std::uint64_t calls = 0;              // made so far
  std::deque<CallRecord> records = {};  // the last of them, oldest first

  const CallRecord* find(std::uint64_t sequence) const;
  std::string last_call() const;  // "its last call was #4 barrier"
};

std::string encode(const RankState& state);
RankState decode_state(const std::string& text);

// Two ranks made different calls under one number: the error that all of them throw, naming both calls. The first such
// number counts, and of its ranks the lowest ones.
struct Mismatch {
  AbortCause cause;
  int compared_with = 0;  // the lowest rank that is known to have made the call
};
std::optional<Mismatch> find_mismatch(const std::vector<RankState>& states, const std::string& group);

std::string encode(const AbortCause& cause);
AbortCause decode_cause(const std::string& text);

}  // namespace reigen::comm::control
