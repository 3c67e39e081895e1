// A first group and all groups that are split off it share one Context on each rank. Each of these groups has an
// Engine, which runs its operations (engine.h). The Context has a thread, which is the rank's progress thread. This
// thread advances the operations that no other thread waits for, and gives the rank's signs of life. An error in one
// group ends all groups of the Context, because other ranks may wait in another group for the rank that got the error.
//
// Locks: `mutex_` guards the list of engines and the flags that tell the thread what to do. A thread holds it only
// briefly, and takes no lock of an Engine while it holds it. The progress thread stores in `inside_` the engine whose
// functions it is running, so that leave() can wait until the thread has returned from them.
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
  Context(const Context&) = delete;  // its thread has its address
  Context& operator=(const Context&) = delete;

  // Adds the engine: from now on the thread advances its operations and gives its signs of life. If another group of
  // the Context has ended already, this one ends at once.
  void enter(Engine& engine);
  // Removes the engine: after leave() has returned, the thread is not inside the engine and does not enter it again.
  // Returns the cause if any group of the Context has ended. The caller then ends the engine's group itself, because
  // the thread may not have done so.
  std::optional<AbortCause> leave(Engine& engine);
  // Tells the thread that the engine has work for it.
  void want(const Engine& engine);
  // Ends all groups, because one of them has ended. Only the first cause counts; its rank is a number of the first
  // group of the Context, or -1. Returns at once.
  void end_all(AbortCause cause);
  // Waits until all groups have ended, for a second at most. The caller must not be the driver thread of an engine.
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
  std::condition_variable left_;  // the thread returned from an engine, or has ended all engines
  std::vector<Engine*> engines_;
  // The engines that the thread visits one after the other. Only the thread reads the list. enter() reserves room, so
  // that the thread allocates nothing.
  std::vector<Engine*> round_;
  Engine* inside_ = nullptr;
  std::size_t turn_ = 0;  // grows, so that the thread begins each pass over the engines with another one
  bool wanted_ = false;
  bool stop_ = false;
  bool ending_ = false;         // the cause has not reached all engines yet
  std::atomic<bool> called_{};  // the thread must leave the engine that it is in
  std::optional<AbortCause> cause_;
  Deadline end_by_ = Deadline::never();  // when wait_for_end() gives up, set with the cause
  Deadline::Clock::time_point next_look_ = Deadline::Clock::now();
  std::thread thread_;
};

}  // namespace reigen::comm
