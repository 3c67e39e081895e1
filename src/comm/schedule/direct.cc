#include <algorithm>

#include "comm/schedule/algorithms.h"
#include "comm/schedule/cut.h"

namespace reigen::comm::schedule {

namespace {

// An all_reduce sends the sum of a piece this many steps after the sum is ready. In these steps the ranks send pieces
// of their inputs. The pieces that both ranks of a connection send in kLag steps fill the connection's buffers.
constexpr std::size_t kLag = 4;

// Adds three things to `step`. This rank sends piece k of block q of its input to each other rank q. It receives piece
// k of its own block from every other rank. It adds the received pieces and its own piece k in rank order, and writes
// the sum to `result`.
void exchange_piece(const Problem& p, const Blocks& blocks, std::size_t k, const Range& result, Step& step) {
  const std::size_t slot_count = piece_count(blocks.count(p.rank), p.segments);
  const Range own = piece(blocks.at(Buffer::kInput, p.rank), k, p.segments);
  for (int i = 1; i < p.size; ++i) {
    const int to = (p.rank + i) % p.size;
    add(step.sends, to, piece(blocks.at(Buffer::kInput, to), k, p.segments));
  }
  Local sum{Local::Kind::kFinish, result};
  std::size_t slot = 0;
  for (int q = 0; q < p.size; ++q) {
    if (q == p.rank) {
      sum.from.push_back(own);
      continue;
    }
    const Range arrived{Buffer::kScratch, slot++ * slot_count, own.count};
    add(step.receives, q, arrived);
    sum.from.push_back(arrived);
  }
  if (own.count > 0) step.locals.push_back(std::move(sum));
}

std::size_t scratch_of(const Problem& p, const Blocks& blocks) {
  return piece_count(blocks.count(p.rank), p.segments) * static_cast<std::size_t>(p.size - 1);
}

}  // namespace

// The schedule may be eager even if the call is in place. An input piece that this rank sends to rank q is overwritten
// only by the sum that comes back from rank q. Rank q has received the piece before, because the sum contains it. A sum
// is sent kLag steps after it is ready. The input pieces of these steps wait for nothing, and are sent before the
// sum.
Schedule direct_all_reduce(const Problem& p) {
  const Blocks blocks(p.counts);
  Schedule schedule{.scratch = scratch_of(p, blocks), .eager = true};
  const Range own = blocks.at(Buffer::kOutput, p.rank);
  const std::size_t lag = std::min(kLag, p.segments);
  std::vector<std::size_t> ready(p.segments);  // ready[k]: the sum of piece k is ready after this many steps
  for (std::size_t k = 0; k < p.segments + lag; ++k) {
    Step step;
    if (k < p.segments) exchange_piece(p, blocks, k, piece(own, k, p.segments), step);
    for (int i = 1; k >= lag && i < p.size; ++i) {
      const int to = (p.rank + i) % p.size;
      const int from = (p.rank - i + p.size) % p.size;
      add(step.sends, to, piece(own, k - lag, p.segments), ready[k - lag]);
      add(step.receives, from, piece(blocks.at(Buffer::kOutput, from), k - lag, p.segments));
    }
    add(schedule, std::move(step));
    if (k < p.segments) ready[k] = schedule.steps.size();
  }
  return schedule;
}

Schedule direct_reduce_scatter(const Problem& p) {
  const Blocks blocks(p.counts);
  // The schedule may be eager (a send may begin before all earlier steps are complete) even if the call is in place,
  // because it overwrites only this rank's own block. This rank sends that block to nobody.
  Schedule schedule{.scratch = scratch_of(p, blocks), .eager = true};
  for (std::size_t k = 0; k < p.segments; ++k) {
    Step step;
    exchange_piece(p, blocks, k, piece({Buffer::kOutput, 0, blocks.count(p.rank)}, k, p.segments), step);
    add(schedule, std::move(step));
  }
  return schedule;
}

// Every rank sends each piece of its sum to the root in the step after the piece is ready. Ranks other than the root
// have no output. They keep their sums in two ranges of scratch: the sum in one range is sent while the next sum is
// written to the other range.
Schedule direct_reduce(const Problem& p) {
  const Blocks blocks(p.counts);
  const std::size_t ready_at = scratch_of(p, blocks);
  const std::size_t ready_count = piece_count(blocks.count(p.rank), p.segments);
  const bool is_root = p.rank == p.root;
  Schedule schedule{.scratch = ready_at + (is_root ? 0 : 2 * ready_count)};
  const Range own = blocks.at(Buffer::kOutput, p.rank);
  const auto ready = [&](std::size_t k) {
    const Range part = piece(own, k, p.segments);
    return is_root ? part : Range{Buffer::kScratch, ready_at + k % 2 * ready_count, part.count};
  };
  for (std::size_t k = 0; k <= p.segments; ++k) {
    Step step;
    if (k > 0 && !is_root) add(step.sends, p.root, ready(k - 1));
    for (int q = 0; k > 0 && is_root && q < p.size; ++q) {
      if (q != p.rank) add(step.receives, q, piece(blocks.at(Buffer::kOutput, q), k - 1, p.segments));
    }
    if (k < p.segments) exchange_piece(p, blocks, k, ready(k), step);
    add(schedule, std::move(step));
  }
  return schedule;
}

}  // namespace reigen::comm::schedule
