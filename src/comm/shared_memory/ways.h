// The three ways in which a call runs over shared memory, with the names by which rules choose them
// (algorithm_choice.h). collectives.h describes what each way does. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "comm/call/algorithm_choice.h"
#include "comm/call/call.h"

namespace reigen::comm::shared_memory {

enum class Way : std::uint8_t {
  kOneShot,  // one_shot: each rank stores its input next to the descriptor of its call
  kFused,    // fused: one pass over memory that all ranks reach; becomes two_shot if some buffer cannot be reached
  kTwoShot,  // two_shot: the data move in chunks through the staging buffers
};

const char* name_of(Way way);
// The names of the ways of an operation, in the order of the enum. A barrier has no data, so it has only one_shot.
std::vector<std::string> way_names(OperationKind kind);

// The size in bytes of the largest input that can be stored next to the descriptor of its call. `cores_for_all`: each
// rank has a core of its own. The limit is higher if at most 16 ranks share cores. A meeting (a wait of all ranks for
// each other) then costs context switches on all ranks. With one_shot a call has one meeting less. This saves more time
// than the additional copies of one_shot cost.
std::size_t inline_bytes_for(int ranks, bool cores_for_all);

// largest_one_shot(): the largest call that can use one_shot. usual_one_shot(): the largest call that does use one_shot
// when no rule says otherwise. Both are for calls with blocks of one size, and return the bytes of the whole call.
std::size_t largest_one_shot(OperationKind kind, int ranks, bool cores_for_all);
std::size_t usual_one_shot(OperationKind kind, int ranks, bool cores_for_all);

// Whether a call can use one_shot, which stores inputs next to descriptors. `largest` of carrying(): the bytes of the
// largest input of any rank.
struct Carrying {
  bool possible = false;  // every input is small enough
  bool usual = false;     // the call uses one_shot when no rule says otherwise
};
Carrying carrying(OperationKind kind, std::size_t largest, int ranks, std::size_t inline_bytes);

inline Way choose_usual_way(Carrying carried) { return carried.usual ? Way::kOneShot : Way::kFused; }
// All ranks make the same choice if they have the same rules.
Way choose_way(const AlgorithmChoice& choice, OperationKind kind, std::size_t bytes, Carrying carried);

}  // namespace reigen::comm::shared_memory
