// Checks whether ranks that must hold equal values still do. A flipped bit in one rank's memory, or a step that differs
// on one rank, makes replicas drift apart. Every loss still looks normal, and a checkpoint holds only one of the
// replicas.
//
//   const auto found = reigen::parallel::compare_replicas(tensors, world);
//   if (found) std::cerr << found->text << '\n';
//
// Every rank hashes (XXH64) the bytes that it has of each tensor. First the ranks compare one hash over all tensors;
// only if these differ do they compare one hash per tensor. The value that most ranks have counts as correct; if two
// values are equally frequent, the value of the lowest rank does.
//
// Collective and blocking: every rank passes the same tensors in the same order. Cost: a pass over the tensors, and an
// all_gather of 8 bytes. Throws as an all_gather does. Thread rule: the tensors must not change during the call.
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

// Returns nullopt when all values are equal. Of a sharded tensor, every rank of the group must have the same part.
// `called`: the number by which the result names this rank, for example its rank in the job if the group is only a part
// of the job. By default the result uses its rank in the group.
std::optional<Divergence> compare_replicas(const std::vector<tensor::NamedTensor>& tensors, Communicator ranks,
                                           std::optional<int> called = {});

}  // namespace reigen::parallel
