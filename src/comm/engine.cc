#include "comm/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "base/machine/cores.h"
#include "base/no_waiting.h"
#include "comm/call/memory.h"
#include "comm/pause/pause.h"

namespace reigen::comm {

namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// If each rank has a core, a waiting thread spins for this time before it sleeps. If the peer is ready by then, the
// wait needs no system call.
constexpr auto kSpinFor = microseconds(60);
// If ranks share cores, a waiting thread yields its core to other threads for this time before it sleeps.
constexpr auto kYieldFor = microseconds(50);
constexpr int kPauses = 4;                                     // pause instructions between two attempts to advance
constexpr int kFirstLooks = 64;                                // a blocking call's attempts before it reads the clock
constexpr int kRoundsBesideADriver = 20;                       // of 1 ms, see drive_for()
constexpr auto kSleepSlice = milliseconds(20);                 // longest sleep between two checks of the peers
constexpr std::size_t kCarriedAtOnce = std::size_t{64} << 10;  // moving this many bytes costs less than waking a thread

}  // namespace

void throw_cause(const AbortCause& cause) {
  switch (cause.kind) {
    case AbortCause::Kind::kPeerLost: throw PeerLost(cause.rank, cause.text);
    case AbortCause::Kind::kTimeout: throw Timeout(cause.text);
    case AbortCause::Kind::kMismatch: throw CollectiveMismatch(cause.text);
    case AbortCause::Kind::kLeft: throw LeftPending(cause.text);
    case AbortCause::Kind::kAborted: break;
  }
  throw Aborted(cause.text);
}

AbortCause cause_of(std::exception_ptr error) {
  try {
    std::rethrow_exception(error);
  } catch (const PeerLost& e) {
    return {AbortCause::Kind::kPeerLost, e.rank(), e.what()};
  } catch (const Timeout& e) {
    return {AbortCause::Kind::kTimeout, -1, e.what()};
  } catch (const CollectiveMismatch& e) {
    return {AbortCause::Kind::kMismatch, -1, e.what()};
  } catch (const LeftPending& e) {
    return {AbortCause::Kind::kLeft, -1, e.what()};
  } catch (const std::exception& e) {
    return {AbortCause::Kind::kAborted, -1, e.what()};
  }
}

Engine::Engine(std::unique_ptr<Backend> backend, FlightLog flight, const base::CoreShare& share, Group group,
               std::shared_ptr<Context> context)
    : backend_(std::move(backend)),
      may_spin_(backend_->always_spins() || base::have_cores(share, 1)),
      both_may_spin_(backend_->always_spins() || base::have_cores(share, 2)),
      flight_(std::move(flight)),
      group_(std::move(group)),
      context_(std::move(context)) {}

Engine::~Engine() { shut_down(); }

void Engine::shut_down() {
  {
    std::unique_lock lock(queue_mutex_);
    if (stop_) return;
    stop_ = true;
    flush_.store(true);
    context_->want(*this);
    listeners_.fetch_add(1);
    changed_.wait_for(lock, std::chrono::seconds(2), [&] { return pending_.load() == 0; });
    listeners_.fetch_sub(1);
  }
  if (pending_.load() > 0) abort_wanted_.store(true);  // makes a thread that drives a pending call stop
  backend_->wake();
  if (auto cause = context_->leave(*this)) end(std::move(*cause));
  std::lock_guard drive(drive_mutex_);
  // The other groups of this rank go on. On another rank, the other groups end too only if that rank waits in this
  // group.
  if (pending_.load() > 0) {
    fail(std::make_exception_ptr(
             LeftPending(fmt::format("rank {} of {} left group \"{}\" with operations pending", rank_, size_, name_))),
         Spread::kHere);
  }
  abort_wanted_.store(false);
  backend_->leave();
}

// `drive`: the lock of drive_mutex_. The caller may hold it, but need not.
void Engine::enqueue(std::span<const std::shared_ptr<WorkState>> works, bool thread,
                     std::unique_lock<std::mutex>& drive) {
  std::size_t submitted = 0;
  try {
    std::lock_guard lock(queue_mutex_);
    for (const auto& work : works) {
      // If no earlier call has thrown the error that ended the group, this call throws it unchanged. So a program can
      // tell a lost rank from an aborted group, even if the program did not wait for the call that failed.
      if (dead_ && !group_.told->exchange(true)) std::rethrow_exception(dead_);
      if (dead_)
        throw Aborted(fmt::format("[{}] rank {} of {}: group \"{}\" has ended: {}", name_of(work->call.kind), rank_,
                                  size_, name_, cause_of(dead_).text));
      const bool counts = !is_between_two(work->call.kind);
      work->sequence = counts ? next_sequence_ : 0;
      work->operation = backend_->start(work->call, work->sequence);
      if (counts) next_sequence_ += 1;  // a call that the backend refuses gets no number
      work->ticket = flight_.called(work->call, work->sequence);
      work->wants_thread = thread;
      pending_.fetch_add(1);
      if (thread) thread_pending_.fetch_add(1);
      submitted += 1;
      if (drive.owns_lock() && incoming_.empty()) {
        (counts ? active_ : messages_).push_back(work);
      } else {
        incoming_.push_back(work);
        has_incoming_.store(true);
      }
    }
  } catch (...) {
    // If only a part of the calls was submitted, the other ranks would wait for the rest for ever, so the group ends.
    // The caller gets the error, and none of its calls remains in flight.
    if (submitted > 0) {
      abort_wanted_.store(true);
      backend_->wake();
      if (!drive.owns_lock()) drive.lock();
      fail(std::current_exception());
      abort_wanted_.store(false);
    }
    for (const auto& work : works) {
      if (!work->completed.load()) give_up(*work, std::current_exception());
    }
    if (submitted > 0) tell();
    if (drive.owns_lock()) drive.unlock();
    context_->wait_for_end();
    throw;
  }
}

void Engine::give_up(WorkState& work, std::exception_ptr error) {
  work.error = std::move(error);
  work.operation.reset();  // this releases streams that wait for the operation
  work.input_block.reset();
  work.output_block.reset();
  work.completed.store(true);
}

// Whether the thread that calls start_NAME() advances the calls itself. It does so if the calls are small and no other
// call is in flight. The caller of this function holds drive_mutex_.
bool Engine::carries_at_once(std::span<const std::shared_ptr<WorkState>> works) const {
  if (active_.size() + messages_.size() > works.size() || has_incoming_.load()) return false;
  std::size_t bytes = 0;
  for (const auto& work : works) {
    const Extent extent = extent_of(work->call, rank_, size_);
    bytes += (extent.input + extent.output) * size_of(work->call.type);
  }
  return bytes <= kCarriedAtOnce;
}

void Engine::submit(std::span<const std::shared_ptr<WorkState>> works, bool thread) {
  std::unique_lock drive(drive_mutex_, std::try_to_lock);
  for (const auto& work : works) work->engine = shared_from_this();
  enqueue(works, thread, drive);
  if (drive.owns_lock()) {
    calling_ = works.empty() ? UINT64_MAX : works.front()->ticket;
    if (thread && !carries_at_once(works)) {
      take_incoming();
      post();
    } else {
      while (drive_once()) {
      }
    }
    calling_ = UINT64_MAX;
    drive.unlock();
    // step_back() wakes the Context's thread (the progress thread) if calls are left to it. It is not called earlier,
    // for two reasons. While this thread holds drive_mutex_, the Context's thread could not drive. Calls that are
    // complete by now do not need the Context's thread.
    step_back();
  } else {
    backend_->wake();  // the driver thread may sleep, and it must post these calls too
    if (thread) step_back();
  }
}

void Engine::run(const std::shared_ptr<WorkState>& work) {
  base::require_waiting_allowed();
  std::unique_lock drive(drive_mutex_, std::try_to_lock);
  enqueue({&work, 1}, false, drive);
  if (drive.owns_lock()) {
    calling_ = work->ticket;
    const int looks = may_spin_ ? kFirstLooks : 1;
    for (int look = 0; !work->completed.load() && look < looks && !abort_wanted_.load(); ++look) {
      if (!drive_once()) pause_processor();
    }
    calling_ = UINT64_MAX;
    drive.unlock();
    step_back();
  } else {
    backend_->wake();
  }
  if (!work->completed.load()) return wait(*work, Deadline::never());
  if (work->error) throw_error(*work);
}

void Engine::hold_memory(WorkState& work) {
  work.input_block = backend_->hold(work.call.input);
  if (work.call.output != work.call.input) work.output_block = backend_->hold(work.call.output);
}

// The caller holds drive_mutex_.
void Engine::take_incoming() {
  if (!has_incoming_.load()) return;
  std::lock_guard lock(queue_mutex_);
  for (auto& work : incoming_) (is_between_two(work->call.kind) ? messages_ : active_).push_back(std::move(work));
  incoming_.clear();
  has_incoming_.store(false);
}

// Posts the calls that are not posted yet: makes them visible to the other ranks. Returns true if it posted any. The
// caller holds drive_mutex_.
bool Engine::post() {
  bool moved = false;
  try {
    for (; posted_ < active_.size() && active_[posted_]->operation->try_post(); ++posted_) {
      flight_.started(active_[posted_]->ticket, active_[posted_]->ticket >= calling_);
      moved = true;
    }
  } catch (...) {
    fail(std::current_exception());
    moved = true;
  }
  return moved;
}

// Posts calls and advances the operations that can advance. Returns true if anything happened. The caller holds
// drive_mutex_.
bool Engine::drive_once() {
  take_incoming();
  bool moved = post();
  const auto advance = [&](WorkState& work) {
    Step step = work.operation->advance();
    while (step == Step::kMoved && !abort_wanted_.load()) {
      moved = work.moved = true;
      step = work.operation->advance();
    }
    return step;
  };
  try {
    for (std::size_t i = 0; i < posted_ && !abort_wanted_.load();) {
      const Step step = advance(*active_[i]);
      if (step == Step::kBlocked || step == Step::kMoved) break;
      if (step == Step::kPassedOn) {
        ++i;
        continue;
      }
      moved = true;
      // Operations complete in order. If a later operation is done, the oldest operation of this rank is done too. So
      // begin again with the oldest.
      if (i == 0) {
        posted_ -= 1;
        complete(active_, 0);
      }
      i = 0;
    }
    for (std::size_t i = 0; i < messages_.size() && !abort_wanted_.load();) {
      if (advance(*messages_[i]) == Step::kDone) {
        moved = true;
        complete(messages_, i);
      } else {
        ++i;
      }
    }
  } catch (...) {
    fail(std::current_exception());
    moved = true;
  }
  return moved;
}

// The caller holds drive_mutex_.
void Engine::complete(Works& works, std::size_t index) {
  const auto work = std::move(works[index]);
  works.erase(works.begin() + static_cast<std::ptrdiff_t>(index));
  work->operation.reset();
  flight_.completed(work->ticket);
  work->input_block.reset();
  work->output_block.reset();
  if (work->wants_thread) thread_pending_.fetch_sub(1);
  pending_.fetch_sub(1);
  work->completed.store(true);
  tell_listeners();
}

// Wakes the threads that wait at `changed_`. Call this function after the condition for which they wait has become
// true. A thread that begins to wait only now checks the condition first, so it needs no wake-up.
void Engine::tell_listeners() {
  if (listeners_.load() == 0) return;
  std::lock_guard lock(queue_mutex_);
  changed_.notify_all();
}

// Checks the peers. Throws nothing: a lost peer ends the group. The caller holds drive_mutex_.
void Engine::look_after_peers() {
  const auto now = Deadline::Clock::now();
  // If the last check was much longer ago than one sleep, this process was stopped, or it computed without driving. The
  // other ranks could not make progress during this gap, so the gap does not count as waiting for them.
  const bool gap = now - last_look_ > std::chrono::seconds(1);
  last_look_ = now;
  const auto look = [&](WorkState& work, bool its_turn) {
    if (work.moved || gap || !its_turn || work.since == Deadline::Clock::time_point{}) work.since = now;
    work.moved = false;
    if (its_turn) backend_->check_peers(*work.operation, now - work.since);
  };
  try {
    for (const auto& work : active_) look(*work, work == active_.front());
    for (const auto& work : messages_) look(*work, work->operation->is_its_turn());
  } catch (...) {
    // The lost rank may have done its part of the operation before it died. So the group ends only if no operation can
    // advance any more.
    if (!drive_once()) fail(std::current_exception());
  }
}

// Drives (advances the operations) until `finished` returns true, the deadline passes or abort_wanted_ is set. If
// nothing advances, spins or yields for `patience` before it sleeps. The caller holds drive_mutex_.
void Engine::drive_until(const std::function<bool()>& finished, const Deadline& deadline, microseconds patience) {
  bool idle = false;
  Deadline::Clock::time_point idle_since = {};
  while (!finished() && !abort_wanted_.load()) {
    const bool has_moved = drive_once();
    if (deadline.expired()) return;  // even while there is progress: the Context's thread must give signs of life
    if (has_moved) {
      idle = false;
      continue;
    }
    const auto now = Deadline::Clock::now();
    if (!idle) idle_since = now;
    idle = true;
    if (now - idle_since < patience) {
      if (may_spin_) {
        for (int i = 0; i < kPauses; ++i) pause_processor();
      } else {
        std::this_thread::yield();
      }
      continue;
    }
    bool moved = false;
    backend_->sleep([&] { return (moved = drive_once()) || finished() || abort_wanted_.load(); },
                    deadline.remaining(kSleepSlice));
    if (moved) {
      idle = false;
      continue;
    }
    if (Deadline::Clock::now() - last_look_ > kSleepSlice / 2) look_after_peers();
  }
}

// Called after this thread has stopped driving. Wakes the waiting threads, one of which may drive now, and the
// Context's thread if operations are left to it. The Context's thread sleeps while other threads drive, because to wake
// it for each operation would take a core from a rank that computes or spins.
void Engine::step_back() {
  tell_listeners();
  if (thread_pending_.load() > 0) context_->want(*this);
}

void Engine::wait(WorkState& work, const Deadline& deadline) {
  drive_for(work, deadline, [&] { return work.completed.load(); });
  if (work.error) throw_error(work);
}

// Only the driver thread may use work.operation, because the driver thread destroys it when the work is complete.
void Engine::wait_on(WorkState& work, const Stream& stream) {
  const Device own = backend_->device();
  if (stream.device.is_cpu() || own.is_cpu()) return wait(work, Deadline::never());
  check_stream(stream, own, name_of(work.call.kind));
  bool follows = false;
  drive_for(work, Deadline::never(), [&] {
    if (work.completed.load() || follows) return true;
    follows = work.operation->precede(stream);
    if (follows && !work.wants_thread) {  // if no thread waits for the work later, the Context's thread drives
      work.wants_thread = true;
      thread_pending_.fetch_add(1);
    }
    return follows;
  });
  if (work.completed.load() && work.error) throw_error(work);
}

// Drives (advances the operations), or waits while another thread drives, until `finished` returns true or the work is
// complete. Only the driver thread calls `finished`. In a scope that forbids to wait for other ranks this function does
// what this rank can do alone, and throws InternalError if that is not enough. In such a scope it waits at most 20 ms
// for another thread of this rank that drives.
void Engine::drive_for(WorkState& work, const Deadline& deadline, const std::function<bool()>& finished) {
  const auto done = [&] { return work.completed.load(); };
  if (done()) return;
  struct StepBack {
    Engine& engine;
    ~StepBack() { engine.step_back(); }
  } const at_the_end{*this};
  auto require_allowed = [is_known = false]() mutable {
    if (!std::exchange(is_known, true)) base::require_waiting_allowed();
  };
  int rounds = 0;
  for (bool over = false; !over;) {
    std::unique_lock drive(drive_mutex_, std::try_to_lock);
    if (!drive.owns_lock()) {
      waiters_.fetch_add(1);
      listeners_.fetch_add(1);
      backend_->wake();
      {
        std::unique_lock lock(queue_mutex_);
        // Try to lock once more. The driver thread may have stopped before it saw `listeners_`, and then it wakes
        // nobody.
        if (!drive.try_lock()) changed_.wait_for(lock, deadline.remaining(milliseconds(1)), done);
      }
      listeners_.fetch_sub(1);
      waiters_.fetch_sub(1);
      if (!drive.owns_lock() && ++rounds == kRoundsBesideADriver) require_allowed();
    }
    if (drive.owns_lock()) {
      over = finished();
      if (!over && !base::waiting_is_allowed()) {
        while (drive_once()) {
        }
        over = finished();
      }
      if (!over) {
        require_allowed();
        drive_until(finished, deadline, may_spin_ ? kSpinFor : kYieldFor);
        over = finished();
      }
      drive.unlock();
    }
    over = over || done();
    if (!over && deadline.expired()) {
      throw Timeout(
          fmt::format("[{}] rank {} of {} group \"{}\" #{}: not complete at the caller's deadline; it goes on",
                      name_of(work.call.kind), rank_, size_, name_, work.sequence));
    }
  }
}

void Engine::throw_error(const WorkState& work) {
  tell();
  // After this throw the program may make a call in another group, or in this group on the other kind of memory. The
  // groups of the Context must have ended by then.
  context_->wait_for_end();
  std::rethrow_exception(work.error);
}

void Engine::poll() {
  std::unique_lock drive(drive_mutex_, std::try_to_lock);
  if (!drive.owns_lock()) return;
  bool moved = false;
  while (drive_once()) moved = true;  // an operation that completes may make room to post the next call
  if (!moved && Deadline::Clock::now() - last_look_ > kSleepSlice) look_after_peers();
}

// The driver thread may be copying into a caller's buffer. It must stop before that caller gets the error.
void Engine::abort(const std::string& cause) {
  tell();
  abort_wanted_.store(true);
  backend_->wake();
  std::unique_lock drive(drive_mutex_);
  fail(std::make_exception_ptr(
      Aborted(fmt::format("rank {} of {} ended group \"{}\": {}", rank_, size_, name_, cause))));
  abort_wanted_.store(false);
  drive.unlock();
  context_->wait_for_end();
}

// The caller holds drive_mutex_.
void Engine::fail(std::exception_ptr error, Spread spread) {
  std::lock_guard lock(queue_mutex_);
  if (!dead_) {
    dead_ = error;
    const AbortCause cause = cause_of(error);
    // End the other groups first: a device may have to end their operations before it can end those of this group.
    if (spread == Spread::kToAllGroups) {
      AbortCause of_all = cause;
      const bool is_known = cause.rank >= 0 && cause.rank < size_;
      of_all.rank = is_known ? group_.members[static_cast<std::size_t>(cause.rank)] : -1;
      context_->end_all(std::move(of_all));
    }
    backend_->publish_abort(cause);
  }
  pending_.store(0);
  thread_pending_.store(0);
  has_incoming_.store(false);
  for (Works* works : {&incoming_, &active_, &messages_}) {
    for (auto& work : *works) {
      flight_.failed(work->ticket, dead_);
      give_up(*work, dead_);
    }
    works->clear();
  }
  posted_ = 0;
  changed_.notify_all();
}

bool Engine::progress(const Deadline& until, bool alone, const std::function<bool()>& called_away) {
  std::unique_lock drive(drive_mutex_, std::try_to_lock);
  if (!drive.owns_lock()) return false;
  // This thread runs next to a thread that computes. If packets arrive every 50 us, a thread that spins until the next
  // packet never sleeps. Without a core of its own, it would take the core of the computing thread. So it spins only if
  // each rank has cores for two threads.
  drive_once();
  drive_until([&] { return pending_.load() == 0 || waiters_.load() > 0 || called_away(); }, until,
              alone && both_may_spin_ ? kSpinFor : microseconds(0));
  drive.unlock();
  tell_listeners();
  return true;
}

void Engine::hear_of_end() {
  std::unique_lock drive(drive_mutex_, std::try_to_lock);
  if (!drive.owns_lock()) return;
  // A call that another rank completed before that rank ended the group must complete here too.
  if (pending_.load() > 0) drive_once();
  try {
    backend_->throw_if_ended();
  } catch (const LeftPending&) {
    fail(std::current_exception(), Spread::kHere);  // this rank does not wait in this group, so its other groups go on
  } catch (...) {
    fail(std::current_exception());
  }
}

void Engine::end(AbortCause cause) {
  const auto found = std::find(group_.members.begin(), group_.members.end(), cause.rank);
  cause.rank = found == group_.members.end() ? -1 : static_cast<int>(found - group_.members.begin());
  abort_wanted_.store(true);
  backend_->wake();
  std::lock_guard drive(drive_mutex_);
  try {
    throw_cause(cause);
  } catch (...) {
    fail(std::current_exception(), Spread::kHere);
  }
  abort_wanted_.store(false);
}

}  // namespace reigen::comm
