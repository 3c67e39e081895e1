// Checks that print their values. Private: no macro of ours reaches users' code.
//   REIGEN_CHECK(cond, format, ...)   the caller's fault: throws InvalidArgument
//   REIGEN_ASSERT(cond, format, ...)  our fault: throws InternalError with file and line
//   REIGEN_SYSCALL(expression)        repeats on EINTR; throws IoError with the call and errno when it gives -1;
//   returns the value
#pragma once

#include <fmt/format.h>

#include <cerrno>
#include <string>

#include "reigen/base/error.h"

namespace reigen::base {

[[noreturn]] void throw_system_error(const char* call, int error, const char* file, int line);
[[noreturn]] void throw_assertion(const char* condition, const std::string& message, const char* file, int line);
std::string errno_text(int error);  // "No space left on device (28)"
ExitCode exit_code_of_errno(int error);

}  // namespace reigen::base

#define REIGEN_CHECK(condition, ...)                                             \
  do {                                                                           \
    if (!(condition)) throw ::reigen::InvalidArgument(fmt::format(__VA_ARGS__)); \
  } while (false)

#define REIGEN_ASSERT(condition, ...)                                                                            \
  do {                                                                                                           \
    if (!(condition)) ::reigen::base::throw_assertion(#condition, fmt::format(__VA_ARGS__), __FILE__, __LINE__); \
  } while (false)

#define REIGEN_SYSCALL(expression)                                                                    \
  ([&] {                                                                                              \
    for (;;) {                                                                                        \
      const auto result_ = (expression);                                                              \
      if (result_ != -1) return result_;                                                              \
      if (errno != EINTR) ::reigen::base::throw_system_error(#expression, errno, __FILE__, __LINE__); \
    }                                                                                                 \
  }())
