#include "reigen/runtime/init.h"

#include <malloc.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <string>

#include "base/environment.h"
#include "base/log.h"
#include "base/text.h"
#include "comm/backends.h"
#include "comm/flight_log.h"
#include "reigen/base/bytes.h"
#include "reigen/base/error.h"
#include "reigen/launch/environment.h"
#include "runtime/group_options.h"

namespace reigen {

namespace {

// The descriptor of the memory for the flight record that Reigen's launcher passes on; -1 if there is none. The
// recorder checks that the descriptor is such memory.
int inherited_record() { return base::parse<int>(base::environment::flight().value_or("")).value_or(-1); }

void keep_freed_memory() {
  // Blocks up to 32 MiB (the most that glibc allows) come from malloc's heap, and remain in this heap when they are
  // freed. Larger blocks are still mapped and returned to the kernel.
  ::mallopt(M_MMAP_THRESHOLD, static_cast<int>(32 * kMiB));
  ::mallopt(M_TRIM_THRESHOLD, static_cast<int>(2 * kGiB - 1));
  ::mallopt(M_TOP_PAD, static_cast<int>(64 * kMiB));
}

}  // namespace

namespace {

std::terminate_handler before = nullptr;

// The terminate handler. An Error that the program does not catch ends the program with the error's exit code. Reigen's
// own programs end with the same exit codes.
[[noreturn]] void end_with_code_of_error() {
  try {
    if (const std::exception_ptr error = std::current_exception()) std::rethrow_exception(error);
  } catch (const Error& error) {
    // This code waits for no lock of the standard streams, because a thread that reads a terminal may hold such a lock,
    // and this process must end.
    const std::string text = std::string("error: ") + error.what() + "\n";
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), text.size());
    if (::ftrylockfile(stdout) == 0) std::fflush(stdout);
    std::_Exit(static_cast<int>(error.exit_code()));
  } catch (...) {  // not an Error of Reigen's
  }
  if (before != nullptr) before();
  std::abort();
}

}  // namespace

Communicator init(const InitOptions& options) {
  static std::once_flag once;
  std::call_once(once, [] { before = std::set_terminate(&end_with_code_of_error); });
  // If stdout is a pipe, the C library keeps the lines of a program in a buffer until the program ends, and a rank that
  // is killed loses them. So stdout is buffered by lines.
  if (base::environment::store() && ::isatty(STDOUT_FILENO) == 0) std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  if (options.keep_memory && base::environment::keep_memory().value_or("1") != "0") keep_freed_memory();
  const launch::Environment environment = launch::detect_environment();
  if (environment.rank == 0 && !base::environment::store()) base::check_log_variable();  // else the launcher checked it
  if (environment.rank == 0) warn_of_unknown_variables();
  comm::GroupOptions group = group_options(options);
  group.rank = environment.rank;
  group.size = environment.world_size;
  group = comm::settled(std::move(group));
  if (environment.knows_local_rank) group.local_rank = environment.local_rank;
  group.recorder = comm::open_recorder(environment.rank, environment.world_size, environment.job, inherited_record());
  // If the program runs alone, the store is in the program's own memory.
  group.store = launch::join_job(environment, Deadline::after(group.join_timeout), group.heartbeat_timeout);
  Communicator world(group);
  base::log_info("rank {} of {} by {}, backend {}", world.rank(), world.size(), environment.source, world.backend());
  return world;
}

}  // namespace reigen
