#include "data/loading/prefetcher.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <csignal>
#include <string>
#include <system_error>
#include <utility>

#include "reigen/base/error.h"

namespace reigen::data {

namespace {

// The most batches of one unit that are held for workers that were added. Each takes memory.
constexpr int kMostAdded = 4;

}  // namespace

Prefetcher::Prefetcher(std::int64_t count, const Workers& workers, int depth, Begin begin,
                       std::shared_ptr<WorkerNeed> need)
    : count_(count),
      begin_(std::move(begin)),
      slots_(static_cast<std::size_t>(std::max({depth, workers.least, kMostAdded}))),
      most_held_(std::max(depth, std::min(workers.first(), std::max(workers.least, kMostAdded)))),
      depth_(depth),
      need_(std::move(need)) {
  if (count == 0) return;
  const std::string problem = start(workers.first());
  if (problem.empty() || (workers.least > 0 && this->workers() >= workers.least)) return;
  const auto running = threads_.size();
  stop();
  throw IoError(Report{.what = "cannot start a thread of the data loader",
                       .got = fmt::format("{} after {} of {} threads", problem, running, workers.least),
                       .fix = "use fewer workers or ranks, or raise the limit on processes (ulimit -u)"},
                ExitCode::kOsResource);
}

Prefetcher::~Prefetcher() { stop(); }

std::string Prefetcher::start(int workers) {
  // Blocks signals in the new threads, so that signals go to the program's own threads. A program may rely on a signal
  // to interrupt a wait of one of its own threads.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::string problem;
  try {
    while (this->workers() < workers) {
      threads_.emplace_back([this] { work(); });
      pthread_setname_np(threads_.back().native_handle(), "reigen-data");
    }
  } catch (const std::system_error& error) {
    problem = error.what();
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return problem;
}

// The mutex is held. A thread that cannot be started is done without.
void Prefetcher::add_workers(int wanted) {
  if (has_whole_batches_) {  // a worker makes a batch alone, so more workers hold more batches
    wanted = std::min(wanted, std::max(depth_, kMostAdded));
    most_held_ = std::max<std::int64_t>(most_held_, wanted);
  }
  if (wanted > workers()) start(wanted);
}

void Prefetcher::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

Prefetcher::Slot Prefetcher::produce(std::int64_t step) const {
  Slot slot;
  try {
    const std::unique_ptr<BatchInMaking> making = begin_(step);
    for (std::size_t unit = 0; unit < making->units(); ++unit) making->make(unit);
    slot.batch = making->finish();
  } catch (...) {
    slot.error = std::current_exception();
  }
  return slot;
}

Prefetcher::Slot* Prefetcher::with_units() {
  for (std::int64_t step = handed_out_; step < begun_; ++step) {
    if (Slot& slot = slot_of(step); slot.has_units()) return &slot;
  }
  return nullptr;
}

void Prefetcher::work() {
  std::unique_lock lock(mutex_);
  const auto may_begin = [&] { return !beginning_ && begun_ < count_ && begun_ < handed_out_ + most_held_; };
  for (;;) {
    Slot* slot = nullptr;
    work_.wait(lock,
               [&] { return stopping_ || (slot = with_units()) != nullptr || may_begin() || handed_out_ >= count_; });
    if (stopping_ || handed_out_ >= count_) return;
    if (slot != nullptr) {
      make_unit(*slot, lock);
    } else {
      begin_batch(lock);
    }
  }
}

void Prefetcher::begin_batch(std::unique_lock<std::mutex>& lock) {
  Slot& slot = slot_of(begun_);
  const std::int64_t step = begun_++;
  beginning_ = true;
  lock.unlock();
  std::unique_ptr<BatchInMaking> making;
  std::exception_ptr error;
  try {
    making = begin_(step);
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  beginning_ = false;
  slot.making = std::move(making);
  slot.error = error;
  work_.notify_all();
  if (error) {
    if (&slot == &slot_of(handed_out_)) ready_.notify_one();
    return;
  }
  slot.units = slot.making->units();
  if (slot.units > 1) {
    has_whole_batches_ = false;
    most_held_ = depth_;
  }
  // This worker makes the first unit, so that a batch of one unit is made where it was begun.
  make_unit(slot, lock);
}

void Prefetcher::make_unit(Slot& slot, std::unique_lock<std::mutex>& lock) {
  if (!slot.has_units()) return;
  const std::size_t unit = slot.begun++;
  BatchInMaking& making = *slot.making;
  lock.unlock();
  std::exception_ptr error;
  try {
    making.make(unit);
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  ++slot.done;
  if (error && (!slot.error || unit < slot.failed_unit)) {
    slot.error = error;
    slot.failed_unit = unit;
  }
  if (slot.error) slot.units = slot.begun;
  if (slot.done == slot.units) complete(slot, lock);
}

void Prefetcher::complete(Slot& slot, std::unique_lock<std::mutex>& lock) {
  const std::unique_ptr<BatchInMaking> making = std::move(slot.making);
  if (!slot.error) {
    lock.unlock();
    std::optional<Batch> batch;
    std::exception_ptr error;
    try {
      batch = making->finish();
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    slot.batch = std::move(batch);
    slot.error = error;
  }
  if (&slot == &slot_of(handed_out_)) ready_.notify_one();
}

bool Prefetcher::has_next() {
  if (handed_out_ >= count_ || threads_.empty()) return false;
  const std::lock_guard lock(mutex_);
  return slot_of(handed_out_).batch.has_value();
}

std::optional<Batch> Prefetcher::next() {
  if (handed_out_ >= count_) return std::nullopt;
  Slot slot;
  if (threads_.empty()) {
    slot = produce(handed_out_++);
  } else {
    const auto asked = std::chrono::steady_clock::now();
    std::unique_lock lock(mutex_);
    Slot& awaited = slot_of(handed_out_);
    ready_.wait(lock, [&] { return awaited.batch || (awaited.error && !awaited.making); });
    slot = std::exchange(awaited, Slot{});
    // After the last batch all threads must wake up, so that they end.
    if (++handed_out_ >= count_) {
      work_.notify_all();
    } else {
      work_.notify_one();
      if (need_) add_workers(need_->after(asked, std::chrono::steady_clock::now(), workers(), handed_out_ == 1));
    }
  }
  if (slot.error) {
    stop();
    handed_out_ = count_;
    std::rethrow_exception(slot.error);
  }
  return std::move(slot.batch);
}

}  // namespace reigen::data
