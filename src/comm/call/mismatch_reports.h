// The texts of errors about calls that do not match. They are the same for all backends.
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
// The text of a CollectiveMismatch between two ranks. `differs` says what differs, for example "count".
std::string calls_differ(const std::string& group, std::uint64_t sequence, const std::string& differs,
                         const RankCall& first, const RankCall& other);

// In all_to_all_v: the number of elements that `giver` has for `taker`, and the number that `taker` expects from
// `giver`.
struct Exchange {
  int giver = 0;
  std::uint64_t gives = 0;
  int taker = 0;
  std::uint64_t takes = 0;
};
[[noreturn]] void throw_exchange_differs(const std::string& group, std::uint64_t sequence, const Exchange& exchange);

// A send or recv as text: "[send] rank 0 of 4 group "world" message #2 to rank 1 (3 float32 "activations")".
std::string describe_message(const GroupOptions& group, std::uint64_t number, const Call& call);

// A message as the sending rank described it.
struct SentMessage {
  std::uint64_t count = 0;
  DataType type = DataType::kUint8;
  Tag tag = {};
};
// Throws CollectiveMismatch unless `sent` is the message that `recv` expects. `number` is the number of this recv.
void compare_message(const GroupOptions& group, std::uint64_t number, const Call& recv, const SentMessage& sent);

}  // namespace reigen::comm
