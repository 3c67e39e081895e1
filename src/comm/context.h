// What the groups of a rank have in common that come from one group by split(), and that group: a thread that moves on
// what nobody waits for and gives signs of life, and their end. An error that ends one of them ends all, on every rank
// that hears of it: a rank that waits in one group may be the one for which others wait in another.
//
// Locks: `mutex_` guards the list of engines and what the thread is told. It is held for moments, and nothing else is
// locked under it. The thread marks the engine that it is in (`inside_`), so that leave() can wait for it.
// Thread rule: any thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "comm/backend.h"
#include "reigen/base/deadline.h"

namespace reigen::comm {

class Engine;

class Context {
 public:
  ~Context();
  Context() = default;
  Context(const Context&) = delete;  // a thread belongs to it
  Context& operator=(const Context&) = delete;

  // From here on the thread looks after the engine. Where another group has ended already this one ends at once.
  void enter(Engine& engine);
  // The thread is not in it any more, and will not be. Gives the cause if another group has ended: the caller ends this
  // one with it if the thread has not.
  std::optional<AbortCause> leave(Engine& engine);
  // An engine has something for the thread.
  void want(const Engine& engine);
  // A group has ended. The first cause counts; its rank is that of the first group, or -1. Returns at once.
  void end_all(AbortCause cause);
  // Until the end has reached all groups, or a second has passed. The caller is not the thread, and drives no engine.
  void wait_for_end();

 private:
  void run();
  void end_engines(std::unique_lock<std::mutex>& lock);
  void look_around(std::unique_lock<std::mutex>& lock);
  void progress(std::unique_lock<std::mutex>& lock);
  template <class Body>
  bool inside(Engine* engine, std::unique_lock<std::mutex>& lock, const Body& body);

  std::mutex mutex_;
  std::condition_variable told_;  // the thread
  std::condition_variable left_;  // it is in no engine
  std::vector<Engine*> engines_;
  std::vector<Engine*> round_;  // the thread's: with room for all engines, and moved when there come more
  Engine* inside_ = nullptr;
  std::size_t turn_ = 0;  // of the groups that want the thread: who is first
  bool wanted_ = false;
  bool stop_ = false;
  bool ending_ = false;         // the cause has not reached all engines
  std::atomic<bool> called_{};  // one of the three: the thread comes out of the engine that it is in
  std::optional<AbortCause> cause_;
  Deadline::Clock::time_point next_look_ = Deadline::Clock::now();
  std::thread thread_;
};

}  // namespace reigen::comm
