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
  kOneShot,  // one_shot: the input is stored next to the descriptor of the call
  kFused,    // fused: one pass over memory that all ranks reach; becomes two_shot if they cannot reach all of it
  kTwoShot,  // two_shot: in chunks through the staging buffers
};

const char* name_of(Way way);
// The names of the ways of an operation, in the order of the enum. A barrier has no data, so it has only one_shot.
std::vector<std::string> way_names(OperationKind kind);

// The most bytes of an input that can be stored next to a call. `cores_for_all`: each rank has a core of its own. The
// limit is higher if up to 16 ranks share cores: a meeting (a wait of all ranks for each other) then costs context
// switches of all ranks, and one meeting less is worth the additional copies.
std::size_t inline_bytes_for(int ranks, bool cores_for_all);

// For calls with blocks of one size, in bytes of the whole call: the largest call that can use one_shot, and the
// largest call that does use it when no rule says otherwise.
std::size_t largest_one_shot(OperationKind kind, int ranks, bool cores_for_all);
std::size_t usual_one_shot(OperationKind kind, int ranks, bool cores_for_all);

// Whether the largest input of any rank, which has `largest` bytes, can be stored next to the call, and whether it is.
struct Carrying {
  bool possible = false;  // it can be stored there
  bool usual = false;     // it is stored there when no rule says otherwise
};
Carrying carrying(OperationKind kind, std::size_t largest, int ranks, std::size_t inline_bytes);

inline Way choose_usual_way(Carrying carried) { return carried.usual ? Way::kOneShot : Way::kFused; }
// All ranks make the same choice if they have the same rules.
Way choose_way(const AlgorithmChoice& choice, OperationKind kind, std::size_t bytes, Carrying carried);

}  // namespace reigen::comm::shared_memory
