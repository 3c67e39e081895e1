// Checks whether the values that must be equal on several ranks (replicas) are still equal. A flipped bit in one rank's
// memory, or a step that differs on one rank, makes the replicas different. The loss of every rank still looks normal,
// and a checkpoint contains the values of only one replica, so nothing else shows the difference.
//
//   const auto found = reigen::parallel::compare_replicas(tensors, world);
//   if (found) std::cerr << found->text << '\n';
//
// Every rank hashes (XXH64) the bytes that it has of each tensor. First the ranks compare one hash over all tensors. If
// these hashes differ, the ranks compare one hash for each tensor. The value that most ranks have counts as correct. If
// two values are equally frequent, the one on the lowest rank counts as correct.
//
// Collective and blocking: every rank passes the same tensors in the same order. Cost: a pass over the tensors, and an
// all_gather of 8 bytes. Throws the errors of Communicator::all_gather(). Thread rule: the tensors must not change
// during the call.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "reigen/comm/communicator.h"
#include "reigen/tensor/tensor_files.h"

namespace reigen::parallel {

struct Divergence {
  std::string tensor;      // the first tensor that differs
  std::vector<int> ranks;  // the ranks whose value is not the correct one, in the group's order
  std::string text;        // one line for people, the same on every rank
};

// Returns nullopt when all values are equal. If a tensor is sharded, every rank of `ranks` must have the same part of
// it. `called` is the number by which the result names this rank. If `ranks` is only a part of the job, pass this
// rank's number in the job. By default the result uses the rank's number in `ranks`.
std::optional<Divergence> compare_replicas(const std::vector<tensor::NamedTensor>& tensors, Communicator ranks,
                                           std::optional<int> called = {});

}  // namespace reigen::parallel
