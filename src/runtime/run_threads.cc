#include <exception>
#include <future>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "base/check.h"
#include "reigen/runtime/init.h"
#include "runtime/group_options.h"

namespace reigen {

namespace {

// Keeps the failure that run_threads() reports: the first failure that is not just a consequence of another rank's
// failure.
class FirstFailure {
 public:
  void record(int rank, std::exception_ptr error) {
    const bool consequence = is_consequence(error);
    std::lock_guard lock(mutex_);
    if (error_ && !(consequence_ && !consequence)) return;
    error_ = error;
    rank_ = rank;
    consequence_ = consequence;
  }

  void rethrow() const {
    if (!error_) return;
    try {
      std::rethrow_exception(error_);
    } catch (const Error&) {
      throw;
    } catch (const std::exception& e) {
      throw Error(ExitCode::kBug, fmt::format("rank {}: {}", rank_, e.what()));
    }
  }

 private:
  static bool is_consequence(const std::exception_ptr& error) {
    try {
      std::rethrow_exception(error);
    } catch (const PeerLost&) {
      return true;
    } catch (const Aborted&) {
      return true;
    } catch (...) {
      return false;
    }
  }

  std::mutex mutex_;
  std::exception_ptr error_;
  int rank_ = -1;
  bool consequence_ = false;
};

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an exception of unknown type";
  }
}

}  // namespace

void run_threads(int ranks, const RankFunction& function, const InitOptions& options) {
  REIGEN_CHECK(ranks >= 1, "run_threads needs at least one rank\n  got: {}", ranks);
  const comm::GroupOptions settings = group_options(options);
  const auto store = store::make_memory_store();
  FirstFailure failure;
  const auto run_rank = [&](int rank) {
    try {
      comm::GroupOptions group = settings;
      group.rank = rank;
      group.size = ranks;
      group.store = store;
      Communicator world(group);
      try {
        function(world);
      } catch (...) {
        failure.record(rank, std::current_exception());
        world.abort(fmt::format("rank {} failed: {}", rank, text_of(std::current_exception())));
      }
    } catch (...) {
      failure.record(rank, std::current_exception());
    }
  };
  // The ranks begin when all threads have started. If ranks began earlier and a later thread could not be started, they
  // would wait in vain for the rank of that thread.
  std::promise<bool> gate;
  const std::shared_future<bool> begins = gate.get_future().share();
  std::vector<std::thread> threads;
  std::string refusal;
  try {
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&run_rank, begins, rank] {
        if (begins.get()) run_rank(rank);
      });
    }
  } catch (const std::system_error& error) {
    refusal = error.what();
  }
  gate.set_value(refusal.empty());
  for (auto& thread : threads) thread.join();
  if (!refusal.empty()) {
    throw IoError(Report{.what = fmt::format("no more threads: {}", refusal),
                         .got = fmt::format("{} of {} ranks", threads.size(), ranks),
                         .fix = "use fewer ranks, or raise the limit (ulimit -u)"},
                  ExitCode::kOsResource);
  }
  failure.rethrow();
}

}  // namespace reigen
