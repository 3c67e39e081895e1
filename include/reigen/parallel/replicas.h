// Are ranks that must hold equal values still equal? After a flipped bit in one rank's memory, or a step that one rank
// made differently, replicas drift apart while every loss looks fine, and a checkpoint holds only one of them.
//
//   const auto found = reigen::parallel::compare_replicas(tensors, world);
//   if (found) std::cerr << found->text << '\n';
//
// Every rank hashes (XXH64) the bytes that it has of each tensor. First the ranks compare one hash over all tensors;
// only if these differ do they compare one hash per tensor. The value that most ranks have counts as right; if two
// values are equally frequent, the lowest rank's value counts.
//
// Collective and blocking: every rank passes the same tensors in the same order. Cost: a pass over the tensors, and an
// all_gather of 8 bytes. Throws as an all_gather does. Thread rule: the tensors must not change meanwhile.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "reigen/comm/communicator.h"
#include "reigen/tensor/tensor_files.h"

namespace reigen::parallel {

struct Divergence {
  std::string tensor;      // the first tensor that differs
  std::vector<int> ranks;  // the ranks that have another value than most, in the group's order
  std::string text;        // one line for people, the same on every rank
};

// Returns nothing when all are equal. Of a tensor that ranks divide, every rank of the group must have the same part.
// `called`: the number of this rank in the result, where the group is only a part of the job; by default its rank in
// the group.
std::optional<Divergence> compare_replicas(const std::vector<tensor::NamedTensor>& tensors, Communicator ranks,
                                           std::optional<int> called = {});

}  // namespace reigen::parallel
