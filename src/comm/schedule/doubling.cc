#include "comm/schedule/algorithms.h"
#include "comm/schedule/cut.h"

namespace reigen::comm::schedule {

namespace {

int largest_power_of_two(int size) {
  int power = 1;
  while (power * 2 <= size) power *= 2;
  return power;
}

// Says which ranks take part in the doubling steps (the exchanges between ranks whose numbers differ in one bit). The
// number of ranks is the largest power of two that fits (power_), plus rest_. Among the first 2·rest_ ranks, each odd
// rank is a guest: it sends its input to the even rank just below it and takes no part. number(): the number of this
// rank if only the ranks that take part are counted.
class Fold {
 public:
  explicit Fold(const Problem& p) : power_(largest_power_of_two(p.size)), rest_(p.size - power_), rank_(p.rank) {}

  int power() const { return power_; }
  bool takes_part() const { return rank_ >= 2 * rest_ || rank_ % 2 == 0; }
  bool has_guest() const { return rank_ < 2 * rest_ && rank_ % 2 == 0; }
  int number() const { return rank_ < 2 * rest_ ? rank_ / 2 : rank_ - rest_; }
  int rank_of(int number) const { return number < rest_ ? 2 * number : number + rest_; }

 private:
  int power_;
  int rest_;
  int rank_;
};

// The two operands of a sum in their order: the operand of the lower rank comes first.
std::vector<Range> in_order(const Range& own, const Range& other, bool own_first) {
  return own_first ? std::vector<Range>{own, other} : std::vector<Range>{other, own};
}

// The step before the doubling steps: each guest sends its input to the rank below, which adds this input to its own.
// Returns true if this rank has a guest. This rank's data are then the sum in its output. Otherwise they are still in
// its input.
bool fold_in(const Problem& p, const Fold& fold, std::size_t count, Schedule& schedule) {
  Step step;
  if (!fold.takes_part()) {
    add(step.sends, p.rank - 1, {Buffer::kInput, 0, count});
  } else if (fold.has_guest()) {
    const Range arrived{Buffer::kScratch, 0, count};
    add(step.receives, p.rank + 1, arrived);
    if (count > 0) {
      step.locals.push_back({Local::Kind::kReduce, {Buffer::kOutput, 0, count}, {{Buffer::kInput, 0, count}, arrived}});
    }
  }
  add(schedule, std::move(step));
  return fold.has_guest();
}

// The step after the doubling steps: each guest receives the result from the rank below.
void fold_out(const Problem& p, const Fold& fold, std::size_t count, Schedule& schedule) {
  Step step;
  if (!fold.takes_part()) add(step.receives, p.rank - 1, {Buffer::kOutput, 0, count});
  if (fold.has_guest()) add(step.sends, p.rank + 1, {Buffer::kOutput, 0, count});
  add(schedule, std::move(step));
}

Schedule alone(std::size_t count) {
  Schedule schedule;
  Step step;
  if (count > 0) {
    step.locals.push_back({Local::Kind::kFinish, {Buffer::kOutput, 0, count}, {{Buffer::kInput, 0, count}}});
  }
  add(schedule, std::move(step));
  return schedule;
}

}  // namespace

Schedule halving_doubling_all_reduce(const Problem& p) {
  const std::size_t count = Blocks(p.counts).total();
  if (p.size == 1) return alone(count);
  const Fold fold(p);
  Schedule schedule{.scratch = fold.takes_part() ? count : 0};
  const bool folded = fold_in(p, fold, count, schedule);
  if (fold.takes_part()) {
    const Blocks blocks(even_cut(count, static_cast<std::size_t>(fold.power())));
    const int number = fold.number();
    Buffer source = folded ? Buffer::kOutput : Buffer::kInput;
    int begin = 0;
    int end = fold.power();
    for (int bit = fold.power() / 2; bit > 0; bit /= 2) {
      const int middle = begin + bit;
      const bool lower = (number & bit) == 0;
      const int partner = fold.rank_of(number ^ bit);
      Step step;
      add(step.sends, partner, lower ? blocks.span(source, middle, end) : blocks.span(source, begin, middle));
      (lower ? end : begin) = middle;
      const Range own = blocks.span(source, begin, end);
      const Range arrived{Buffer::kScratch, 0, own.count};
      add(step.receives, partner, arrived);
      if (own.count > 0) {
        step.locals.push_back({bit == 1 ? Local::Kind::kFinish : Local::Kind::kReduce,
                               blocks.span(Buffer::kOutput, begin, end), in_order(own, arrived, lower)});
      }
      add(schedule, std::move(step));
      source = Buffer::kOutput;
    }
    for (int bit = 1; bit < fold.power(); bit *= 2) {
      const bool lower = (number & bit) == 0;
      const int partner = fold.rank_of(number ^ bit);
      const int other = lower ? end : begin - bit;
      Step step;
      add(step.sends, partner, blocks.span(Buffer::kOutput, begin, end));
      add(step.receives, partner, blocks.span(Buffer::kOutput, other, other + bit));
      add(schedule, std::move(step));
      (lower ? end : begin) += lower ? bit : -bit;
    }
  }
  fold_out(p, fold, count, schedule);
  return schedule;
}

Schedule recursive_doubling_all_reduce(const Problem& p) {
  const std::size_t count = Blocks(p.counts).total();
  if (p.size == 1) return alone(count);
  const Fold fold(p);
  Schedule schedule{.scratch = fold.takes_part() ? count : 0};
  Buffer source = fold_in(p, fold, count, schedule) ? Buffer::kOutput : Buffer::kInput;
  for (int bit = 1; fold.takes_part() && bit < fold.power(); bit *= 2) {
    const int partner = fold.rank_of(fold.number() ^ bit);
    const Range own{source, 0, count};
    const Range arrived{Buffer::kScratch, 0, count};
    Step step;
    add(step.sends, partner, own);
    add(step.receives, partner, arrived);
    if (count > 0) {
      step.locals.push_back({bit * 2 == fold.power() ? Local::Kind::kFinish : Local::Kind::kReduce,
                             {Buffer::kOutput, 0, count},
                             in_order(own, arrived, (fold.number() & bit) == 0)});
    }
    add(schedule, std::move(step));
    source = Buffer::kOutput;
  }
  fold_out(p, fold, count, schedule);
  return schedule;
}

}  // namespace reigen::comm::schedule
