#include "comm/schedule/cut.h"

#include <algorithm>

namespace reigen::comm::schedule {

std::vector<std::size_t> even_cut(std::size_t count, std::size_t parts) {
  std::vector<std::size_t> counts(parts);
  for (std::size_t i = 0; i < parts; ++i) counts[i] = count / parts + (i < count % parts ? 1 : 0);
  return counts;
}

Blocks::Blocks(const std::vector<std::size_t>& counts) : begins_{0} {
  begins_.reserve(counts.size() + 1);
  for (const std::size_t count : counts) begins_.push_back(begins_.back() + count);
}

std::size_t Blocks::largest() const {
  std::size_t most = 0;
  for (int b = 0; b < size(); ++b) most = std::max(most, count(b));
  return most;
}

Range piece(const Range& range, std::size_t index, std::size_t pieces) {
  const std::size_t whole = range.count / pieces;
  const std::size_t longer = range.count % pieces;
  return {range.buffer, range.begin + whole * index + std::min(index, longer), whole + (index < longer ? 1 : 0)};
}

std::size_t piece_count(std::size_t count, std::size_t pieces) { return (count + pieces - 1) / pieces; }

void add(std::vector<Transfer>& transfers, int peer, const Range& range, std::size_t after) {
  if (range.count > 0) transfers.push_back({peer, range, after});
}

void add(Schedule& schedule, Step step) {
  if (step.sends.empty() && step.receives.empty() && step.locals.empty()) return;
  schedule.steps.push_back(std::move(step));
}

}  // namespace reigen::comm::schedule
