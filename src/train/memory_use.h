// Where a rank's memory is: what a run tells at its end, counted, and what the formulas say.
//
// Of N trainable elements of e bytes, K of optimizer states for each, and P ranks that divide
// (data_parallel_options.h):
//
//                  parameters             gradients                optimizer
//   none           e·N                    e·N                      K·N
//   optimizer      e·N, common e·N/P      e·N                      K·N/P
//   gradients      e·N, common e·N/P      e·N/P, common e·N        K·N/P
//   parameters     e·N/P                  e·N/P                    K·N/P
//
// Common: ranks of one machine have one copy, of which a P-th counts for each. With replicas gradients are divided as
// over networks. Frozen weights: as parameters, divided with `parameters` alone.
// Thread rule: no shared state.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reigen/comm/communicator.h"
#include "reigen/parallel/data_parallel.h"
#include "train/optimization.h"

namespace reigen::train {

// Bytes of one rank.
struct MemoryUse {
  std::int64_t parameters = 0;
  std::int64_t gradients = 0;  // with the spare blocks in which backward makes them
  std::int64_t optimizer = 0;  // with the average of the weights
  std::int64_t buffers = 0;
  std::int64_t activations = 0;  // what a forward leaves for its backward
  std::int64_t step = 0;         // the most that a forward and backward have made at once, activations among it
};

struct MemoryReport {
  std::vector<MemoryUse> ranks = {};
  MemoryUse formula = {};  // parameters, gradients and optimizer of a rank whose share is the mean
};

// Bytes that belong to the weights of a model, and the states that an optimizer has of them.
struct ModelSize {
  std::int64_t weights = 0;
  std::int64_t states = 0;
  std::int64_t frozen = 0;
};
ModelSize size_of(const torch::nn::Module& module, const OptimConfig& optim);

struct Division {
  parallel::Shard shard = parallel::Shard::kNone;
  int ranks = 1;
  bool common = false;
  bool has_replicas = false;
};
// As data_parallel() divides with these options.
Division division_of(const parallel::DataParallelOptions& how, const Communicator& world);
// What of it is in memory with parallel.offload.
MemoryUse in_memory(MemoryUse use, const Division& division);
// Parameters, gradients and optimizer of the table above.
MemoryUse formula(const ModelSize& model, const Division& division);

// What ranks give to a checkpoint, and with checkpoint.asynchronous have a copy of: of what is divided each rank of the
// first replica its share, of the rest rank 0 all.
struct GivenToCheckpoint {
  std::int64_t by_each = 0;
  std::int64_t by_first = 0;  // beside that
};
GivenToCheckpoint given_to_checkpoint(const ModelSize& model, const Division& division);

// Whether gradients that are not averaged yet are whole, beside this rank's share of the averaged ones.
bool makes_beside_shares(const Division& division);

// What stays between steps.
MemoryUse count_memory(const torch::nn::Module& module, const parallel::DataParallelBase& parallel,
                       const Optimization& optimization);

// Of all ranks. Collective.
MemoryReport gather_memory(const MemoryUse& own, const MemoryUse& formula, Communicator& world);

// "parameters 4.6 MiB, gradients ...", of the rank with the most of each.
std::string to_text(const MemoryReport& report);

}  // namespace reigen::train
