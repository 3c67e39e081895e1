// Which algorithm a choice takes at which size, and why. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "comm/call/algorithm_choice.h"

namespace reigen::comm::tuning {

struct Taken {
  std::string algorithm;
  std::string rule = {};  // empty: built in

  bool operator==(const Taken&) const = default;
};

// For blocks of one size, and memory from allocate(); where every rank has a core or not.
Taken taken(const AlgorithmChoice& choice, OperationKind kind, std::size_t bytes, int ranks, bool cores_for_all);

struct Span {
  Taken taken;
  std::size_t from;           // bytes
  std::size_t to = SIZE_MAX;  // inclusive
};

// All sizes, ascending.
std::vector<Span> spans(const AlgorithmChoice& choice, OperationKind kind, int ranks, bool cores_for_all);

}  // namespace reigen::comm::tuning
