// Checks for conditions and system calls. The error text of a failed check shows the values that the caller passes for
// `format`. This header is private, so that our macros do not reach users' code.
//   REIGEN_CHECK(cond, format, ...)   an error of the caller: throws InvalidArgument if `cond` is false
//   REIGEN_ASSERT(cond, format, ...)  a bug of Reigen: throws InternalError with file and line if `cond` is false
//   REIGEN_SYSCALL(expression)        the value of a system call. Repeats the call on EINTR. Throws IoError with the
//                                     call's name and errno if the call returns -1
#pragma once

#include <fmt/format.h>

#include <cerrno>
#include <string>

#include "reigen/base/error.h"

namespace reigen::base {

[[noreturn]] void throw_system_error(const char* call, int error, const char* file, int line);
[[noreturn]] void throw_assertion(const char* condition, const std::string& message, const char* file, int line);
std::string errno_text(int error);  // for example "No space left on device (28)"
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
