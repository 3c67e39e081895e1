// The thread that talks with the store for a rank's groups: for a group and all that are split off it. A thread of its
// own, since the store may be served by a process that was stopped: whoever asks it may wait for ever.
//
// Locks: `mutex` of the State guards the list of channels and is held for moments. A channel's lock is taken before it,
// never under it.
// Thread rule: any thread.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace reigen::comm::control {

struct Channel;

class StoreThread {
 public:
  StoreThread() : state_(std::make_shared<State>()) {}
  ~StoreThread();
  StoreThread(const StoreThread&) = delete;  // a thread belongs to it
  StoreThread& operator=(const StoreThread&) = delete;

  // From here on the thread talks for the channel.
  void enter(std::shared_ptr<Channel> channel);
  // The thread says what is pending and forgets the channel. Waits a moment for it, unless the store does not answer.
  void leave(Channel& channel);
  // A channel has something to say.
  void ring();

 private:
  // The thread owns it too: one that waits for the store is left behind.
  struct State {
    std::mutex mutex;
    std::condition_variable rung_or_left;
    std::vector<std::shared_ptr<Channel>> channels;
    bool rung = false;
    bool stopping = false;
    bool hangs = false;  // the thread waits for a store that did not answer in time
  };
  static void run(State& state);

  const std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace reigen::comm::control
