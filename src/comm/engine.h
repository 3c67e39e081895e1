// Runs a group's operations in the order of the calls (those between two ranks beside the others), on whichever thread
// has reason to: the caller of a blocking call, a thread that waits, one that polls, or the thread of the rank's groups
// (context.h), which sleeps otherwise and gives signs of life.
//
// Locks: `drive_mutex_` is held by the one thread that moves operations on, also while it sleeps, and guards those
// under way; `queue_mutex_` guards what others hand over to it and is held for moments. Order: drive before queue
// before the context's. A blocking call that finds nobody driving takes each of them once.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "comm/backend.h"
#include "comm/context.h"
#include "comm/flight_log.h"
#include "reigen/base/deadline.h"
#include "reigen/comm/work.h"

namespace reigen::comm {

class Engine;

struct WorkState {
  std::shared_ptr<Engine> engine;  // null: a list of calls
  Call call;
  std::uint64_t sequence = 0;
  std::uint64_t ticket = 0;  // in the flight record
  std::unique_ptr<Operation> operation;
  // Its blocks of allocate(), if it outlives the call: other ranks may write there until it has completed.
  std::shared_ptr<void> input_block = nullptr;
  std::shared_ptr<void> output_block = nullptr;
  bool wants_thread = false;
  // Whether it has moved since the peers were last looked after, and since when it has not.
  bool moved = false;
  Deadline::Clock::time_point since = {};
  std::vector<std::shared_ptr<WorkState>> parts = {};  // a list of calls: nothing else is set then
  std::atomic<bool> completed{false};
  std::exception_ptr error;  // written before `completed`
};

class Engine : public std::enable_shared_from_this<Engine> {
 public:
  struct Group {
    std::string name = {};
    int rank = 0;
    std::vector<int> members = {};  // of every rank: its number in the first group of the context
    // Somebody knows of the end: a call has thrown it. The engines of one group have this in common.
    std::shared_ptr<std::atomic<bool>> told = std::make_shared<std::atomic<bool>>(false);
  };
  // `share`: of the processors; it decides who spins. Call enter() before the first call.
  Engine(std::unique_ptr<Backend> backend, FlightLog flight, const base::CoreShare& share, Group group,
         std::shared_ptr<Context> context);
  ~Engine();
  Engine(const Engine&) = delete;  // a thread belongs to it
  Engine& operator=(const Engine&) = delete;

  // Enqueues the calls and makes them visible to the other ranks if nobody else drives at the moment. `thread`: wake
  // the progress thread for them, unless they are small; else they are moved on as far as they go. What is refused
  // throws, here and for whoever waits for one of them.
  void submit(std::span<const std::shared_ptr<WorkState>> works, bool thread);
  // submit() and wait(), without letting go of what both hold where the other ranks come at once.
  void run(const std::shared_ptr<WorkState>& work);
  // The memory of this call is kept until it has completed, whatever its owner does.
  void hold_memory(WorkState& work);
  void wait(WorkState& work, const Deadline& deadline);
  // As Work::wait_on().
  void wait_on(WorkState& work, const Stream& stream);
  // The caller is told what ended the group: calls after that throw Aborted.
  void tell() { group_.told->store(true); }
  // Never waits; looks after the peers now and then, so that a dead one is noticed by a caller that only polls.
  void poll();
  void abort(const std::string& cause);
  // Finishes what is queued, within a second or two; then leaves the context. Called when the last handle is gone.
  void shut_down();

  Backend& backend() { return *backend_; }
  const std::vector<int>& members() const { return group_.members; }

  // Of the context:
  void enter() { context_->enter(*this); }
  // Whether operations are left to the context's thread, and no waiting thread would rather drive.
  bool wants_thread() const {
    return (thread_pending_.load() > 0 || (flush_.load() && pending_.load() > 0)) && waiters_.load() == 0;
  }
  // Drives once, and until the deadline, as long as there is work and nobody else wants the caller; `alone`: no other
  // group does, so the thread may spin. False: another thread drives.
  bool progress(const Deadline& until, bool alone, const std::function<bool()>& called_away);
  // Looks whether another rank has ended the group, unless another thread drives, which looks by itself.
  void hear_of_end();
  // Another group of the context has ended so; `cause.rank` is a number of the context's first group.
  void end(AbortCause cause);

 private:
  using Works = std::deque<std::shared_ptr<WorkState>>;

  void enqueue(std::span<const std::shared_ptr<WorkState>> works, bool thread, std::unique_lock<std::mutex>& drive);
  [[noreturn]] void throw_error(const WorkState& work);
  static void give_up(WorkState& work, std::exception_ptr error);
  bool carries_at_once(std::span<const std::shared_ptr<WorkState>> works) const;
  bool post();
  bool drive_once();
  void take_incoming();
  void complete(Works& works, std::size_t index);
  void look_after_peers();
  void drive_for(WorkState& work, const Deadline& deadline, const std::function<bool()>& finished);
  void drive_until(const std::function<bool()>& finished, const Deadline& deadline, std::chrono::microseconds patience);
  enum class Spread { kToAllGroups, kHere };
  void fail(std::exception_ptr error, Spread spread = Spread::kToAllGroups);
  void tell_listeners();
  void step_back();

  std::unique_ptr<Backend> backend_;
  const bool may_spin_;       // a thread of each rank has a processor of its own, so that spinning costs nobody
  const bool both_may_spin_;  // two of each
  const FlightLog flight_;
  const Group group_;
  const std::string& name_ = group_.name;
  const int rank_ = group_.rank;
  const int size_ = static_cast<int>(group_.members.size());
  const std::shared_ptr<Context> context_;

  std::mutex drive_mutex_;
  Works active_;                        // in the order of the calls
  std::size_t posted_ = 0;              // so many of them are posted
  std::uint64_t calling_ = UINT64_MAX;  // tickets from here on belong to the thread that drives inside of its call
  Works messages_;                      // between two ranks: beside the others
  Deadline::Clock::time_point last_look_ = Deadline::Clock::now();  // after the peers

  std::mutex queue_mutex_;
  Works incoming_;  // called while another thread drives
  std::atomic<bool> has_incoming_{false};
  std::condition_variable changed_;  // for waiting threads: a work completed, or the driver stepped back
  std::uint64_t next_sequence_ = 0;
  std::exception_ptr dead_;
  bool stop_ = false;
  std::atomic<bool> flush_{false};  // the context's thread finishes what is pending, whoever it was left to

  std::atomic<std::size_t> pending_{0};         // calls that are not complete
  std::atomic<std::size_t> thread_pending_{0};  // of these, left to the context's thread
  std::atomic<bool> abort_wanted_{false};       // the driver steps back, so that abort() can clear the queue
  std::atomic<int> listeners_{0};               // threads at `changed_`
  std::atomic<int> waiters_{0};                 // threads that would rather drive than wait for the context's
};

}  // namespace reigen::comm
