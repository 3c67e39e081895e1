// The three ways through shared memory, with the names by which rules choose them (algorithm_choice.h). collectives.h
// describes what each way does. Pure functions.
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
  kFused,    // fused: one pass over memory that all ranks reach; becomes two_shot if they do not reach all of it
  kTwoShot,  // two_shot: in chunks through the staging buffers
};

const char* name_of(Way way);
// The names of the ways of an operation, in the order of the enum. A barrier has no data, so it has only one_shot.
std::vector<std::string> way_names(OperationKind kind);

// The most bytes of an input that can travel with a call. Where ranks share cores there are more: a meeting is a
// round of context switches there, and saving one is worth the additional copies.
std::size_t inline_bytes_for(int ranks, bool cores_for_all);

// The most bytes of a whole call, with blocks of one size, that can go by one_shot; and the most that do when no rule
// says otherwise.
std::size_t largest_one_shot(OperationKind kind, int ranks, bool cores_for_all);
std::size_t usual_one_shot(OperationKind kind, int ranks, bool cores_for_all);

// Whether the largest input of any rank can travel with the call, and whether it does.
struct Carrying {
  bool possible = false;  // it can travel with the call
  bool usual = false;     // it does when no rule says otherwise
};
Carrying carrying(OperationKind kind, std::size_t largest, int ranks, std::size_t inline_bytes);

inline Way choose_usual_way(Carrying carried) { return carried.usual ? Way::kOneShot : Way::kFused; }
// All ranks make the same choice if they have the same rules.
Way choose_way(const AlgorithmChoice& choice, OperationKind kind, std::size_t bytes, Carrying carried);

}  // namespace reigen::comm::shared_memory
