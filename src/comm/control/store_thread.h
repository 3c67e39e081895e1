// The thread of a rank that talks to the store for a group and all groups that are split off it. It is a separate
// thread because the process that serves the store may be stopped: then a thread that asks the store may wait for
// ever.
//
// Locks: `mutex` of the State guards the list of channels and is held only briefly. The lock of a channel is taken
// before this lock, never while it is held.
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

  // From here on the thread talks to the store for the channel.
  void enter(std::shared_ptr<Channel> channel);
  // The thread tells the store what is pending and forgets the channel. Waits up to a second for that, unless the
  // store is known not to answer.
  void leave(Channel& channel);
  // Wakes the thread, because a channel has something to tell the store.
  void ring();

 private:
  // The thread shares the ownership: if it hangs in the store, it is detached and may outlive this object.
  struct State {
    std::mutex mutex;
    std::condition_variable rung_or_left;
    std::vector<std::shared_ptr<Channel>> channels;
    bool rung = false;
    bool stopping = false;
    bool hangs = false;  // the thread is waiting for a store that did not answer in time
  };
  static void run(State& state);

  const std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace reigen::comm::control
