// Makes the batches of a dataset for one of P ranks. Threads prepare the batches before they are used.
//
//   Loader loader(data, {.batch_size = 64, .shuffle = true}, world);
//   for (auto& batch : loader.epoch(0)) loss = mean_loss(batch.input, batch.target) * batch.weight;
//
// The order of the samples is that of sampler.h: a function of (seed, epoch, position), independent of P. To resume,
// save batch.position and call epoch(e, position), with any P and any batch size. In the last batch the shares of the
// ranks may be uneven, and samples may have different numbers of terms (the tokens of a text). Therefore each rank
// multiplies its mean loss by batch.weight. Then the average over the ranks of weight · (mean loss over the rank's
// terms) is the mean loss over the terms of the global batch, and the same is true of the gradients. If a rank has no
// sample in a batch, it gets one repeated sample with weight 0, so that all ranks run the same collectives. Batch
// statistics must not count this sample; nn::StandIn excludes it.
//
// Gradients can be added up over several backwards: LoaderOptions::micro_batch divides every rank's share of a batch
// into parts. All ranks have the same number of parts. Each part has its own weight. So gradients that are summed over
// a rank's parts and averaged over the ranks are again the gradients of the global batch, even if the parts have
// different numbers of terms.
//
//   for (const auto& part : batch.parts) (mean_loss(part.input, part.target) * part.weight).backward();
//
// Thread rule: threads may share a Loader; an Epoch belongs to one thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <vector>

#include "reigen/data/dataset.h"
#include "reigen/data/sampler.h"

namespace reigen::data {

struct LoaderOptions {
  // Set either batch_size or global_batch. batch_size is the number of samples per rank and step. global_batch is the
  // number of samples of all ranks in a step, which need not be a multiple of the number of ranks.
  std::optional<std::int64_t> batch_size = {};
  std::optional<std::int64_t> global_batch = {};
  Shuffle shuffle = {};    // true: in a random order; see sampler.h
  std::uint64_t seed = 0;  // the same on every rank
  bool drop_last = false;  // leave out the last batch if it is not full
  // At most this many different samples of this rank may be damaged, over all epochs. A sample is damaged if the
  // dataset throws DataError for it. It is left out: its weight in the loss is 0, so it counts as a loss of 0 in the
  // mean, and no other sample changes. A warning names it.
  std::int64_t max_bad = 0;
  std::int64_t micro_batch = 0;  // most samples in one part of a rank's batch; 0 means that the batch is one part
  std::int64_t limit = 0;        // use only this many first samples of the dataset; 0 means all
  int workers = 1;               // threads that make samples; with 0, next() makes them on the caller's thread
  // If not 0, threads are added while next() waits for batches, up to this number. A dataset without batch_in() gets at
  // most four, each of which holds a batch.
  int most_workers = 0;
  int prefetch = 2;  // most batches that are made in advance; each of them takes memory
  // Batches lie in pinned memory, which a GPU copies while the host goes on (tensor.to(gpu, /*non_blocking=*/true)).
  // Needs a build of LibTorch for GPUs.
  bool pin_memory = false;
  // If it is a GPU, batches are in the GPU's memory. They are copied there on a stream of their own, at most
  // `device_prefetch` of them in advance, beside the work with earlier batches. LibTorch's current stream waits for the
  // copy of the batch that next() returns; the host does not, if pin_memory is set. Use the batch on this stream. Each
  // batch in advance takes memory of the GPU. 0 means that next() starts the copy of the batch that it returns; without
  // workers it always does so.
  c10::Device device = c10::Device(c10::DeviceType::CPU);
  int device_prefetch = 2;
};

// Samples whose tensors have max(count, 1) rows and are views of the batch's tensors.
struct MicroBatch : Samples {
  std::int64_t count = 0;  // samples, without a repeated sample of weight 0
  std::int64_t terms = 0;  // terms of these samples in the loss
  double weight = 1;       // terms · number of ranks / global_terms of the batch; 0 if there is no sample
};

// Samples whose tensors have max(count, 1) rows.
struct Batch : Samples {
  std::vector<std::int64_t> indices;  // dataset indices of the `count` samples
  std::int64_t count = 0;             // samples of this rank, without a repeated sample of weight 0 and damaged ones
  std::int64_t global_count = 0;      // samples of all ranks, without repeated samples
  std::int64_t terms = 0;             // terms of this rank's samples in the loss: count, or the valid tokens of texts
  std::int64_t global_terms = 0;      // terms of all ranks' samples
  double weight = 1;                  // terms · number of ranks / global_terms; 0 if this rank has no sample
  std::vector<MicroBatch> parts;      // the micro-batches in order; the same number on every rank
  std::int64_t epoch = 0;
  // The number of the step in the epoch: start_position / global batch, rounded down, plus the number of steps made
  // after start_position.
  std::int64_t step = 0;
  std::int64_t position = 0;  // how many samples of the epoch all ranks have used, including this batch
};

// One pass over the dataset. A loop may stop early, and the Epoch may be destroyed at any time: its threads end after
// their current batch.
class Epoch {
 public:
  class Iterator;

  // Returns the next batch, or null at the end of the epoch. A batch stays valid until the next call. Rethrows
  // exceptions of the dataset.
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

// The part of a group's interface that a loader needs. reigen::Communicator has it.
template <typename T>
concept Group = requires(const T& group) {
  { group.rank() } -> std::convertible_to<int>;
  { group.size() } -> std::convertible_to<int>;
};

// The rank for which a loader makes batches, and the number of ranks.
struct Member {
  Member() = default;
  Member(int its_rank, int its_size) : rank(its_rank), size(its_size) {}
  template <Group G>
  Member(const G& group) : rank(group.rank()), size(group.size()) {}  // implicit, so that a Communicator can be passed

  int rank = 0;
  int size = 1;
};

class Loader {
 public:
  // Throws InvalidArgument for sizes below 1, for both or neither of batch_size and global_batch, and for a rank
  // outside the group. Throws DataError if the dataset is empty or drop_last leaves no batch.
  // There is only one constructor, so that a compiler's error about a wrong option shows the next line with its hint.
  Loader(DatasetPtr data, const LoaderOptions& options,  // which option is wrong? write LoaderOptions{...}: it is named
         const Member& member = {});

  // One epoch, from its start or from a position that was saved from a batch. Throws InvalidArgument if there is no
  // such epoch or position, and IoError with exit code 71 if no thread can be started.
  Epoch epoch(std::int64_t epoch, std::int64_t start_position = 0) const;

  std::int64_t size() const;                                  // samples of an epoch
  std::int64_t global_batch() const;                          // samples of all ranks in a full batch
  std::int64_t steps(std::int64_t start_position = 0) const;  // steps from this position to the end of the epoch

  const SamplerOptions& sampling() const;  // a Sampler with them gives the order of the samples

  // The dataset indices of all ranks' samples in this batch, in global order: rank 0's share first.
  std::vector<std::int64_t> global_indices(const Batch& batch) const;

  // How long next() has waited for batches, over all epochs so far.
  double wait_seconds() const;
  // The threads that make samples now: LoaderOptions::workers, or more up to most_workers. An epoch begins with the
  // number of the one before.
  int workers() const;
  // How many different samples were left out as damaged so far (LoaderOptions::max_bad).
  std::int64_t bad_samples() const;

 private:
  struct State;
  class Making;
  friend struct Epoch::Impl;
  std::shared_ptr<const State> state_;
};

}  // namespace reigen::data
