#include "reigen/nn/sequence_part.h"

#include <ATen/ATen.h>

#include "base/check.h"

namespace reigen::nn {

namespace {

std::weak_ptr<const SequencePart>& part_of_this_thread() {
  thread_local std::weak_ptr<const SequencePart> part;
  return part;
}

}  // namespace

void use_on_this_thread(const std::shared_ptr<const SequencePart>& part) { part_of_this_thread() = part; }

std::shared_ptr<const SequencePart> sequence_part() { return part_of_this_thread().lock(); }

at::Tensor rows_of_positions(const at::Tensor& table, std::int64_t count, std::int64_t first) {
  const std::shared_ptr<const SequencePart> part = sequence_part();
  const std::int64_t end = count == 0 ? 0 : first + (part ? part->length(count) : count);
  REIGEN_CHECK(first >= 0 && end <= table.size(0), "a sequence with {} positions: the table of positions has {} rows",
               end, table.size(0));
  if (!part) return table.narrow(0, first, count);
  return at::embedding(table, part->positions(count, table.device()) + first);
}

}  // namespace reigen::nn
