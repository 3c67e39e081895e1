// Makes batches 0..count-1 in advance on threads, the workers, and returns the batches in order. Holds at most `depth`
// batches, or one for each worker if there are more than `depth` workers.
// Thread rule: the same thread calls next() and the destructor.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "reigen/data/loader.h"

namespace reigen::data {

class Prefetcher {
 public:
  using Make = std::function<Batch(std::int64_t step)>;  // called from several threads at once

  // Without workers, next() makes the batch itself. Throws IoError with exit code 71 if a thread cannot be
  // started.
  Prefetcher(std::int64_t count, int workers, int depth, Make make);
  ~Prefetcher();                           // waits for the batches that are being made, and makes no others
  Prefetcher(const Prefetcher&) = delete;  // the threads hold its address
  Prefetcher& operator=(const Prefetcher&) = delete;

  // Returns the next batch, or nothing at the end. Rethrows the exception that `make` threw for this batch; after that
  // there are no more batches.
  std::optional<Batch> next();
  // Whether next() would return a batch at once. Always false without workers.
  bool has_next();

 private:
  struct Slot {
    std::optional<Batch> batch;
    std::exception_ptr error;
  };

  void start(int workers);
  void stop() noexcept;
  void work();
  Slot produce(std::int64_t step) const;
  Slot& slot_of(std::int64_t step) { return slots_[static_cast<std::size_t>(step) % slots_.size()]; }

  const std::int64_t count_;
  const Make make_;
  std::mutex mutex_;
  std::condition_variable ready_;  // signals that a batch was made
  std::condition_variable space_;  // signals that a slot is free, or that the threads must end
  std::vector<Slot> slots_;        // batch b is in slot b mod slots_.size()
  std::int64_t taken_ = 0;         // the next batch to be made
  std::int64_t handed_out_ = 0;    // the next batch to be handed out
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace reigen::data
