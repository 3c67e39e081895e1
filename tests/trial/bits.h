// Reductions of random bits, including NaN and infinities. The communicator must give the same bits in every run and on
// every rank. Where it adds in rank order, the kernels of all instruction sets must give these bits too. For NaN and
// for sums in 16 bits, formulas give the expected results. Thread rule: the communicator's.
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
  int runs = 1;  // they alternate the kind of memory, and whether calls are in place
  bool in_rank_order = true;
};

// A text about the first wrong result.
std::optional<std::string> find_wrong_bits(Communicator& world, const BitsProblem& problem);

// The same with a NaN in the input of one rank after the other. Only the result at its place must be NaN.
std::optional<std::string> find_wrong_nan(Communicator& world, comm::OperationKind kind, comm::DataType type,
                                          comm::ReduceOp op, std::size_t count, bool foreign);

// The same for a sum that would not grow if every step were rounded to 16 bits: 2048 + 1 + 1 + ... in fp16, 256 + 1 + 1
// + ... in bf16.
std::optional<std::string> find_narrow_sum(Communicator& world, comm::DataType type, std::size_t count, bool foreign);

}  // namespace reigen::trial
