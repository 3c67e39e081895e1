#include <algorithm>

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

}  // namespace

// Rank r has room for 2p activations. Until the first gradient is there, it fills them with forwards. Then each
// micro-batch frees two activations by its W's and takes two by its forwards, so that no rank waits. In the end no
// forwards are left, and W's that were put off fill the time until gradients arrive.
Schedule zero_bubble_v(const Size& size) {
  Schedule schedule = empty_schedule(Name::kZeroBubbleV, size);
  schedule.placement = v_shaped(2 * size.ranks, size.ranks);
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
