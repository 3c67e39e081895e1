#include "comm/context.h"

#include <algorithm>
#include <utility>

#include "comm/engine.h"

namespace reigen::comm {

namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr auto kHeartbeat = milliseconds(500);
constexpr auto kBusyElsewhere = milliseconds(5);  // another thread drives all that is wanted: look again then
constexpr auto kGlance = microseconds(200);       // so long the thread sleeps in one of several groups that want it

}  // namespace

Context::~Context() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    told_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

void Context::enter(Engine& engine) {
  const std::lock_guard lock(mutex_);
  engines_.push_back(&engine);
  round_.reserve(engines_.capacity());  // the thread allocates nothing: it has nobody to tell that memory is short
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
  told_.notify_one();
  if (inside_ != nullptr && inside_ != &engine) inside_->backend().wake();
}

void Context::end_all(AbortCause cause) {
  const std::lock_guard lock(mutex_);
  if (cause_) return;
  cause_ = std::move(cause);
  ending_ = true;
  told_.notify_one();
  if (inside_ != nullptr) inside_->backend().wake();
}

// The body runs without the lock, unless the engine has left.
template <class Body>
void Context::inside(Engine* engine, std::unique_lock<std::mutex>& lock, const Body& body) {
  if (std::find(engines_.begin(), engines_.end(), engine) == engines_.end()) return;
  inside_ = engine;
  lock.unlock();
  body(*engine);
  lock.lock();
  inside_ = nullptr;
  left_.notify_all();
}

void Context::run() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (ending_) end_engines(lock);
    if (Deadline::Clock::now() >= next_look_) look_around(lock);
    progress(lock);
  }
}

void Context::end_engines(std::unique_lock<std::mutex>& lock) {
  ending_ = false;
  const AbortCause cause = *cause_;
  round_ = engines_;
  for (std::size_t i = 0; i < round_.size(); ++i) {
    inside(round_[i], lock, [&](Engine& one) { one.end(cause); });
  }
}

// A rank waits in one group at a time: that another one was ended it hears here.
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

// One group has the thread until its work is done, the next sign of life is due, or another group wants the thread:
// then each in turn for a glance. A group that only rings its own bell is seen late by so much.
void Context::progress(std::unique_lock<std::mutex>& lock) {
  wanted_ = false;
  round_.clear();
  for (Engine* engine : engines_) {
    if (engine->wants_thread()) round_.push_back(engine);
  }
  bool has_driven = false;
  for (std::size_t i = 0; i < round_.size(); ++i) {
    const Deadline until = round_.size() == 1 ? Deadline::at(next_look_) : Deadline::after(kGlance);
    inside(round_[i], lock, [&](Engine& one) {
      has_driven |= one.progress(until, [this] {
        const std::lock_guard told(mutex_);
        return wanted_ || ending_ || stop_;
      });
    });
  }
  if (has_driven) return;
  const auto until = round_.empty() ? next_look_ : std::min(next_look_, Deadline::Clock::now() + kBusyElsewhere);
  told_.wait_until(lock, until, [&] { return stop_ || wanted_ || ending_; });
}

}  // namespace reigen::comm
