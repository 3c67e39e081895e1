// A schedule: the list of steps that one rank does in an operation. It is plain data, without sockets and memory.
//
// All transfers of a step run at the same time. When they are done, the local work of the step (copies and sums) runs,
// and then the next step begins. The schedules of sender and receiver both leave out a transfer of zero elements.
// Messages between two ranks carry no identifier: the n-th range that rank A sends to rank B is the n-th range that B
// receives from A. So the schedules of all ranks must match; tests/comm/schedule_test.cc runs them against each other.
// The receives of a step never write a range that the same step sends.
// Thread rule: plain values, which may be copied between threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "reigen/comm/types.h"

namespace reigen::comm::schedule {

enum class Buffer : std::uint8_t { kInput, kOutput, kScratch };

// Consecutive elements of a buffer.
struct Range {
  Buffer buffer = Buffer::kInput;
  std::size_t begin = 0;
  std::size_t count = 0;
};

struct Transfer {
  int peer = 0;
  Range range;
  std::size_t after = 0;  // in an eager schedule, a send may begin when this many steps are complete
};

struct Local {
  enum class Kind : std::uint8_t {
    kCopy,
    kReduce,  // into = op(from...), in the order of `from`; for an average only adds
    kFinish,  // like kReduce; for an average also divides by the number of ranks
  };
  Kind kind = Kind::kCopy;
  Range into;
  std::vector<Range> from = {};
};

struct Step {
  std::vector<Transfer> sends = {};
  std::vector<Transfer> receives = {};
  std::vector<Local> locals = {};
};

struct Schedule {
  std::size_t scratch = 0;  // size of the scratch buffer, in elements
  // If true, a send may begin before its step begins, and a step may end before its sends are done. The order of the
  // sends stays the same. After this rank has begun to send a range, an eager schedule must not overwrite the range
  // until the receiver has it. On a busy machine, an eager schedule lets a rank do more each time it gets a processor.
  bool eager = false;
  std::vector<Step> steps = {};
};

// The operation for which a schedule is made, as one rank sees it.
struct Problem {
  int rank = 0;
  int size = 1;
  int root = 0;
  // counts[q]: the size of rank q's block, in elements. The blocks lie in rank order without gaps. For all_reduce,
  // broadcast and reduce, the array is cut into one block for each rank (even_cut). For all_to_all, counts[q] is the
  // number of elements that this rank sends to rank q.
  std::vector<std::size_t> counts;
  std::vector<std::size_t> received = {};  // all_to_all: received[q] elements come from rank q
  std::size_t segments = 1;                // algorithms that can cut long data cut them into this many pieces
};

// The memory of the buffers of a schedule.
struct Memory {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::byte* scratch = nullptr;
  std::size_t element = 1;  // bytes of one element

  const std::byte* read(const Range& range) const;
  std::byte* write(const Range& range) const;
};

// Does the copy or the sum `local`. `ranks`: the number by which an average divides the sum.
void run(const Local& local, const Memory& memory, DataType type, ReduceOp op, int ranks);

}  // namespace reigen::comm::schedule
