#include "data/prefetcher.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <csignal>
#include <string>
#include <system_error>
#include <utility>

#include "reigen/base/error.h"

namespace reigen::data {

Prefetcher::Prefetcher(std::int64_t count, int workers, int depth, Make make)
    : count_(count), make_(std::move(make)), slots_(static_cast<std::size_t>(std::max(depth, workers))) {
  start(static_cast<int>(std::min<std::int64_t>(workers, count)));
}

Prefetcher::~Prefetcher() { stop(); }

void Prefetcher::start(int workers) {
  // Blocks signals in the new threads, so that signals go to the program's own threads. A program may rely on a signal
  // to interrupt a wait of one of its own threads.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::string problem;
  try {
    for (int i = 0; i < workers; ++i) {
      threads_.emplace_back([this] { work(); });
      pthread_setname_np(threads_.back().native_handle(), "reigen-data");
    }
  } catch (const std::system_error& error) {
    problem = error.what();
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (problem.empty()) return;
  const auto running = threads_.size();
  stop();
  throw IoError(Report{.what = "cannot start a thread of the data loader",
                       .got = fmt::format("{} after {} of {} threads", problem, running, workers),
                       .fix = "use fewer workers or ranks, or raise the limit on processes (ulimit -u)"},
                ExitCode::kOsResource);
}

void Prefetcher::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  space_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

Prefetcher::Slot Prefetcher::produce(std::int64_t step) const {
  Slot slot;
  try {
    slot.batch = make_(step);
  } catch (...) {
    slot.error = std::current_exception();
  }
  return slot;
}

void Prefetcher::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto depth = static_cast<std::int64_t>(slots_.size());
    space_.wait(lock, [&] { return stopping_ || taken_ >= count_ || taken_ < handed_out_ + depth; });
    if (stopping_ || taken_ >= count_) return;
    const std::int64_t step = taken_++;
    lock.unlock();
    Slot made = produce(step);
    lock.lock();
    slot_of(step) = std::move(made);
    if (step == handed_out_) ready_.notify_one();
  }
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
    std::unique_lock lock(mutex_);
    Slot& awaited = slot_of(handed_out_);
    ready_.wait(lock, [&] { return awaited.batch || awaited.error; });
    slot = std::exchange(awaited, Slot{});
    // After the last batch all threads must wake up, so that they end.
    if (++handed_out_ >= count_) {
      space_.notify_all();
    } else {
      space_.notify_one();
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
