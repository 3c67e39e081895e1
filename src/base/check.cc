#include "base/check.h"

#include <cstring>

namespace reigen::base {

std::string errno_text(int error) { return fmt::format("{} ({})", std::strerror(error), error); }

ExitCode exit_code_of_errno(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR: return ExitCode::kInputMissing;
    case EACCES:
    case EPERM:
    case EROFS: return ExitCode::kPermission;
    case ENOMEM:
    case EMFILE:
    case ENFILE:
    case EAGAIN: return ExitCode::kOsResource;
    default: return ExitCode::kIo;
  }
}

void throw_system_error(const char* call, int error, const char* file, int line) {
  const std::string text(call);
  const std::string name = text.substr(0, text.find('('));
  throw IoError(fmt::format("{} failed: {}\n  at: {}:{}", name, errno_text(error), file, line),
                exit_code_of_errno(error));
}

void throw_assertion(const char* condition, const std::string& message, const char* file, int line) {
  throw InternalError(
      fmt::format("internal error: {} does not hold: {}\n  at: {}:{}\n  fix: this is a bug of Reigen, please report it",
                  condition, message, file, line));
}

}  // namespace reigen::base
