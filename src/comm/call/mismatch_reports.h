// What is said of calls that do not fit together: the same words whichever backend noticed it.
#pragma once

#include <cstdint>
#include <string>

#include "comm/call/signature.h"
#include "reigen/base/error.h"
#include "reigen/comm/options.h"

namespace reigen::comm {

// A call as one rank made it.
struct RankCall {
  int rank = 0;
  CallSignature call = {};
};
// What a CollectiveMismatch of two ranks says. `differs`: the word for what differs.
std::string calls_differ(const std::string& group, std::uint64_t sequence, const std::string& differs,
                         const RankCall& first, const RankCall& other);

// all_to_all_v: what `giver` has for `taker`, and what that one expects of it.
struct Exchange {
  int giver = 0;
  std::uint64_t gives = 0;
  int taker = 0;
  std::uint64_t takes = 0;
};
[[noreturn]] void throw_exchange_differs(const std::string& group, std::uint64_t sequence, const Exchange& exchange);

// "[send] rank 0 of 4 group "world" message #2 to rank 1 (3 float32 "activations")".
std::string describe_message(const GroupOptions& group, std::uint64_t number, const Call& call);

// What a send said of its message.
struct SentMessage {
  std::uint64_t count = 0;
  DataType type = DataType::kUint8;
  Tag tag = {};
};
// Throws CollectiveMismatch unless it is what `recv`, the call with this number, waits for.
void compare_message(const GroupOptions& group, std::uint64_t number, const Call& recv, const SentMessage& sent);

}  // namespace reigen::comm
