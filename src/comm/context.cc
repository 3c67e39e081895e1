#include "comm/context.h"

#include <algorithm>
#include <new>
#include <utility>

#include "comm/engine.h"
#include "device/cuda.h"

namespace reigen::comm {

namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr auto kHeartbeat = milliseconds(500);
constexpr auto kBusyElsewhere = milliseconds(5);  // pause while other threads advance the operations of all engines
constexpr auto kGlance = microseconds(200);       // time for each group when several groups have work for the thread
constexpr auto kEndWithin = std::chrono::seconds(1);

}  // namespace

Context::~Context() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    called_.store(true);
    told_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

void Context::enter(Engine& engine) {
  const std::lock_guard lock(mutex_);
  engines_.push_back(&engine);
  called_.store(true);
  round_.reserve(engines_.capacity());
  ending_ = cause_.has_value();
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  told_.notify_one();
}

std::optional<AbortCause> Context::leave(Engine& engine) {
  std::unique_lock lock(mutex_);
  std::erase(engines_, &engine);
  left_.wait(lock, [&] { return inside_ != &engine; });
  return cause_;
}

void Context::want(const Engine& engine) {
  const std::lock_guard lock(mutex_);
  wanted_ = true;
  called_.store(true);
  told_.notify_one();
  if (inside_ != nullptr && inside_ != &engine) inside_->backend().wake();
}

void Context::end_all(AbortCause cause) {
  const std::lock_guard lock(mutex_);
  if (cause_) return;
  cause_ = std::move(cause);
  end_by_ = Deadline::after(kEndWithin);
  ending_ = true;
  called_.store(true);
  told_.notify_one();
  if (inside_ != nullptr) inside_->backend().wake();
}

void Context::wait_for_end() {
  std::unique_lock lock(mutex_);
  left_.wait_until(lock, end_by_.when(), [this] { return !ending_ || engines_.empty(); });
}

// Releases the lock and runs `body` on the engine, unless the engine has left the Context. Returns false if `body`
// failed for lack of memory.
template <class Body>
bool Context::inside(Engine* engine, std::unique_lock<std::mutex>& lock, const Body& body) {
  if (std::find(engines_.begin(), engines_.end(), engine) == engines_.end()) return true;
  inside_ = engine;
  lock.unlock();
  bool is_done = true;
  try {
    body(*engine);
  } catch (const std::bad_alloc&) {
    is_done = false;
  }
  lock.lock();
  inside_ = nullptr;
  left_.notify_all();
  return is_done;
}

void Context::run() {
  device::keep_device_of_this_thread();
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (ending_) end_engines(lock);
    if (Deadline::Clock::now() >= next_look_) look_around(lock);
    progress(lock);
  }
}

void Context::end_engines(std::unique_lock<std::mutex>& lock) {
  const AbortCause& cause = *cause_;  // set only once, so it can be read without the lock
  bool is_done = true;
  round_ = engines_;
  for (std::size_t i = 0; i < round_.size(); ++i) {
    is_done &= inside(round_[i], lock, [&](Engine& one) { one.end(cause); });
  }
  // If one more engine has entered meanwhile, the next call of this function ends its group.
  if (is_done && round_.size() == engines_.size()) ending_ = false;
  left_.notify_all();
}

// Tells the other ranks of every group that this rank is alive, and checks whether another rank has ended the group. A
// waiting thread checks only the group in which it waits. So look_around() finds out whether another rank has ended one
// of the other groups.
void Context::look_around(std::unique_lock<std::mutex>& lock) {
  next_look_ = Deadline::Clock::now() + kHeartbeat;
  round_ = engines_;
  for (std::size_t i = 0; i < round_.size(); ++i) {
    inside(round_[i], lock, [](Engine& one) {
      one.backend().heartbeat();
      one.hear_of_end();
    });
  }
}

// If only one group has work for the thread, the thread drives that group until the work is done or the next sign of
// life is due. If several groups have work, the thread drives each of them for kGlance in turn. While the thread sleeps
// in one group, only an event in that group wakes it. So it may notice an event in another group up to kGlance late.
void Context::progress(std::unique_lock<std::mutex>& lock) {
  wanted_ = false;
  called_.store(ending_ || stop_);
  round_.clear();
  ++turn_;
  for (std::size_t i = 0; i < engines_.size(); ++i) {
    Engine* const engine = engines_[(i + turn_) % engines_.size()];
    if (engine->wants_thread()) round_.push_back(engine);
  }
  bool has_driven = false;
  for (std::size_t i = 0; i < round_.size(); ++i) {
    const bool alone = round_.size() == 1;
    const Deadline until = alone ? Deadline::at(next_look_) : Deadline::after(kGlance);
    inside(round_[i], lock,
           [&](Engine& one) { has_driven |= one.progress(until, alone, [this] { return called_.load(); }); });
  }
  if (has_driven) return;
  const auto until = round_.empty() ? next_look_ : std::min(next_look_, Deadline::Clock::now() + kBusyElsewhere);
  told_.wait_until(lock, until, [&] { return stop_ || wanted_ || ending_; });
}

}  // namespace reigen::comm
