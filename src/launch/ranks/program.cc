#include "launch/ranks/program.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "base/check.h"
#include "base/environment.h"
#include "reigen/base/error.h"

namespace reigen::launch {

namespace {

// 0 if the file can be run; else the errno that exec would give.
int exec_errno(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return errno;
  if (S_ISDIR(status.st_mode)) return EISDIR;
  if (!S_ISREG(status.st_mode) || ::access(path.c_str(), X_OK) != 0) return EACCES;
  return 0;
}

[[noreturn]] void refuse(const std::string& path, int error) {
  if (error == EISDIR) {
    throw InvalidArgument({.what = fmt::format("cannot run `{}`", path),
                           .got = "a directory",
                           .expected = "a program",
                           .fix = "name a file inside it"},
                          ExitCode::kPermission);
  }
  if (error == EACCES) {
    throw InvalidArgument({.what = fmt::format("cannot run `{}`: {}", path, base::errno_text(error)),
                           .got = "a file without permission to execute",
                           .expected = "a program",
                           .fix = fmt::format("chmod +x {}", path)},
                          ExitCode::kPermission);
  }
  throw InvalidArgument({.what = fmt::format("cannot run `{}`: {}", path, base::errno_text(error)),
                         .fix = "check the path of the program"},
                        base::exit_code_of_errno(error));
}

std::vector<std::string> split_path(const std::string& path) {
  std::vector<std::string> folders;
  std::size_t begin = 0;
  for (;;) {
    const std::size_t end = path.find(':', begin);
    const std::string folder = path.substr(begin, end == std::string::npos ? end : end - begin);
    folders.push_back(folder.empty() ? "." : folder);
    if (end == std::string::npos) return folders;
    begin = end + 1;
  }
}

}  // namespace

std::string find_program(const std::string& name) {
  if (name.empty()) throw InvalidArgument("no program given: its name is empty", ExitCode::kUsage);
  if (name.find('/') != std::string::npos) {
    if (const int error = exec_errno(name); error != 0) refuse(name, error);
    return name;
  }
  const std::string path = base::get_environment("PATH").value_or("/usr/local/bin:/usr/bin:/bin");
  std::string forbidden;
  for (const std::string& folder : split_path(path)) {
    const std::string candidate = folder + "/" + name;
    const int error = exec_errno(candidate);
    if (error == 0) return candidate;
    if (error == EACCES && forbidden.empty()) forbidden = candidate;
  }
  if (!forbidden.empty()) refuse(forbidden, EACCES);
  const bool here = exec_errno("./" + name) == 0;
  throw InvalidArgument({.what = fmt::format("program `{}` not found in PATH", name),
                         .got = "PATH=" + path,
                         .fix = here ? fmt::format("it is in the current folder: ./{}", name)
                                     : "give its path (./program), or add its folder to PATH"},
                        ExitCode::kInputMissing);
}

}  // namespace reigen::launch
