// Reductions of random bits, NaN and infinities among them: the communicator must give the same bits in every run and
// on every rank, and where it adds in rank order those of every instruction set's kernel. And what NaN and 16 bits must
// do, by formula. Thread rule: the communicator's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "comm/call/call.h"
#include "reigen/comm/communicator.h"

namespace reigen::trial {

struct BitsProblem {
  comm::OperationKind kind = comm::OperationKind::kAllReduce;  // all_reduce, reduce or reduce_scatter
  comm::DataType type = comm::DataType::kFloat32;
  comm::ReduceOp op = comm::ReduceOp::kSum;
  std::size_t count = 0;
  std::uint64_t seed = 0;
  int runs = 1;  // which take turns with kinds of memory and places
  bool in_rank_order = true;
};

// What is wrong, in words.
std::optional<std::string> find_wrong_bits(Communicator& world, const BitsProblem& problem);

// NaN in the input of one rank after the other.
std::optional<std::string> find_wrong_nan(Communicator& world, comm::OperationKind kind, comm::DataType type,
                                          comm::ReduceOp op, std::size_t count, bool foreign);

// A sum that 16 bits would lose at every step: 2048 + 1 + 1 + ... as halves, 256 + 1 + 1 + ... as bfloat16.
std::optional<std::string> find_narrow_sum(Communicator& world, comm::DataType type, std::size_t count, bool foreign);

}  // namespace reigen::trial
