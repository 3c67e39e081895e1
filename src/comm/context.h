// On each rank, a first group (one that was not split off another group) and all groups that are split off it share one
// Context. Each of these groups has an Engine, which runs its operations (engine.h). The Context has a thread, which is
// the rank's progress thread. This thread advances the operations that no other thread waits for, and gives the rank's
// signs of life. An error in one group ends all groups of the Context, because other ranks may wait in another group
// for the rank that got the error.
//
// Locks: `mutex_` guards the list of engines and the flags that tell the thread what to do. A thread holds `mutex_`
// only briefly, and takes no lock of an Engine meanwhile. The progress thread stores in `inside_` the engine whose
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
  Context(const Context&) = delete;  // the thread has the address of the Context
  Context& operator=(const Context&) = delete;

  // Adds the engine of a group. From now on the thread advances the engine's operations and gives signs of life in its
  // group. If another group of the Context has ended already, the thread ends this group too.
  void enter(Engine& engine);
  // Removes the engine: after leave() has returned, the thread calls no function of the engine any more. If any group
  // of the Context has ended, returns the cause. The caller must then end the engine's group itself, because the thread
  // may not have done so before leave().
  std::optional<AbortCause> leave(Engine& engine);
  // Tells the thread that the engine has work for it.
  void want(const Engine& engine);
  // Makes the thread end all groups, because one of them has ended. Of several calls, only the cause of the first
  // counts. cause.rank is a number in the first group, or -1. Returns at once; see wait_for_end().
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
  std::condition_variable left_;  // signals that the thread has returned from an engine, or has ended all engines
  std::vector<Engine*> engines_;
  // The engines that the thread visits one after the other. Only the thread reads the list. enter() reserves room, so
  // that the thread allocates nothing.
  std::vector<Engine*> round_;
  Engine* inside_ = nullptr;
  std::size_t turn_ = 0;  // grows, so that the thread begins each pass over the engines with a different one
  bool wanted_ = false;
  bool stop_ = false;
  bool ending_ = false;         // the cause has not reached all engines yet
  std::atomic<bool> called_{};  // the thread must return from the engine that it drives
  std::optional<AbortCause> cause_;
  Deadline end_by_ = Deadline::never();  // when wait_for_end() gives up; set together with cause_
  Deadline::Clock::time_point next_look_ = Deadline::Clock::now();
  std::thread thread_;
};

}  // namespace reigen::comm
