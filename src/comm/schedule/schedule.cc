#include "comm/schedule/schedule.h"

#include <cstring>

#include "comm/reduce/reduce.h"

namespace reigen::comm::schedule {

const std::byte* Memory::read(const Range& range) const {
  const std::size_t at = range.begin * element;
  if (range.buffer == Buffer::kInput) return input + at;
  return (range.buffer == Buffer::kOutput ? output : scratch) + at;
}

std::byte* Memory::write(const Range& range) const {
  return (range.buffer == Buffer::kOutput ? output : scratch) + range.begin * element;
}

void run(const Local& local, const Memory& memory, DataType type, ReduceOp op, int ranks) {
  if (local.into.count == 0) return;
  std::byte* output = memory.write(local.into);
  if (local.kind == Local::Kind::kCopy) {
    const std::byte* input = memory.read(local.from.front());
    if (input != output) std::memmove(output, input, local.into.count * memory.element);
    return;
  }
  std::vector<const std::byte*> inputs;
  inputs.reserve(local.from.size());
  for (const Range& range : local.from) inputs.push_back(memory.read(range));
  const bool finishes = local.kind == Local::Kind::kFinish;
  reduce::run({.inputs = inputs.data(),
               .outputs = &output,
               .input_count = static_cast<int>(inputs.size()),
               .output_count = 1,
               .count = local.into.count,
               .type = type,
               .op = op == ReduceOp::kAvg && !finishes ? ReduceOp::kSum : op,
               .divisor = ranks});
}

}  // namespace reigen::comm::schedule
