// Makes batches 0..count-1 in advance on threads, the workers, and returns the batches in order. A batch consists of
// units, for example one for each sample. At most `depth` batches are held. Batches of one unit may be one for each
// worker, if there are more than `depth` workers. While next() waits for batches, there may be more and more workers
// (worker_need.h). A worker takes a unit of the first batch that has one left. So all
// workers make the batch that is needed first, and the one that completes the last unit finishes the batch. Thread
// rule: the same thread calls next() and the destructor.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "data/loading/worker_need.h"
#include "reigen/data/loader.h"

namespace reigen::data {

// A batch that is being made.
class BatchInMaking {
 public:
  virtual ~BatchInMaking() = default;
  virtual std::size_t units() const = 0;    // at least 1
  virtual void make(std::size_t unit) = 0;  // called once for each unit, by several threads at once
  virtual Batch finish() = 0;               // called after all units
};

struct Workers {
  int least = 1;  // without workers, next() makes each batch itself
  int now = 0;    // above `least`: the number to begin with, if so many threads can be started
  int most = 0;   // above both: as many there may be while next() waits
  int first() const { return std::max(least, now); }
};

class Prefetcher {
 public:
  using Begin = std::function<std::unique_ptr<BatchInMaking>(std::int64_t step)>;  // called by several threads at once

  // Throws IoError with exit code 71 if not even workers.least threads can be started. `need` says when there are to be
  // more, up to workers.most.
  Prefetcher(std::int64_t count, const Workers& workers, int depth, Begin begin, std::shared_ptr<WorkerNeed> need);
  ~Prefetcher();                           // waits for the units that are being made, and makes no others
  Prefetcher(const Prefetcher&) = delete;  // the threads hold its address
  Prefetcher& operator=(const Prefetcher&) = delete;

  // Returns the next batch, or nothing at the end. Rethrows the exception of the first unit of this batch that threw;
  // after that there are no more batches.
  std::optional<Batch> next();
  // Whether next() would return a batch at once. Always false without workers.
  bool has_next();
  int workers() const { return static_cast<int>(threads_.size()); }

 private:
  // A place for a batch. A worker that finds no unit begins a batch: the place is then `open` and has units. A unit
  // that throws leaves no further units. When all units that were begun are done, the worker of the last of them sets
  // `batch` or `error`, and next() empties the place.
  struct Slot {
    std::unique_ptr<BatchInMaking> making;  // set while units are made
    std::size_t units = 0;
    std::size_t begun = 0;  // units that workers have taken
    std::size_t done = 0;
    std::size_t failed_unit = 0;  // the unit that threw `error`
    std::optional<Batch> batch;
    std::exception_ptr error;
    bool has_units() const { return making && begun < units; }
  };

  std::string start(int workers);  // returns why not all could be started
  void add_workers(int wanted);
  void stop() noexcept;
  void work();
  Slot* with_units();  // the first place with units; null if there is none
  void begin_batch(std::unique_lock<std::mutex>& lock);
  void make_unit(Slot& slot, std::unique_lock<std::mutex>& lock);
  void complete(Slot& slot, std::unique_lock<std::mutex>& lock);
  Slot produce(std::int64_t step) const;
  Slot& slot_of(std::int64_t step) { return slots_[static_cast<std::size_t>(step) % slots_.size()]; }

  const std::int64_t count_;
  const Begin begin_;
  std::mutex mutex_;
  std::condition_variable ready_;  // signals that the next batch is made
  std::condition_variable work_;   // signals that there are units, that a place is free, or that the threads must end
  std::vector<Slot> slots_;        // batch b is in slot b mod slots_.size()
  std::int64_t begun_ = 0;         // the next batch to be begun
  std::int64_t handed_out_ = 0;    // the next batch to be handed out
  std::int64_t most_held_;         // batches that may be begun and not handed out
  const int depth_;
  bool has_whole_batches_ = true;  // each batch so far has one unit
  const std::shared_ptr<WorkerNeed> need_;
  bool beginning_ = false;  // a worker begins a batch; only one does so at a time
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace reigen::data
