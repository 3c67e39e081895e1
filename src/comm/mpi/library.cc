#include "comm/mpi/library.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <thread>

#include "base/check.h"
#include "base/environment.h"

namespace reigen::comm::mpi {

namespace {

constexpr auto kFinalizeWithin = std::chrono::seconds(5);

std::atomic<bool> some_left_under_way{false};

void finalize_at_exit(int status, void*) {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized != 0 || status != 0) return;
  std::promise<void> done;
  std::thread watch;
  if (some_left_under_way.load()) {
    watch = std::thread([finished = done.get_future()] {
      if (finished.wait_for(kFinalizeWithin) == std::future_status::ready) return;
      std::fflush(nullptr);
      ::_exit(0);
    });
  }
  MPI_Finalize();
  done.set_value();
  if (watch.joinable()) watch.join();
}

}  // namespace

Library& Library::get() {
  static auto* library = new Library;  // never destroyed: threads may use it until the process is gone
  return *library;
}

Library::Library() {
  int initialized = 0;
  int finalized = 0;
  int level = MPI_THREAD_SINGLE;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  if (finalized != 0) {
    throw BackendError(Report{.what = "MPI has been ended in this process and cannot be started again",
                              .got = "MPI_Finalize was called",
                              .expected = {},
                              .fix = "call MPI_Finalize after the last group is gone"});
  }
  if (initialized != 0) {
    check(MPI_Query_thread(&level), "MPI_Query_thread");
  } else {
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level), "MPI_Init_thread");
    ::on_exit(&finalize_at_exit, nullptr);
  }
  if (level < MPI_THREAD_SERIALIZED) {
    throw BackendError(Report{.what = "MPI cannot be used from several threads",
                              .got = fmt::format("thread level {}", level),
                              .expected = "MPI_THREAD_MULTIPLE or MPI_THREAD_SERIALIZED",
                              .fix = "call MPI_Init_thread with MPI_THREAD_MULTIPLE, or leave it to Reigen"});
  }
  one_thread_at_a_time_ = level < MPI_THREAD_MULTIPLE;
  check(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
  check(MPI_Comm_size(MPI_COMM_WORLD, &size_), "MPI_Comm_size");
}

std::unique_lock<std::mutex> Library::guard() {
  return one_thread_at_a_time_ ? std::unique_lock(mutex_) : std::unique_lock<std::mutex>();
}

void Library::finalize_in_time() { some_left_under_way.store(true); }

std::string error_text(int code) {
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  if (MPI_Error_string(code, text.data(), &length) != MPI_SUCCESS) return fmt::format("error {}", code);
  return {text.data(), static_cast<std::size_t>(length)};
}

void check(int code, const char* function) {
  if (code == MPI_SUCCESS) return;
  throw BackendError(Report{.what = fmt::format("{} failed", function),
                            .got = error_text(code),
                            .expected = {},
                            .fix = "see what MPI and the other ranks printed"});
}

bool all_done(std::vector<MPI_Request>& requests) {
  const auto guard = Library::get().guard();
  int done = 0;
  check(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE), "MPI_Testall");
  if (done != 0) requests.clear();
  return done != 0;
}

bool started_by_mpi() {
  constexpr std::array kVariables = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMI_RANK", "PMI_FD", "PMIX_RANK"};
  return std::any_of(kVariables.begin(), kVariables.end(),
                     [](const char* name) { return base::get_environment(name).has_value(); });
}

}  // namespace reigen::comm::mpi
