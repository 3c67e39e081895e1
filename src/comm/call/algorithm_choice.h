// Which algorithm runs an operation: what the user wrote (GroupOptions::algorithms), else the usual one.
//
// "all_reduce:ring,broadcast:ring@>1M,broadcast:tree": OPERATION:ALGORITHM[@>SIZE | @<SIZE], separated by commas; the
// first rule that fits and whose algorithm can run wins. SIZE counts the bytes of the whole array: all blocks of an
// operation on blocks, whether of one size or not.
// Thread rule: a value.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/call/call.h"
#include "comm/schedule/table.h"

namespace reigen::comm {

// Whose algorithms a group takes. A rule for the other family's says nothing to it.
enum class Family : std::uint8_t { kTcp, kSharedMemory };

const char* name_of(Family family);  // the backend's

// Those of a group with collectives, in the order in which they are told; uneven ones take the rules of even ones.
inline constexpr std::array kRuledKinds = {
    OperationKind::kAllReduce, OperationKind::kReduceScatter, OperationKind::kAllGather,
    OperationKind::kBroadcast, OperationKind::kReduce,        OperationKind::kGather,
    OperationKind::kScatter,   OperationKind::kAllToAll,      OperationKind::kBarrier};

// The names that rules may give to an operation's algorithms.
std::vector<std::string> algorithm_names(Family family, OperationKind kind);

// In the place of rules: those that `reigen tune` has found (tuning/tuned.h).
inline constexpr const char* kTuned = "tuned";

// Throws InvalidArgument, listing what there is, for an operation or an algorithm that none of the families has
// (BackendEntry::families).
void check_algorithms(const std::string& rules, std::span<const Family> families);

// SIZE of a call. Of all_to_all_v no rank knows it: 0.
std::size_t whole_bytes(const Call& call, int ranks);

class AlgorithmChoice {
 public:
  struct Rule {
    std::string text;
    std::uint8_t place = 0;  // of the algorithm in algorithm_names()
    std::size_t least = 0;   // bytes, inclusive
    std::size_t most = SIZE_MAX;
  };

  // Throws as check_algorithms() for what neither family has.
  AlgorithmChoice(const std::string& rules, Family family);

  Family family() const { return family_; }
  bool empty() const { return empty_; }
  const std::vector<Rule>& rules(OperationKind kind) const {
    return by_kind_[static_cast<std::size_t>(even_kind(kind))];
  }
  // Bit i of `possible`: the i-th algorithm can run. Null when no rule fits.
  const Rule* find(OperationKind kind, std::size_t bytes, std::uint32_t possible = UINT32_MAX) const;

 private:
  Family family_;
  bool empty_ = true;
  std::array<std::vector<Rule>, kRuledKinds.size()> by_kind_;
};

// Of the family tcp.
const schedule::Algorithm& choose_schedule(const AlgorithmChoice& choice, OperationKind kind, std::size_t bytes,
                                           int ranks);

}  // namespace reigen::comm
