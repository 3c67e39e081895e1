#include "reigen/runtime/init.h"

#include <malloc.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <string>

#include "base/check.h"
#include "base/environment.h"
#include "base/log.h"
#include "comm/flight_log.h"
#include "reigen/base/bytes.h"
#include "reigen/launch/environment.h"

namespace reigen {

namespace {

constexpr auto kJoinTimeout = std::chrono::seconds(60);

std::chrono::milliseconds timeout_of(const InitOptions& options) {
  if (options.timeout.count() > 0) return options.timeout;
  const auto text = base::environment::timeout();
  if (!text) return std::chrono::minutes(10);
  double value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc{} || end != text->data() + text->size() || !(value > 0) || value > 1e9) {
    throw InvalidArgument(Report{.what = "REIGEN_TIMEOUT is not a time",
                                 .got = "'" + *text + "'",
                                 .expected = "seconds, more than 0",
                                 .fix = "export REIGEN_TIMEOUT=600"});
  }
  return std::chrono::milliseconds(static_cast<std::int64_t>(value * 1000));
}

// Of a launcher of ours; -1: none. Whether it is one is the recorder's to see.
int inherited_record() {
  const auto text = base::environment::flight();
  int descriptor = -1;
  if (text) std::from_chars(text->data(), text->data() + text->size(), descriptor);
  return descriptor;
}

void keep_freed_memory() {
  // Blocks up to 32 MiB (the most glibc allows) come from the heap and stay in it; larger ones are mapped and returned
  // as ever.
  ::mallopt(M_MMAP_THRESHOLD, static_cast<int>(32 * kMiB));
  ::mallopt(M_TRIM_THRESHOLD, static_cast<int>(2 * kGiB - 1));
  ::mallopt(M_TOP_PAD, static_cast<int>(64 * kMiB));
}

}  // namespace

namespace {

std::terminate_handler before = nullptr;

// An error that nobody catches ends the program with its own code, as an error that a program of ours catches does.
[[noreturn]] void end_with_code_of_error() {
  try {
    if (const std::exception_ptr error = std::current_exception()) std::rethrow_exception(error);
  } catch (const Error& error) {
    // No lock is waited for: a thread that reads a terminal has one, and this process must end.
    const std::string text = std::string("error: ") + error.what() + "\n";
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), text.size());
    if (::ftrylockfile(stdout) == 0) std::fflush(stdout);
    std::_Exit(static_cast<int>(error.exit_code()));
  } catch (...) {  // not ours
  }
  if (before != nullptr) before();
  std::abort();
}

}  // namespace

Communicator init(const InitOptions& options) {
  static std::once_flag once;
  std::call_once(once, [] { before = std::set_terminate(&end_with_code_of_error); });
  // Behind a pipe a program's lines would wait until it ends; a rank that is killed would take them along.
  if (base::environment::store() && ::isatty(STDOUT_FILENO) == 0) std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  if (options.keep_memory && base::environment::keep_memory().value_or("1") != "0") keep_freed_memory();
  const launch::Environment environment = launch::detect_environment();
  comm::GroupOptions group{
      .rank = environment.rank, .size = environment.world_size, .name = options.name, .backend = options.backend};
  group.algorithms = options.algorithms;
  group.segments = options.segments;
  group.network = options.network;
  group.machine_id =
      options.machine_id.empty() ? base::environment::comm_machine_id().value_or("") : options.machine_id;
  group.timeout = timeout_of(options);
  group.join_timeout = kJoinTimeout;
  group.recorder = comm::open_recorder(environment.rank, environment.world_size, environment.job, inherited_record());
  group.store = launch::join_job(environment, Deadline::after(kJoinTimeout));  // alone: one of this process
  Communicator world(group);
  base::log_info("rank {} of {} by {}, backend {}", world.rank(), world.size(), environment.source, world.backend());
  return world;
}

}  // namespace reigen
