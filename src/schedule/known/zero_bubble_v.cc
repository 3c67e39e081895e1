#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "schedule/known/generators.h"

namespace reigen::schedule {
namespace {

// The list of one rank. Chunk 0 is its stage on the way from rank 0 to the last rank, chunk 1 that on the way back.
class ListOfRank {
 public:
  ListOfRank(std::vector<Action>& list, const Size& size, int rank)
      : list_(list), micro_batches_(size.micro_batches), stages_{rank, 2 * size.ranks - 1 - rank} {}

  void forward(int chunk) { add(Kind::kForward, chunk, forwards_[chunk]++); }
  void backward_input(int chunk) { add(Kind::kBackwardInput, chunk, inputs_[chunk]++); }
  void backward_weight(int chunk) { add(Kind::kBackwardWeight, chunk, weights_[chunk]++); }
  void backward(int chunk) {
    backward_input(chunk);
    backward_weight(chunk);
  }
  void rest_of_weights(int chunk) {
    while (weights_[chunk] < inputs_[chunk]) backward_weight(chunk);
  }
  int forwards(int chunk) const { return forwards_[chunk]; }

 private:
  void add(Kind kind, int chunk, int micro_batch) {
    if (micro_batch < micro_batches_) list_.push_back({kind, stages_[chunk], micro_batch});
  }

  std::vector<Action>& list_;
  int micro_batches_;
  int stages_[2];
  int forwards_[2] = {};  // how many there are, also those of micro-batches that do not exist
  int inputs_[2] = {};
  int weights_[2] = {};
};

// Plays the ranks in time: every action takes one unit, and messages take none. A rank that is free takes the first of
// these that is possible: a forward on the way back, a forward on the way there, an I of the way there, an I of the way
// back, a W. So it is idle only if nothing is possible. Each list of a rank has its actions in the order of time.
class InOrderOfTime {
 public:
  explicit InOrderOfTime(const Size& size)
      : ranks_(size.ranks), micro_batches_(size.micro_batches), stages_(2 * size.ranks) {
    for (std::vector<int>& ends : ends_) ends.assign(static_cast<std::size_t>(stages_ * micro_batches_), kNever);
    next_.resize(static_cast<std::size_t>(stages_));
  }

  void fill(Schedule& schedule) {
    const std::size_t all = std::size_t{3} * static_cast<std::size_t>(stages_ * micro_batches_);
    std::size_t done = 0;
    for (now_ = 0; done < all; ++now_) {
      for (int rank = 0; rank < ranks_; ++rank) {
        const std::optional<Action> action = choose(rank, stages_ - 1 - rank);
        if (!action) continue;
        schedule.actions[static_cast<std::size_t>(rank)].push_back(*action);
        ++done;
      }
    }
  }

 private:
  static constexpr int kNever = std::numeric_limits<int>::max();
  enum What { kForwards, kInputs, kWeights };

  std::optional<Action> choose(int there, int back) {
    for (const auto& [what, stage] : {std::pair{kForwards, back},
                                      {kForwards, there},
                                      {kInputs, there},
                                      {kInputs, back},
                                      {kWeights, back},
                                      {kWeights, there}}) {
      int& micro_batch = next_[static_cast<std::size_t>(stage)][what];
      if (micro_batch == micro_batches_ || !is_possible(what, stage, micro_batch)) continue;
      end_of(what, stage, micro_batch) = now_ + 1;
      constexpr Kind kOfWhat[] = {Kind::kForward, Kind::kBackwardInput, Kind::kBackwardWeight};
      return Action{kOfWhat[what], stage, micro_batch++};
    }
    return std::nullopt;
  }

  bool is_possible(What what, int stage, int micro_batch) {
    const auto is_done = [&](What other, int of) { return end_of(other, of, micro_batch) <= now_; };
    if (what == kForwards) return stage == 0 || is_done(kForwards, stage - 1);
    if (what == kWeights) return is_done(kInputs, stage);
    return is_done(kForwards, stage) && (stage == stages_ - 1 || is_done(kInputs, stage + 1));
  }

  int& end_of(What what, int stage, int micro_batch) {
    return ends_[what][static_cast<std::size_t>(stage * micro_batches_ + micro_batch)];
  }

  int ranks_, micro_batches_, stages_;
  std::vector<int> ends_[3];              // of each stage and micro-batch
  std::vector<std::array<int, 3>> next_;  // the next micro-batch of each stage
  int now_ = 0;
};

}  // namespace

// Rank r has room for 2p activations. With at most p micro-batches all fit, and ranks do what is possible first. With
// more, rank r fills its room with forwards until the first gradient is there. Then each micro-batch frees two
// activations by its W's and takes two by its forwards, so that no rank waits. In the end no forwards are left, and W's
// that were put off fill the time until gradients arrive.
Schedule zero_bubble_v(const Size& size) {
  Schedule schedule = empty_schedule(Name::kZeroBubbleV, size);
  schedule.placement = v_shaped(2 * size.ranks, size.ranks);
  if (size.micro_batches <= size.ranks) {
    InOrderOfTime(size).fill(schedule);
    return schedule;
  }
  // The order is made for as many micro-batches as fill the pipeline. Removing the actions of a micro-batch cannot make
  // the others wait for each other, because actions use only data of their own micro-batch.
  const int micro_batches = std::max(size.micro_batches, 2 * size.ranks - 1);
  for (int rank = 0; rank < size.ranks; ++rank) {
    const int after = size.ranks - rank;  // the ranks from this one to the last
    ListOfRank list(schedule.actions[static_cast<std::size_t>(rank)], size, rank);
    for (int i = 0; i < 2 * after - 1; ++i) list.forward(0);
    for (int i = 0; i < rank; ++i) {
      list.forward(1);
      list.forward(0);
    }
    for (int i = 0; i < after; ++i) {
      list.forward(1);
      list.backward(1);
    }
    while (list.forwards(1) < micro_batches) {
      if (list.forwards(0) < micro_batches) list.forward(0);
      list.backward(0);
      list.forward(1);
      list.backward(1);
    }
    for (int i = 0; i < rank; ++i) {
      list.backward_input(0);
      list.backward_input(1);
    }
    for (int i = 0; i < after; ++i) list.backward(0);
    list.rest_of_weights(1);
    list.rest_of_weights(0);
  }
  return schedule;
}

}  // namespace reigen::schedule
