#include <algorithm>

#include "comm/schedule/algorithms.h"
#include "comm/schedule/cut.h"

namespace reigen::comm::schedule {

namespace {

int next_of(const Problem& p) { return (p.rank + 1) % p.size; }
int previous_of(const Problem& p) { return (p.rank + p.size - 1) % p.size; }
int around(const Problem& p, int rank) { return ((rank % p.size) + p.size) % p.size; }

// For a group of one rank, whose sum is its own input. Nothing is sent.
void add_own(const Problem& p, const Blocks& blocks, Schedule& schedule) {
  const Range own = blocks.at(Buffer::kInput, p.rank);
  Step step;
  if (own.count > 0) {
    step.locals.push_back({Local::Kind::kFinish, {Buffer::kOutput, own.begin, own.count}, {own}});
  }
  add(schedule, std::move(step));
}

// Adds the steps of K-1 rounds (K is the number of ranks), in which the partial sum of each block passes once around
// the ring. At the end, rank b has the complete sum of block b. `partial(block, k)`: where this rank stores the
// incomplete sum of piece k of a block. `result`: where this rank stores the complete sum of its own block.
template <typename Partial>
void reduce_around(const Problem& p, const Blocks& blocks, const Partial& partial, const Range& result,
                   Schedule& schedule) {
  for (int round = 0; round + 1 < p.size; ++round) {
    const int sent = around(p, p.rank - round - 1);
    const int received = around(p, p.rank - round - 2);
    const bool last = round + 2 == p.size;
    for (std::size_t k = 0; k < p.segments; ++k) {
      const Range own = piece(blocks.at(Buffer::kInput, received), k, p.segments);
      const Range arrived{Buffer::kScratch, 0, own.count};
      const Range into = last ? piece(result, k, p.segments) : partial(received, k);
      Step step;
      add(step.sends, next_of(p),
          round == 0 ? piece(blocks.at(Buffer::kInput, sent), k, p.segments) : partial(sent, k));
      add(step.receives, previous_of(p), arrived);
      if (own.count > 0) {
        step.locals.push_back({last ? Local::Kind::kFinish : Local::Kind::kReduce, into, {arrived, own}});
      }
      add(schedule, std::move(step));
    }
  }
}

// Adds the steps of K-1 rounds, in which every block passes once around the ring. `own`: the range that contains this
// rank's block before the first round.
void gather_around(const Problem& p, const Blocks& blocks, const Range& own, Schedule& schedule) {
  for (int round = 0; round + 1 < p.size; ++round) {
    const int sent = around(p, p.rank - round);
    const int received = around(p, p.rank - round - 1);
    for (std::size_t k = 0; k < p.segments; ++k) {
      Step step;
      add(step.sends, next_of(p), piece(round == 0 ? own : blocks.at(Buffer::kOutput, sent), k, p.segments));
      add(step.receives, previous_of(p), piece(blocks.at(Buffer::kOutput, received), k, p.segments));
      add(schedule, std::move(step));
    }
  }
}

}  // namespace

Schedule ring_all_reduce(const Problem& p) {
  const Blocks blocks(p.counts);
  Schedule schedule{.scratch = piece_count(blocks.largest(), p.segments)};
  if (p.size == 1) {
    add_own(p, blocks, schedule);
    return schedule;
  }
  const Range own = blocks.at(Buffer::kOutput, p.rank);
  reduce_around(
      p, blocks, [&](int block, std::size_t k) { return piece(blocks.at(Buffer::kOutput, block), k, p.segments); }, own,
      schedule);
  gather_around(p, blocks, own, schedule);
  return schedule;
}

Schedule ring_reduce_scatter(const Problem& p) {
  const Blocks blocks(p.counts);
  const std::size_t longest = piece_count(blocks.largest(), p.segments);
  Schedule schedule{.scratch = longest * (1 + p.segments)};
  if (p.size == 1) {
    add_own(p, blocks, schedule);
    return schedule;
  }
  // The input belongs to the caller and may not be written, so partial sums lie in scratch. Scratch has one range for
  // each piece number k. All blocks use it in turn for their piece k. Each range has room for the longest piece.
  const auto partial = [&](int block, std::size_t k) {
    return Range{Buffer::kScratch, longest * (1 + k), piece(blocks.at(Buffer::kInput, block), k, p.segments).count};
  };
  reduce_around(p, blocks, partial, {Buffer::kOutput, 0, blocks.count(p.rank)}, schedule);
  return schedule;
}

Schedule ring_all_gather(const Problem& p) {
  const Blocks blocks(p.counts);
  const Range own{Buffer::kInput, 0, blocks.count(p.rank)};
  Schedule schedule;
  Step step;
  if (own.count > 0) step.locals.push_back({Local::Kind::kCopy, blocks.at(Buffer::kOutput, p.rank), {own}});
  add(schedule, std::move(step));
  gather_around(p, blocks, own, schedule);
  return schedule;
}

Schedule ring_broadcast(const Problem& p) {
  const std::size_t count = Blocks(p.counts).total();
  const auto distance = static_cast<std::size_t>(around(p, p.rank - p.root));
  const bool is_last = distance + 1 == static_cast<std::size_t>(p.size);
  Schedule schedule;
  const std::size_t rounds = p.segments + static_cast<std::size_t>(p.size);
  for (std::size_t round = 0; round < rounds; ++round) {
    Step step;
    if (!is_last && round >= distance && round - distance < p.segments) {
      const Buffer from = distance == 0 ? Buffer::kInput : Buffer::kOutput;
      add(step.sends, next_of(p), piece({from, 0, count}, round - distance, p.segments));
    }
    if (distance > 0 && round + 1 >= distance && round + 1 - distance < p.segments) {
      add(step.receives, previous_of(p), piece({Buffer::kOutput, 0, count}, round + 1 - distance, p.segments));
    }
    add(schedule, std::move(step));
  }
  return schedule;
}

}  // namespace reigen::comm::schedule
