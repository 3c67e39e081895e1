#include "reigen/checkpoint/saver.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "base/log.h"
#include "checkpoint/snapshot.h"
#include "comm/agree.h"
#include "reigen/base/error.h"

namespace reigen::checkpoint {

namespace fs = std::filesystem;

namespace {

// Lowers the priority of this thread, so that the threads of the training run first.
void lower_priority() {
  constexpr int kNice = 10;
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), kNice);
}

// Rank 0 takes the lock for all ranks; if rank 0 fails, every rank throws rank 0's error.
std::optional<DirectoryLock> lock_for_all(const fs::path& directory, const Communicator& world, bool warns) {
  std::optional<DirectoryLock> lock;
  comm::attempt_first(world, "a saver's lock", [&] {
    lock.emplace(directory, warns);
    return std::string();
  });
  return lock;
}

}  // namespace

struct Saver::Impl {
  enum class Task { kNone, kReserve, kSave };
  fs::path directory;
  Communicator world;  // the group in which the ranks' writing threads make their calls
  SaverOptions options;
  std::optional<DirectoryLock> lock;
  Snapshot snapshot = {};

  std::mutex mutex = {};
  std::condition_variable changed = {};
  // The mutex guards the members from here on. While there is a task, `manifest`, `contents` and the snapshot belong to
  // the writing thread.
  Task task = Task::kNone;
  std::size_t to_reserve = 0;
  bool ending = false;
  Manifest manifest = {};
  Contents contents = {};
  std::exception_ptr error = {};
  std::optional<fs::path> last = {};
  std::thread thread = {};

  void write() {
    lower_priority();
    std::unique_lock guard(mutex);
    for (;;) {
      changed.wait(guard, [&] { return task != Task::kNone || ending; });
      if (task == Task::kNone) return;
      const bool saves = task == Task::kSave;
      guard.unlock();
      std::exception_ptr met;
      std::optional<fs::path> path;
      try {
        if (saves)
          path = checkpoint::save(directory, manifest, contents, options.keep, world);
        else
          snapshot.reserve(to_reserve);
      } catch (...) {
        if (saves) met = std::current_exception();  // the error of reserve() is dropped: copy() throws it again
      }
      guard.lock();
      if (path) last = path;
      if (saves) error = met;
      task = Task::kNone;
      changed.notify_all();
    }
  }

  void begin(Task next) {
    if (!thread.joinable()) thread = std::thread([this] { write(); });
    {
      const std::lock_guard guard(mutex);
      task = next;
    }
    changed.notify_all();
  }

  void wait_idle() {
    std::unique_lock guard(mutex);
    changed.wait(guard, [&] { return task == Task::kNone; });
  }
};

Saver::Saver(fs::path directory, Communicator world, const SaverOptions& options) {
  auto lock = lock_for_all(directory, world, options.warns_without_locks);
  Communicator own = world.size() > 1 ? *world.split(0, world.rank()) : world;
  impl_ = std::unique_ptr<Impl>(new Impl{std::move(directory), std::move(own), options, std::move(lock)});
}

Saver::~Saver() {
  if (!impl_->thread.joinable()) return;
  impl_->wait_idle();
  {
    const std::lock_guard guard(impl_->mutex);
    impl_->ending = true;
  }
  impl_->changed.notify_all();
  impl_->thread.join();
  try {
    if (impl_->error) std::rethrow_exception(impl_->error);
  } catch (const std::exception& error) {
    base::log_warning("a checkpoint was not saved: {}", error.what());
  }
}

void Saver::prepare(const Contents& contents) {
  if (!impl_->options.asynchronous) return;
  impl_->wait_idle();
  impl_->to_reserve = Snapshot::bytes_for(contents);
  impl_->begin(Impl::Task::kReserve);
}

void Saver::save(const Manifest& manifest, const Contents& contents) {
  wait();
  std::optional<Contents> copy;
  if (impl_->options.asynchronous) {
    try {
      copy = impl_->snapshot.copy(contents);
    } catch (const IoError& error) {
      // This rank saves in its training thread instead, because the other ranks' writing threads wait for its part.
      base::log_warning("saving a checkpoint while training waits: {}", error.what());
    }
  }
  if (!copy) {
    impl_->last = checkpoint::save(impl_->directory, manifest, contents, impl_->options.keep, impl_->world);
    return;
  }
  impl_->manifest = manifest;
  impl_->contents = std::move(*copy);
  impl_->begin(Impl::Task::kSave);
}

void Saver::check() {
  std::exception_ptr met;
  {
    const std::lock_guard guard(impl_->mutex);
    if (impl_->task != Impl::Task::kSave) met = std::exchange(impl_->error, nullptr);
  }
  if (met) std::rethrow_exception(met);
}

void Saver::wait() {
  impl_->wait_idle();
  check();
}

bool Saver::is_saving() const {
  const std::lock_guard guard(impl_->mutex);
  return impl_->task == Impl::Task::kSave;
}

std::optional<fs::path> Saver::last() const {
  const std::lock_guard guard(impl_->mutex);
  return impl_->last;
}

}  // namespace reigen::checkpoint
