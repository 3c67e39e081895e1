// Batches of a dataset for one rank of P, prepared ahead by threads.
//
//   Loader loader(data, {.batch_size = 64, .shuffle = true}, world);
//   for (auto& batch : loader.epoch(0)) loss = mean_loss(batch.input, batch.target) * batch.weight;
//
// The order is that of sampler.h: a function of (seed, epoch, position) and independent of P. To go on after a stop,
// save batch.position and call epoch(e, position), with any P and any batch size. The shares of the last batch may be
// uneven, and samples may have different numbers of terms (the tokens of a text): the average over ranks of weight ·
// (mean loss over the rank's terms) is the mean loss over those of the global batch, and the same holds for gradients.
// A rank without a sample in it gets one repeated sample with weight 0, so that all ranks run the same collectives
// (statistics of a batch would count it: nn::StandIn).
//
// Gradients that are added up over several backwards: .micro_batch cuts every rank's share into as many parts, each
// with a weight of its own, so that the sum over parts and the average over ranks is again that of the global batch,
// whatever the parts' numbers of terms.
//
//   for (const auto& part : batch.parts) (mean_loss(part.input, part.target) * part.weight).backward();
//
// Thread rule: a Loader may be shared by threads; an Epoch belongs to one.
#pragma once

#include <ATen/core/Tensor.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <vector>

#include "reigen/data/dataset.h"

namespace reigen::data {

struct LoaderOptions {
  std::optional<std::int64_t> batch_size = {};    // samples per rank and step; set this one ...
  std::optional<std::int64_t> global_batch = {};  // ... or samples of all ranks together, shared out with any remainder
  bool shuffle = false;
  std::uint64_t seed = 0;        // the same on every rank
  bool drop_last = false;        // leave out a last batch that is not full
  std::int64_t micro_batch = 0;  // samples of a part at most; 0: one part
  std::int64_t limit = 0;        // use only the first samples of the dataset; 0: all
  int workers = 1;               // threads; 0: batches are made by the caller when it asks
  int prefetch = 2;              // batches made ahead; each costs its memory
};

struct MicroBatch {
  at::Tensor input = {};  // [max(count, 1), ...], a view of the batch's
  at::Tensor target = {};
  std::vector<at::Tensor> inputs = {};  // all tensors of the samples, the first of them `input`
  std::vector<at::Tensor> targets = {};
  std::int64_t count = 0;
  std::int64_t terms = 0;
  double weight = 1;  // terms · P / global_terms of the batch; 0 without a sample
};

struct Batch {
  at::Tensor input;  // [max(count, 1), ...]
  at::Tensor target;
  std::vector<at::Tensor> inputs;  // all tensors of the samples, the first of them `input`
  std::vector<at::Tensor> targets;
  std::vector<std::int64_t> indices;  // dataset index of each real sample: count of them
  std::int64_t count = 0;             // real samples of this rank
  std::int64_t global_count = 0;      // ... of all ranks
  std::int64_t terms = 0;             // of this rank's samples in the loss: count, but for a text its valid tokens
  std::int64_t global_terms = 0;      // ... of all ranks' samples
  double weight = 1;                  // terms · P / global_terms: 1 when the shares are equal, 0 without a sample
  std::vector<MicroBatch> parts;      // in order; as many on every rank
  std::int64_t epoch = 0;
  std::int64_t step =
      0;  // in the epoch: that of an uninterrupted epoch when it began at a multiple of the global batch
  std::int64_t position = 0;  // samples of the epoch, over all ranks, used up with this batch
};

// One pass. Leaving it early or dropping it is fine at any time: its threads end after the batch they are at.
class Epoch {
 public:
  class Iterator;

  // The next batch, null at the end. It stays valid until the next call. Rethrows what the dataset threw.
  Batch* next();

  Iterator begin();  // takes the first batch
  std::default_sentinel_t end() const { return {}; }

  Epoch(Epoch&&) noexcept;
  Epoch& operator=(Epoch&&) noexcept;
  ~Epoch();

 private:
  friend class Loader;
  struct Impl;
  explicit Epoch(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

class Epoch::Iterator {
 public:
  using iterator_concept = std::input_iterator_tag;
  using value_type = Batch;
  using difference_type = std::ptrdiff_t;

  explicit Iterator(Epoch& epoch) : epoch_(&epoch), batch_(epoch.next()) {}
  Batch& operator*() const { return *batch_; }
  Batch* operator->() const { return batch_; }
  Iterator& operator++() {
    batch_ = epoch_->next();
    return *this;
  }
  void operator++(int) { ++*this; }
  bool operator==(std::default_sentinel_t) const { return batch_ == nullptr; }

 private:
  Epoch* epoch_;
  Batch* batch_;
};

inline Epoch::Iterator Epoch::begin() { return Iterator(*this); }

// What a loader needs to know of a group: reigen::Communicator and anything like it.
template <typename T>
concept Group = requires(const T& group) {
  { group.rank() } -> std::convertible_to<int>;
  { group.size() } -> std::convertible_to<int>;
};

// Whose batches a loader makes: those of one rank of `size`.
struct Member {
  Member() = default;
  Member(int its_rank, int its_size) : rank(its_rank), size(its_size) {}
  template <Group G>
  Member(const G& group) : rank(group.rank()), size(group.size()) {}  // as a Communicator is passed

  int rank = 0;
  int size = 1;
};

class Loader {
 public:
  // Throws InvalidArgument (78: sizes below 1, both or neither of batch_size and global_batch, rank outside the group)
  // and DataError (65: an empty dataset, or drop_last leaves no batch).
  // One constructor, so that a compiler's message on a wrong option shows the next line and no list of others.
  Loader(DatasetPtr data, const LoaderOptions& options,  // which option is wrong? write LoaderOptions{...}: it is named
         const Member& member = {});

  // From the start, or from a position saved from a batch. Throws InvalidArgument, IoError (71: no thread).
  Epoch epoch(std::int64_t epoch, std::int64_t start_position = 0) const;

  std::int64_t size() const;          // samples of an epoch
  std::int64_t global_batch() const;  // samples of a full step
  std::int64_t steps(std::int64_t start_position = 0) const;

  // The dataset indices of all ranks for this batch, in global order: rank 0's share first.
  std::vector<std::int64_t> global_indices(const Batch& batch) const;

  // How long next() has kept its callers waiting, over all epochs so far.
  double wait_seconds() const;

 private:
  struct State;
  friend struct Epoch::Impl;
  std::shared_ptr<const State> state_;
};

}  // namespace reigen::data
