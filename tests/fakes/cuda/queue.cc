#include "fakes/cuda/queue.h"

#include <utility>

#include "base/philox.h"
#include "fakes/cuda/capture.h"
#include "fakes/cuda/stand_in.h"

namespace reigen::testing::stand_in {

namespace {

std::atomic<bool> lazy{false};
std::atomic<std::int64_t> stream_delay{0};  // microseconds
std::atomic<std::uint64_t> delay_seed{0};
constexpr std::int64_t kComputeDelays = 50;
constexpr std::chrono::milliseconds kLongest{5};
constexpr std::chrono::microseconds kLongestOfWords{200};

}  // namespace

void be_lazy() { lazy = true; }

void delay_streams(std::chrono::microseconds time, std::uint64_t seed) {
  lazy = false;
  stream_delay.store(time.count());
  delay_seed.store(seed);
}

Queue::Queue(int device)
    : device_(device),
      number_([] {
        static std::atomic<int> made{0};
        return ++made;
      }()),
      worker_([this] { run(); }) {}

Queue::~Queue() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    work_.notify_one();
  }
  worker_.join();
}

std::uint64_t Queue::push(std::function<void()> task, bool writes) {
  std::lock_guard lock(mutex_);
  if (auto* const work = recorded_.load(); work != nullptr && are_tasks_recorded()) work->push_back(task);
  tasks_.push_back(std::move(task));
  const std::uint64_t number = begun_ + tasks_.size();
  if (writes) writes_ = number;
  if (sleeps_ || writes) work_.notify_one();
  return number;
}

void Queue::need(std::uint64_t number) {
  std::lock_guard lock(mutex_);
  if (number <= needed_) return;
  needed_ = number;
  work_.notify_one();
}

void Queue::need_all() {
  std::lock_guard lock(mutex_);
  needed_ = begun_ + tasks_.size();
  work_.notify_one();
}

bool Queue::is_idle() {
  std::lock_guard lock(mutex_);
  return tasks_.empty() && !working_;
}

void Queue::wait_until_idle() {
  std::unique_lock lock(mutex_);
  ++waiting_;
  while (working_ || !tasks_.empty()) {
    if (working_)
      done_.wait(lock, [&] { return !working_; });
    else
      run_first(lock);
  }
  --waiting_;
}

// Waits until the first task may begin, or has begun on a thread that waits.
void Queue::delay(std::unique_lock<std::mutex>& lock) {
  const std::uint64_t first = begun_;
  const auto is_over = [&] { return stopping_ || begun_ != first; };
  if (lazy) {
    const auto is_needed = [&] { return is_over() || needed_ > first; };
    work_.wait_for(lock, kLongest, [&] { return is_needed() || writes_ > first; });
    if (writes_ > first) work_.wait_for(lock, kLongestOfWords, is_needed);
    return;
  }
  const std::int64_t usual = stream_delay.load() * (computes_ ? kComputeDelays : 1);
  if (usual == 0) return;
  // Half of the tasks begin at once, the others up to four times as late.
  const std::uint64_t drawn = base::philox(delay_seed.load() + static_cast<std::uint64_t>(number_), begun_)[0];
  if (drawn % 2 == 0) return;
  work_.wait_for(lock, std::chrono::microseconds(usual * static_cast<std::int64_t>(drawn % 1024) / 256), is_over);
}

void Queue::run_first(std::unique_lock<std::mutex>& lock) {
  auto task = std::move(tasks_.front());
  tasks_.pop_front();
  ++begun_;
  working_ = true;
  lock.unlock();
  [&]() noexcept {  // an exception ends the process on every thread
    task();
    task = nullptr;
  }();
  lock.lock();
  working_ = false;
  if (waiting_ > 0) done_.notify_all();
  if (!tasks_.empty() && sleeps_) work_.notify_one();
}

void Queue::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    sleeps_ = true;
    work_.wait(lock, [&] { return !working_ && (stopping_ || !tasks_.empty()); });
    sleeps_ = false;
    if (tasks_.empty()) return;
    const std::uint64_t first = begun_;
    delay(lock);
    // A thread that waited may have run the task, and then the delay of the next one begins.
    if (!working_ && begun_ == first) run_first(lock);
  }
}

}  // namespace reigen::testing::stand_in
