// Chooses the algorithm that runs an operation: by the user's rules (GroupOptions::algorithms), or the default
// algorithm if no rule fits.
//
// Rules have the form OPERATION:ALGORITHM[@>SIZE | @<SIZE] and are separated by commas, for example
// "all_reduce:ring,broadcast:ring@>1M,broadcast:tree". Of the rules that fit a call and whose algorithm can run, the
// first one decides. SIZE is the size of the whole array in bytes. For an operation on blocks it is the size of all
// blocks together, whether or not the blocks have the same size.
// Thread rule: values, freely copied between threads.
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

// A family is the set of algorithms that the backend tcp or shared_memory defines. A backend uses algorithms of one
// family or of both (BackendEntry::families). An AlgorithmChoice is for one family, and ignores rules that name an
// algorithm of the other family.
enum class Family : std::uint8_t { kTcp, kSharedMemory };

const char* name_of(Family family);  // "tcp" or "shared_memory": the backend that defines the family

// The operations that rules can name, in the order in which error messages list them. An operation on blocks of
// different sizes (all_gather_v) follows the rules of the same operation on blocks of one size (all_gather).
inline constexpr std::array kRuledKinds = {
    OperationKind::kAllReduce, OperationKind::kReduceScatter, OperationKind::kAllGather,
    OperationKind::kBroadcast, OperationKind::kReduce,        OperationKind::kGather,
    OperationKind::kScatter,   OperationKind::kAllToAll,      OperationKind::kBarrier};

// The names of the algorithms of an operation, as rules use them.
std::vector<std::string> algorithm_names(Family family, OperationKind kind);

// The text that stands for the rules that `reigen tune` has found (tuning/tuned.h).
inline constexpr const char* kTuned = "tuned";

// Throws InvalidArgument, listing the valid names, for an operation or an algorithm that none of the families has.
// `families`: the families of the group's backend (BackendEntry::families).
void check_algorithms(const std::string& rules, std::span<const Family> families);

// The size of a call that is compared with the SIZE of a rule. For all_to_all_v it is 0, because no rank knows the size
// of all blocks.
std::size_t whole_bytes(const Call& call, int ranks);

class AlgorithmChoice {
 public:
  struct Rule {
    std::string text;
    std::uint8_t place = 0;  // index of the algorithm in algorithm_names()
    std::size_t least = 0;   // the rule fits calls of `least` to `most` bytes
    std::size_t most = SIZE_MAX;
  };

  // Keeps the rules for `family`. Throws InvalidArgument for an operation or algorithm that no family has.
  AlgorithmChoice(const std::string& rules, Family family);

  Family family() const { return family_; }
  bool empty() const { return empty_; }
  const std::vector<Rule>& rules(OperationKind kind) const {
    return by_kind_[static_cast<std::size_t>(even_kind(kind))];
  }
  // Returns the first rule that fits and whose algorithm can run, or null if there is none. Bit i of `possible` says
  // whether the i-th algorithm can run.
  const Rule* find(OperationKind kind, std::size_t bytes, std::uint32_t possible = UINT32_MAX) const;

 private:
  Family family_;
  bool empty_ = true;
  std::array<std::vector<Rule>, kRuledKinds.size()> by_kind_;
};

// The algorithm of the family tcp for an operation: the one that the rules choose, or the default if no rule fits.
const schedule::Algorithm& choose_schedule(const AlgorithmChoice& choice, OperationKind kind, std::size_t bytes,
                                           int ranks);

}  // namespace reigen::comm
