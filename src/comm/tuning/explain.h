// Finds the algorithm that an AlgorithmChoice (the rules of a group) takes at each size of a call, and the rule that
// decides this. Pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "comm/call/algorithm_choice.h"

namespace reigen::comm::tuning {

// An algorithm, and the text of the rule that chose it.
struct Taken {
  std::string algorithm;
  std::string rule = {};  // empty if no rule of the user decided

  bool operator==(const Taken&) const = default;
};

// The algorithm of a call with blocks of one size, if all buffers are from allocate(). `bytes`: the size of the whole
// call. `cores_for_all`: whether every rank has a core of its own.
Taken taken(const AlgorithmChoice& choice, OperationKind kind, std::size_t bytes, int ranks, bool cores_for_all);

struct Span {
  Taken taken;
  std::size_t from;           // the smallest size, in bytes
  std::size_t to = SIZE_MAX;  // the largest size, in bytes
};

// Divides all sizes from 0 to SIZE_MAX into spans, in ascending order. Within a span, taken() is the same.
std::vector<Span> spans(const AlgorithmChoice& choice, OperationKind kind, int ranks, bool cores_for_all);

}  // namespace reigen::comm::tuning
