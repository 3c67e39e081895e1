#include "comm/control/store_thread.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "comm/control/channel.h"

namespace reigen::comm::control {

namespace {

constexpr auto kEndWithin = std::chrono::seconds(1);

}  // namespace

StoreThread::~StoreThread() {
  if (!thread_.joinable()) return;
  bool has_ended = false;
  {
    std::unique_lock lock(state_->mutex);
    state_->stopping = true;
    state_->rung_or_left.notify_all();
    has_ended = state_->rung_or_left.wait_for(lock, kEndWithin, [&] { return state_->channels.empty(); });
  }
  if (has_ended)
    thread_.join();
  else
    thread_.detach();
}

void StoreThread::enter(std::shared_ptr<Channel> channel) {
  const std::lock_guard lock(state_->mutex);
  if (!thread_.joinable()) thread_ = std::thread([state = state_] { run(*state); });
  state_->channels.push_back(std::move(channel));
  state_->rung = true;
  state_->rung_or_left.notify_all();
}

void StoreThread::leave(Channel& channel) {
  channel.stop();
  std::unique_lock lock(state_->mutex);
  const auto is_gone = [&] {
    return std::none_of(state_->channels.begin(), state_->channels.end(),
                        [&](const auto& one) { return one.get() == &channel; });
  };
  state_->rung = true;
  state_->rung_or_left.notify_all();
  // If the store did not answer when one group left, the other groups of this rank leave without waiting for the store.
  if (!state_->hangs) state_->hangs = !state_->rung_or_left.wait_for(lock, kEndWithin, is_gone);
}

void StoreThread::ring() {
  const std::lock_guard lock(state_->mutex);
  state_->rung = true;
  state_->rung_or_left.notify_all();
}

void StoreThread::run(State& state) {
  std::unique_lock lock(state.mutex);
  while (!state.stopping || !state.channels.empty()) {
    const auto round = state.channels;
    state.rung = false;
    lock.unlock();
    auto next = Clock::time_point::max();
    std::vector<const Channel*> ended;
    for (const auto& channel : round) {
      const bool stops = channel->is_stopping();
      const auto due = channel->due();
      if (stops || due <= Clock::now()) channel->talk();
      if (stops)
        ended.push_back(channel.get());
      else
        next = std::min(next, channel->due());
    }
    lock.lock();
    state.hangs = false;
    std::erase_if(state.channels, [&](const auto& channel) {
      return std::find(ended.begin(), ended.end(), channel.get()) != ended.end();
    });
    if (!ended.empty()) state.rung_or_left.notify_all();
    const auto is_called = [&] { return state.rung || state.stopping; };
    if (round.empty() || state.channels.empty())
      state.rung_or_left.wait(lock, is_called);
    else
      state.rung_or_left.wait_until(lock, next, is_called);
  }
}

}  // namespace reigen::comm::control
