// A group and all groups that are split off it share one Context on each rank. The Context has a thread. The thread
// moves operations on for which nobody waits, and gives the signs of life. An error in one group ends all groups of the
// Context, because the rank that meets it may be the one for which other ranks wait in another group.
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

  // From here on the thread looks after the engine. If another group has ended already, this one ends at once.
  void enter(Engine& engine);
  // When this returns the thread is not inside the engine and will not come back. Gives the cause if a group has ended:
  // the caller then ends this one, because the thread may not have done so.
  std::optional<AbortCause> leave(Engine& engine);
  // The engine has work for the thread.
  void want(const Engine& engine);
  // A group has ended. The first cause counts; its rank is that of the first group, or -1. Returns at once.
  void end_all(AbortCause cause);
  // Waits until the end has reached all groups, for a second at most. The caller must not drive an engine.
  void wait_for_end();

 private:
  void run();
  void end_engines(std::unique_lock<std::mutex>& lock);
  void look_around(std::unique_lock<std::mutex>& lock);
  void progress(std::unique_lock<std::mutex>& lock);
  template <class Body>
  bool inside(Engine* engine, std::unique_lock<std::mutex>& lock, const Body& body);

  std::mutex mutex_;
  std::condition_variable told_;  // wakes the thread
  std::condition_variable left_;  // the thread came out of an engine
  std::vector<Engine*> engines_;
  std::vector<Engine*> round_;  // only the thread reads it; enter() makes room, so that the thread allocates nothing
  Engine* inside_ = nullptr;
  std::size_t turn_ = 0;  // each turn begins with another group
  bool wanted_ = false;
  bool stop_ = false;
  bool ending_ = false;         // the cause has not reached all engines yet
  std::atomic<bool> called_{};  // one of these three is set: the thread leaves the engine
  std::optional<AbortCause> cause_;
  Deadline::Clock::time_point next_look_ = Deadline::Clock::now();
  std::thread thread_;
};

}  // namespace reigen::comm
