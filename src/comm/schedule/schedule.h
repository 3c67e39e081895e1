// What one rank does in an operation, as data: no sockets, no memory, no waiting.
//
// A schedule is a list of steps. In a step all transfers run at once. When they are done, the local work of the step
// runs, and then the next step begins. A transfer of zero elements is left out on both sides. Messages between two
// ranks have no names: the n-th range that one rank sends to another is the n-th that the other receives from it. So
// the schedules of all ranks must fit together; tests/comm/schedule_test.cc runs them against each other. A step never
// writes a range that it sends. Thread rule: values, freely copied between threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "reigen/comm/types.h"

namespace reigen::comm::schedule {

enum class Buffer : std::uint8_t { kInput, kOutput, kScratch };

// A range of elements of a buffer.
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
    kReduce,  // into = op(from...), in this order; an average is left as a sum
    kFinish,  // like kReduce, and an average is divided by the number of ranks
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
  std::size_t scratch = 0;  // elements
  // If true, sends may begin before their step, but in their order, and no step waits for its own sends. The schedule
  // must then overwrite a range only when its receiver already has it. On a busy machine, an eager schedule lets a rank
  // do more each time it gets a processor.
  bool eager = false;
  std::vector<Step> steps = {};
};

// The operation for which a schedule is made, as one rank sees it.
struct Problem {
  int rank = 0;
  int size = 1;
  int root = 0;
  // counts[q]: the size of rank q's block, in elements. The blocks lie in rank order without gaps. all_reduce,
  // broadcast and reduce: the array is cut into one block for each rank (even_cut). all_to_all: what this rank sends to
  // rank q.
  std::vector<std::size_t> counts;
  std::vector<std::size_t> received = {};  // all_to_all: what this rank gets from each rank
  std::size_t segments = 1;                // long data are cut into this many pieces, sent one after the other
};

// The memory of the buffers of a schedule.
struct Memory {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::byte* scratch = nullptr;
  std::size_t element = 1;  // bytes

  const std::byte* read(const Range& range) const;
  std::byte* write(const Range& range) const;
};

// Runs the local work. `ranks`: the number by which an average divides the sum.
void run(const Local& local, const Memory& memory, DataType type, ReduceOp op, int ranks);

}  // namespace reigen::comm::schedule
