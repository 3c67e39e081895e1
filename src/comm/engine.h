// Runs a group's operations in the order of the calls; sends and recvs run at the same time as the collectives. One
// thread at a time drives the operations, which means that it advances them. The thread that drives is called the
// driver thread. It is a thread in a blocking call, in Work::wait() or in poll(), or it is the thread of the Context
// (context.h). While the Context's thread does not drive, it sleeps and gives signs of life.
//
// Locks: the driver thread holds `drive_mutex_`, also while it sleeps; this lock guards the operations in flight.
// `queue_mutex_` guards the calls that other threads hand over to the driver thread, and is held only briefly. Order:
// `drive_mutex_` before `queue_mutex_` before the Context's mutex. If no other thread drives, a blocking call locks
// `drive_mutex_` and `queue_mutex_` once each.
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
  std::shared_ptr<Engine> engine;  // null for a list of calls
  Call call;
  std::uint64_t sequence = 0;
  std::uint64_t ticket = 0;  // the call's number in the flight record
  std::unique_ptr<Operation> operation;
  // The blocks of allocate() in which the call's buffers lie. Set for a call of start_NAME() or of a list: the caller
  // may drop the blocks, but other ranks may use them until the operation has completed.
  std::shared_ptr<void> input_block = nullptr;
  std::shared_ptr<void> output_block = nullptr;
  bool wants_thread = false;
  // `moved`: the operation has advanced since the last check of the peers. `since`: the time at which the operation
  // began to wait without advancing.
  bool moved = false;
  Deadline::Clock::time_point since = {};
  std::vector<std::shared_ptr<WorkState>> parts = {};  // of a list: the state of each call; no other member is then set
  std::atomic<bool> completed{false};
  std::exception_ptr error;  // written before `completed`
};

class Engine : public std::enable_shared_from_this<Engine> {
 public:
  struct Group {
    std::string name = {};
    int rank = 0;
    std::vector<int> members = {};  // members[q]: the number of rank q in the first group of the Context
    // Whether a call has already thrown the error that ended the group. The engines of one group share this flag.
    std::shared_ptr<std::atomic<bool>> told = std::make_shared<std::atomic<bool>>(false);
  };
  // `share`: this rank's share of the processors, which decides whether its threads spin. Call enter() before the
  // first call.
  Engine(std::unique_ptr<Backend> backend, FlightLog flight, const base::CoreShare& share, Group group,
         std::shared_ptr<Context> context);
  ~Engine();
  Engine(const Engine&) = delete;  // the Context's thread has its address
  Engine& operator=(const Engine&) = delete;

  // Enqueues the calls and, if no other thread drives at the moment, makes them visible to the other ranks. If `thread`
  // is true, the Context's thread advances the calls. The calling thread first advances small calls itself, so that the
  // Context's thread need not wake up for them. If `thread` is false, the calling thread advances the calls as far as
  // possible without waiting. If the backend refuses a call, this function throws, and so does every wait for one of
  // `works`.
  void submit(std::span<const std::shared_ptr<WorkState>> works, bool thread);
  // Does the work of submit() and wait(). If the other ranks make the call at the same time, run() locks drive_mutex_
  // and queue_mutex_ only once each.
  void run(const std::shared_ptr<WorkState>& work);
  // Keeps the blocks of allocate() that the call uses alive until the call has completed, even if the owner drops them.
  void hold_memory(WorkState& work);
  void wait(WorkState& work, const Deadline& deadline);
  // As Work::wait_on().
  void wait_on(WorkState& work, const Stream& stream);
  // Notes that a caller has got the error that ended the group. Later calls throw Aborted.
  void tell() { group_.told->store(true); }
  // Advances the operations without ever waiting. Checks the peers now and then, so that a caller that only polls
  // also notices a dead peer.
  void poll();
  void abort(const std::string& cause);
  // Waits up to two seconds for the pending operations, then leaves the Context. If operations are still pending, ends
  // the group. Called when the last Communicator of the group is destroyed.
  void shut_down();

  Backend& backend() { return *backend_; }
  const std::vector<int>& members() const { return group_.members; }

  // For the Context:
  void enter() { context_->enter(*this); }
  // Whether operations are left to the Context's thread and no waiting thread wants to drive.
  bool wants_thread() const {
    return (thread_pending_.load() > 0 || (flush_.load() && pending_.load() > 0)) && waiters_.load() == 0;
  }
  // Runs on the Context's thread. Drives at least once, and then until the deadline passes, no work is left, a waiting
  // thread wants to drive, or `called_away` returns true. `alone`: no other group has work for the thread, so the
  // thread may spin. If another thread drives, does nothing and returns false.
  bool progress(const Deadline& until, bool alone, const std::function<bool()>& called_away);
  // Checks whether another rank has ended the group. Does nothing if another thread drives, because the driver checks
  // this itself.
  void hear_of_end();
  // Ends this group because another group of the Context has ended with this cause; `cause.rank` is a number of the
  // first group of the Context.
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
  const bool may_spin_;       // each rank has a processor for one thread, so a thread that spins delays nobody
  const bool both_may_spin_;  // the same for two threads per rank
  const FlightLog flight_;
  const Group group_;
  const std::string& name_ = group_.name;
  const int rank_ = group_.rank;
  const int size_ = static_cast<int>(group_.members.size());
  const std::shared_ptr<Context> context_;

  std::mutex drive_mutex_;
  Works active_;                        // in the order of the calls
  std::size_t posted_ = 0;              // number of calls at the front of `active_` that are posted
  std::uint64_t calling_ = UINT64_MAX;  // while the driver thread submits calls: the ticket of the first of these
  Works messages_;                      // sends and recvs, which run at the same time as the calls in `active_`
  Deadline::Clock::time_point last_look_ = Deadline::Clock::now();  // the last check of the peers

  std::mutex queue_mutex_;
  Works incoming_;  // calls that were made while another thread drove
  std::atomic<bool> has_incoming_{false};
  std::condition_variable changed_;  // tells waiting threads: a call completed, or the driver thread stopped driving
  std::uint64_t next_sequence_ = 0;
  std::exception_ptr dead_;
  bool stop_ = false;
  std::atomic<bool> flush_{false};  // the Context's thread advances all pending calls, not only those left to it

  std::atomic<std::size_t> pending_{0};         // calls that are not complete
  std::atomic<std::size_t> thread_pending_{0};  // how many of these are left to the Context's thread
  std::atomic<bool> abort_wanted_{false};       // the driver thread must stop, so that fail() can end all calls
  std::atomic<int> listeners_{0};               // threads that wait for `changed_`
  std::atomic<int> waiters_{0};                 // threads that want to drive in place of the Context's thread
};

}  // namespace reigen::comm
