// What one rank does in an operation, as data: no sockets, no memory, no waiting.
//
// A schedule is a list of steps. In a step all transfers run at once; when they are done its local work runs, and the
// next step begins. Transfers of zero elements do not exist for either side. Between two ranks messages have no names:
// the n-th range that one sends to the other is the n-th that the other receives from it, so the schedules of all ranks
// must fit together; tests/comm/schedule_test.cc runs them against each other. A range that is being sent is not
// written in the same step. Thread rule: values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "reigen/comm/types.h"

namespace reigen::comm::schedule {

enum class Buffer : std::uint8_t { kInput, kOutput, kScratch };

// Elements of a buffer.
struct Range {
  Buffer buffer = Buffer::kInput;
  std::size_t begin = 0;
  std::size_t count = 0;
};

struct Transfer {
  int peer = 0;
  Range range;
  std::size_t after = 0;  // a send of an eager schedule may leave when so many steps are complete
};

struct Local {
  enum class Kind : std::uint8_t {
    kCopy,
    kReduce,  // into = op(from...), in this order; an average is left as a sum
    kFinish,  // the same, and an average is divided by the number of ranks
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
  // Sends may leave before their step, in their order, and no step waits for its own: nothing is written over a range
  // before whoever receives it has it. A rank that gets its turn on a busy machine then does as much as it can.
  bool eager = false;
  std::vector<Step> steps = {};
};

// What is to be done, as one rank sees it.
struct Problem {
  int rank = 0;
  int size = 1;
  int root = 0;
  // Elements of every rank's block, in rank order, without gaps. all_reduce, broadcast and reduce: how the array is cut
  // among the ranks that share its work (even_cut). all_to_all: what this rank sends to each.
  std::vector<std::size_t> counts;
  std::vector<std::size_t> received = {};  // all_to_all: what this rank gets from each
  std::size_t segments = 1;                // what is long is cut in so many pieces that travel one after the other
};

// The memory behind the buffers of a schedule.
struct Memory {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::byte* scratch = nullptr;
  std::size_t element = 1;  // bytes

  const std::byte* read(const Range& range) const;
  std::byte* write(const Range& range) const;
};

void run(const Local& local, const Memory& memory, DataType type, ReduceOp op, int ranks);

}  // namespace reigen::comm::schedule
