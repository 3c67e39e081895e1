// The three ways through shared memory, by the names under which rules choose them (algorithm_choice.h). What each does
// stands in collectives.h. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "comm/call/algorithm_choice.h"
#include "comm/call/call.h"

namespace reigen::comm::shared_memory {

enum class Way : std::uint8_t {
  kOneShot,  // one_shot: the input travels with the call
  kFused,    // fused: one pass over memory that every rank reaches; two_shot where some of it is foreign
  kTwoShot,  // two_shot: in chunks through the staging area
};

const char* name_of(Way way);
// Of an operation, by the numbers of the ways. A barrier has nothing but the call.
std::vector<std::string> way_names(OperationKind kind);

// Bytes of an input that can travel with a call. More where ranks share cores: a meeting is a round of context switches
// there, which is worth copies to save one.
std::size_t inline_bytes_for(int ranks, bool cores_for_all);

// The most bytes in all that can go by one_shot, with blocks of one size; and those that do where no rule says
// otherwise.
std::size_t largest_one_shot(OperationKind kind, int ranks, bool cores_for_all);
std::size_t usual_one_shot(OperationKind kind, int ranks, bool cores_for_all);

// What becomes of the largest input of a rank.
struct Carrying {
  bool possible = false;  // it can travel with the call
  bool usual = false;     // ... and does where no rule says otherwise
};
Carrying carrying(OperationKind kind, std::size_t largest, int ranks, std::size_t inline_bytes);

inline Way choose_usual_way(Carrying carried) { return carried.usual ? Way::kOneShot : Way::kFused; }
// Every rank chooses alike if all have the same rules.
Way choose_way(const AlgorithmChoice& choice, OperationKind kind, std::size_t bytes, Carrying carried);

}  // namespace reigen::comm::shared_memory
