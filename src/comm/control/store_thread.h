// The thread of a rank that talks to the store for a group and all groups that are split off it. It is a separate
// thread because the process that serves the store may be stopped. A thread that asks the store may then wait for ever.
//
// Locks: `mutex` of the State guards the list of channels and is held only briefly. A thread that also needs the lock
// of a channel must take the lock of the channel first.
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
  StoreThread(const StoreThread&) = delete;  // its channels have its address
  StoreThread& operator=(const StoreThread&) = delete;

  // From now on the thread talks to the store for the channel.
  void enter(std::shared_ptr<Channel> channel);
  // The thread writes the pending state of the channel to the store and then forgets the channel. This function waits
  // up to a second until the thread has done so, but does not wait if the store is known not to answer.
  void leave(Channel& channel);
  // Wakes the thread, because a channel has something to write to the store.
  void ring();

 private:
  // The thread shares the ownership of the State. If it hangs in a call of the store, it is detached and may outlive
  // this object.
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
