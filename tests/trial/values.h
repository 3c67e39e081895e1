// Inputs whose results every type holds exactly, so that the expected value is a formula and the tolerance zero. Values
// are a hash of seed, ranks and index: a block, chunk or slice in a wrong place is seen. Thread rule: plain functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "comm/call/call.h"

namespace reigen::trial {

enum class Memory { kShared, kForeign, kMixed };  // mixed: by rank
enum class Manner { kBlocking, kAsync, kPolled, kGrouped };

inline constexpr const char* kMemoryNames[] = {"shared", "foreign", "mixed"};
inline constexpr const char* kMannerNames[] = {"blocking", "async", "polled", "grouped"};

// One call, the same on every rank. kSend: every rank sends to the next one and receives from the one before.
struct Problem {
  comm::OperationKind kind = comm::OperationKind::kAllReduce;
  comm::DataType type = comm::DataType::kFloat32;
  comm::ReduceOp op = comm::ReduceOp::kSum;
  std::size_t count = 0;  // of a block; uneven: of the largest
  int root = 0;
  bool in_place = false;
  bool factors = false;  // of 1/2, 1 and 2 by rank
  Memory memory = Memory::kShared;
  Manner manner = Manner::kBlocking;
  std::uint64_t seed = 0;
};

std::string describe(const Problem& problem);

inline constexpr int kAll = -1;       // Block::from: the reduction over all ranks
inline constexpr int kNonsense = -2;  // ... nothing that anybody gave

// What rank `from` gives to rank `to` (0 where everybody gets the same).
struct Block {
  int from = 0;
  int to = 0;
  std::size_t count = 0;
};

std::uint64_t mix(std::uint64_t value);

// Elements that `from` gives to `to`.
std::size_t block_count(const Problem& problem, int ranks, int from, int to);
std::vector<Block> input_blocks(const Problem& problem, int ranks, int rank);
std::vector<Block> output_blocks(const Problem& problem, int ranks, int rank);
double factor_of(const Problem& problem, int rank);

std::size_t total(const std::vector<Block>& blocks);
// Elements before block `index`.
std::size_t begin_of(const std::vector<Block>& blocks, std::size_t index);

// The first elements of a block; it repeats itself after kPeriod of them, a prime: no chunk is a multiple of it.
inline constexpr std::size_t kPeriod = 1021;
std::vector<std::byte> pattern_of(const Problem& problem, int ranks, const Block& block);

}  // namespace reigen::trial
