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

at::Tensor rows_of_positions(const at::Tensor& table, std::int64_t count) {
  const std::shared_ptr<const SequencePart> part = sequence_part();
  if (!part) return table.narrow(0, 0, count);
  const at::Tensor positions = part->positions(count, table.device());
  const std::int64_t last = count == 0 ? 0 : positions.max().item<std::int64_t>();
  REIGEN_CHECK(last < table.size(0), "a sequence with position {}: the table of positions has {} rows", last,
               table.size(0));
  return at::embedding(table, positions);
}

}  // namespace reigen::nn
