// Are ranks that must hold equal values still equal? A bit that flips in one rank's memory, a step that one rank makes
// otherwise: replicas drift apart, every loss looks well, and the checkpoint has one of them.
//
//   const auto found = reigen::parallel::compare_replicas(tensors, world);
//   if (found) std::cerr << found->text << '\n';
//
// Every rank hashes (XXH64) what it has of each tensor, by bytes; one number of all is compared, and only where these
// differ one of each tensor. The value that most ranks have counts as right, of two as frequent the lowest rank's.
//
// Collective and blocking: the same tensors in the same order on every rank. Cost: a pass over the tensors, 8 bytes.
// Throws as an all_gather does. Thread rule: the tensors do not change meanwhile.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "reigen/comm/communicator.h"
#include "reigen/tensor/tensor_files.h"

namespace reigen::parallel {

struct Divergence {
  std::string tensor;      // the first that differs
  std::vector<int> ranks;  // those that have another value than most, in the group's order
  std::string text;        // for people: one line, the same on every rank
};

// Nothing: equal. Of tensors that ranks divide every rank of the group has the same part. `called`: the number that
// people know this rank by, in a group that is a part of the job's; by default its rank in the group.
std::optional<Divergence> compare_replicas(const std::vector<tensor::NamedTensor>& tensors, Communicator ranks,
                                           std::optional<int> called = {});

}  // namespace reigen::parallel
