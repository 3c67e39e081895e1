#include "comm/nccl/courier.h"

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

namespace reigen::comm::nccl {

namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr auto kFirstPause = microseconds(20);
constexpr auto kLastPause = milliseconds(1);
constexpr auto kFirstAsk = milliseconds(1);  // first pause between two reads of the store for a lane's ncclUniqueId
constexpr auto kLastAsk = milliseconds(50);  // longest such pause
constexpr auto kFlushTime = std::chrono::seconds(2);
constexpr auto kThreadEndsWithin = std::chrono::seconds(1);

}  // namespace

struct Courier::State {
  State(const GroupOptions& options, int of_device, std::function<void()> to_tell)
      : device(of_device),
        tell(std::move(to_tell)),
        store(store::make_prefix_store(options.store, "group/" + options.name + "/lane")) {}

  const int device;
  const std::function<void()> tell;
  const std::shared_ptr<store::Store> store;

  mutable std::mutex mutex;
  std::condition_variable changed;
  std::map<std::pair<int, int>, std::unique_ptr<Lane>> lanes;  // by sender and receiver; see lane.h
  std::exception_ptr failure;
  bool is_new = false;  // a lane was created, and its other rank may be waiting already
  bool closed = false;
  bool ended = false;  // the thread has ended
};

Courier::Courier(const GroupOptions& options, int device, std::function<void()> tell)
    : options_(options), state_(std::make_shared<State>(options, device, std::move(tell))) {}

Courier::~Courier() {
  (void)close();
  if (!thread_.joinable()) return;
  std::unique_lock lock(state_->mutex);
  const bool ended = state_->changed.wait_for(lock, kThreadEndsWithin, [&] { return state_->ended; });
  lock.unlock();
  ended ? thread_.join() : thread_.detach();
}

Lane& Courier::lane(int from, int to) {
  {
    std::lock_guard lock(state_->mutex);
    const auto known = state_->lanes.find({from, to});
    if (known != state_->lanes.end()) return *known->second;
  }
  auto made = std::make_unique<Lane>(state_->device, from, to, from == options_.rank);
  std::lock_guard lock(state_->mutex);
  Lane& lane = *(state_->lanes[{from, to}] = std::move(made));
  state_->is_new = true;
  if (!thread_.joinable()) thread_ = std::thread([state = state_] { run(state); });
  state_->changed.notify_all();
  return lane;
}

void Courier::push(Lane& lane, std::shared_ptr<Transfer> transfer) {
  std::lock_guard lock(state_->mutex);
  lane.push(std::move(transfer));
  state_->changed.notify_all();
}

void Courier::throw_if_failed() const {
  std::lock_guard lock(state_->mutex);
  if (state_->failure) std::rethrow_exception(state_->failure);
}

void Courier::run(const std::shared_ptr<State>& state) {
  std::unique_lock lock(state->mutex);
  try {
    device::keep_device_of_this_thread();
    const device::OnDevice on(state->device);
    std::chrono::nanoseconds pause = kFirstPause;
    std::chrono::nanoseconds ask_pause = kFirstAsk;
    Deadline next_ask = Deadline::never();
    while (!state->closed) {
      bool moved = false;
      if (std::exchange(state->is_new, false) || next_ask.expired()) {
        moved = ask(*state, lock);
        ask_pause = moved || state->is_new ? kFirstAsk : std::min<std::chrono::nanoseconds>(2 * ask_pause, kLastAsk);
        next_ask = Deadline::after(ask_pause);
      }
      bool busy = false;
      for (const auto& [pair, lane] : state->lanes) {
        while (!state->closed && lane->advance()) moved = true;
        busy |= lane->is_busy();
      }
      if (moved && !state->closed) state->tell();
      pause = moved ? std::chrono::nanoseconds(kFirstPause) : std::min<std::chrono::nanoseconds>(2 * pause, kLastPause);
      if (busy) {
        state->changed.wait_for(lock, pause);
      } else if (!state->closed) {
        state->changed.wait(lock);
      }
    }
  } catch (...) {
    state->failure = std::current_exception();
    if (!state->closed) state->tell();
  }
  state->ended = true;
  state->changed.notify_all();
}

// The lock is released while the store answers. This is safe, because lanes are never removed, and Lane::ask() reads
// only members that never change.
bool Courier::ask(State& state, std::unique_lock<std::mutex>& lock) {
  std::vector<Lane*> asking;
  for (const auto& [pair, lane] : state.lanes) {
    if (lane->is_asking()) asking.push_back(lane.get());
  }
  bool moved = false;
  for (Lane* lane : asking) {
    lock.unlock();
    std::optional<std::string> identity;
    std::exception_ptr failure;
    try {
      identity = lane->ask(*state.store);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    if (failure) std::rethrow_exception(failure);
    if (state.closed) return false;
    if (!identity) continue;
    lane->connect(*identity);
    moved = true;
  }
  return moved;
}

void Courier::flush() {
  const auto delivered = [&] {
    std::lock_guard lock(state_->mutex);
    return state_->failure || std::all_of(state_->lanes.begin(), state_->lanes.end(),
                                          [](const auto& entry) { return entry.second->is_delivered(); });
  };
  const Deadline deadline = Deadline::after(kFlushTime);
  while (!delivered() && !deadline.expired()) std::this_thread::sleep_for(kLastPause);
}

std::vector<Handle*> Courier::close() {
  std::lock_guard lock(state_->mutex);
  state_->closed = true;
  state_->changed.notify_all();
  std::vector<Handle*> handles;
  for (const auto& [pair, lane] : state_->lanes) handles.push_back(&lane->handle());
  return handles;
}

bool Courier::is_idle() const {
  std::lock_guard lock(state_->mutex);
  return std::all_of(state_->lanes.begin(), state_->lanes.end(),
                     [](const auto& entry) { return entry.second->stream().is_idle(); });
}

}  // namespace reigen::comm::nccl
