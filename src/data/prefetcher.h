// Makes batches 0..count-1 ahead on threads and hands them out in order, at most `depth` at a time.
// Thread rule: next() and the destructor belong to one thread.
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

  // Without workers next() makes the batch itself. Throws IoError (71) when a thread cannot be started.
  Prefetcher(std::int64_t count, int workers, int depth, Make make);
  ~Prefetcher();                           // waits for the batches that are being made, not for the others
  Prefetcher(const Prefetcher&) = delete;  // the threads hold its address
  Prefetcher& operator=(const Prefetcher&) = delete;

  // Empty at the end. Rethrows what `make` threw for this batch; after that there are no more.
  std::optional<Batch> next();

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
  std::condition_variable ready_;  // a batch is there
  std::condition_variable space_;  // a slot is free, or stop
  std::vector<Slot> slots_;        // batch b lies in slot b mod depth
  std::int64_t taken_ = 0;         // the next batch to be made
  std::int64_t handed_out_ = 0;    // the next batch to be handed out
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace reigen::data
