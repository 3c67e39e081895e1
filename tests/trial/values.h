// Inputs whose results are exact in every type, so the expected value is a formula and the tolerance is zero. Values
// are a hash of seed, ranks and index, so a block, chunk or slice in a wrong place is found. Thread rule: plain
// functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "comm/call/call.h"

namespace reigen::trial {

enum class Memory { kShared, kForeign, kMixed };  // mixed: kShared or kForeign, by rank
enum class Manner { kBlocking, kAsync, kPolled, kGrouped };

inline constexpr const char* kMemoryNames[] = {"shared", "foreign", "mixed"};
inline constexpr const char* kMannerNames[] = {"blocking", "async", "polled", "grouped"};

// One call, the same on every rank. kSend: every rank sends to the next rank and receives from the previous rank.
struct Problem {
  comm::OperationKind kind = comm::OperationKind::kAllReduce;
  comm::DataType type = comm::DataType::kFloat32;
  comm::ReduceOp op = comm::ReduceOp::kSum;
  std::size_t count = 0;  // elements of a block; if blocks are uneven, of the largest
  int root = 0;
  bool in_place = false;
  bool factors = false;  // inputs have factors of 1/2, 1 and 2, by rank
  Memory memory = Memory::kShared;
  Manner manner = Manner::kBlocking;
  std::uint64_t seed = 0;
};

std::string describe(const Problem& problem);

inline constexpr int kAll = -1;       // Block::from: the reduction over all ranks
inline constexpr int kNonsense = -2;  // ... no data of any rank

// The data from rank `from` to rank `to`. `to` is 0 if all ranks get the same data.
struct Block {
  int from = 0;
  int to = 0;
  std::size_t count = 0;
};

std::uint64_t mix(std::uint64_t value);

// The number of elements from `from` to `to`.
std::size_t block_count(const Problem& problem, int ranks, int from, int to);
std::vector<Block> input_blocks(const Problem& problem, int ranks, int rank);
std::vector<Block> output_blocks(const Problem& problem, int ranks, int rank);
double factor_of(const Problem& problem, int rank);

std::size_t total(const std::vector<Block>& blocks);
// The number of elements before block `index`.
std::size_t begin_of(const std::vector<Block>& blocks, std::size_t index);

// The first elements of a block. A block repeats itself after kPeriod elements. kPeriod is a prime, so no chunk is a
// multiple of it.
inline constexpr std::size_t kPeriod = 1021;
std::vector<std::byte> pattern_of(const Problem& problem, int ranks, const Block& block);

}  // namespace reigen::trial
