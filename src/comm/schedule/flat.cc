#include "comm/schedule/algorithms.h"
#include "comm/schedule/cut.h"

namespace reigen::comm::schedule {

namespace {

// Adds two things to `step`: this rank receives the whole input of every other rank into scratch, and then adds all
// inputs in rank order.
void add_everything(const Problem& p, std::size_t count, Step& step) {
  Local sum{Local::Kind::kFinish, {Buffer::kOutput, 0, count}};
  std::size_t slot = 0;
  for (int q = 0; q < p.size; ++q) {
    if (q == p.rank) {
      sum.from.push_back({Buffer::kInput, 0, count});
      continue;
    }
    const Range arrived{Buffer::kScratch, slot++ * count, count};
    add(step.receives, q, arrived);
    sum.from.push_back(arrived);
  }
  if (count > 0) step.locals.push_back(std::move(sum));
}

}  // namespace

Schedule flat_all_reduce(const Problem& p) {
  const std::size_t count = Blocks(p.counts).total();
  Schedule schedule{.scratch = count * static_cast<std::size_t>(p.size - 1)};
  Step step;
  for (int i = 1; i < p.size; ++i) add(step.sends, (p.rank + i) % p.size, {Buffer::kInput, 0, count});
  add_everything(p, count, step);
  add(schedule, std::move(step));
  return schedule;
}

Schedule flat_reduce(const Problem& p) {
  const std::size_t count = Blocks(p.counts).total();
  Schedule schedule;
  Step step;
  if (p.rank == p.root) {
    schedule.scratch = count * static_cast<std::size_t>(p.size - 1);
    add_everything(p, count, step);
  } else {
    add(step.sends, p.root, {Buffer::kInput, 0, count});
  }
  add(schedule, std::move(step));
  return schedule;
}

Schedule flat_broadcast(const Problem& p) {
  const std::size_t count = Blocks(p.counts).total();
  Schedule schedule;
  Step step;
  if (p.rank == p.root) {
    for (int i = 1; i < p.size; ++i) add(step.sends, (p.rank + i) % p.size, {Buffer::kInput, 0, count});
  } else {
    add(step.receives, p.root, {Buffer::kOutput, 0, count});
  }
  add(schedule, std::move(step));
  return schedule;
}

Schedule flat_gather(const Problem& p) {
  const Blocks blocks(p.counts);
  const Range own{Buffer::kInput, 0, blocks.count(p.rank)};
  Schedule schedule;
  Step step;
  if (p.rank == p.root) {
    for (int q = 0; q < p.size; ++q) {
      if (q != p.rank) add(step.receives, q, blocks.at(Buffer::kOutput, q));
    }
    if (own.count > 0) step.locals.push_back({Local::Kind::kCopy, blocks.at(Buffer::kOutput, p.rank), {own}});
  } else {
    add(step.sends, p.root, own);
  }
  add(schedule, std::move(step));
  return schedule;
}

Schedule flat_scatter(const Problem& p) {
  const Blocks blocks(p.counts);
  const Range own{Buffer::kOutput, 0, blocks.count(p.rank)};
  Schedule schedule;
  Step step;
  if (p.rank == p.root) {
    for (int i = 1; i < p.size; ++i) {
      const int q = (p.rank + i) % p.size;
      add(step.sends, q, blocks.at(Buffer::kInput, q));
    }
    if (own.count > 0) step.locals.push_back({Local::Kind::kCopy, own, {blocks.at(Buffer::kInput, p.rank)}});
  } else {
    add(step.receives, p.root, own);
  }
  add(schedule, std::move(step));
  return schedule;
}

Schedule flat_all_gather(const Problem& p) {
  const Blocks blocks(p.counts);
  const Range own{Buffer::kInput, 0, blocks.count(p.rank)};
  Schedule schedule;
  Step step;
  for (int i = 1; i < p.size; ++i) {
    const int to = (p.rank + i) % p.size;
    const int from = (p.rank - i + p.size) % p.size;
    add(step.sends, to, own);
    add(step.receives, from, blocks.at(Buffer::kOutput, from));
  }
  if (own.count > 0) step.locals.push_back({Local::Kind::kCopy, blocks.at(Buffer::kOutput, p.rank), {own}});
  add(schedule, std::move(step));
  return schedule;
}

Schedule flat_barrier(const Problem&) { return {}; }

Schedule pairwise_all_to_all(const Problem& p) {
  const Blocks input(p.counts);
  const Blocks output(p.received);
  Schedule schedule;
  Step first;
  if (input.count(p.rank) > 0) {
    first.locals.push_back(
        {Local::Kind::kCopy, output.at(Buffer::kOutput, p.rank), {input.at(Buffer::kInput, p.rank)}});
  }
  add(schedule, std::move(first));
  for (int i = 1; i < p.size; ++i) {
    const int to = (p.rank + i) % p.size;
    const int from = (p.rank - i + p.size) % p.size;
    Step step;
    add(step.sends, to, input.at(Buffer::kInput, to));
    add(step.receives, from, output.at(Buffer::kOutput, from));
    add(schedule, std::move(step));
  }
  return schedule;
}

Schedule dissemination_barrier(const Problem& p) {
  Schedule schedule;
  for (int distance = 1; distance < p.size; distance *= 2) {
    Step step;
    // The sent element and the received element are different elements of scratch, because a step may not write a range
    // that it sends.
    add(step.sends, (p.rank + distance) % p.size, {Buffer::kScratch, 0, 1});
    add(step.receives, (p.rank - distance + p.size) % p.size, {Buffer::kScratch, 1, 1});
    add(schedule, std::move(step));
  }
  schedule.scratch = schedule.steps.empty() ? 0 : 2;
  return schedule;
}

}  // namespace reigen::comm::schedule
