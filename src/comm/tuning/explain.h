// Finds the algorithm that an AlgorithmChoice takes at each size, and the rule that leads to it. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "comm/call/algorithm_choice.h"

namespace reigen::comm::tuning {

// An algorithm, and the text of the rule that chose it.
struct Taken {
  std::string algorithm;
  std::string rule = {};  // empty: built in

  bool operator==(const Taken&) const = default;
};

// The algorithm of a call with blocks of one size, and with memory from allocate(). `bytes`: the size of the whole
// call. `cores_for_all`: whether every rank has a core.
Taken taken(const AlgorithmChoice& choice, OperationKind kind, std::size_t bytes, int ranks, bool cores_for_all);

struct Span {
  Taken taken;
  std::size_t from;           // bytes
  std::size_t to = SIZE_MAX;  // inclusive
};

// All sizes, ascending.
std::vector<Span> spans(const AlgorithmChoice& choice, OperationKind kind, int ranks, bool cores_for_all);

}  // namespace reigen::comm::tuning
