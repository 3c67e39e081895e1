#include "format/input_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/check.h"
#include "reigen/base/bytes.h"
#include "reigen/base/error.h"

namespace reigen::format {
namespace {

[[noreturn]] void fail(const std::string& path, const char* call, int error) {
  throw IoError(Report{.what = fmt::format("cannot read '{}'", path),
                       .got = fmt::format("{} from {}", base::errno_text(error), call),
                       .expected = "a readable file",
                       .fix = error == EACCES ? "check the permissions of the file and its folders" : "check the path"},
                base::exit_code_of_errno(error));
}

}  // namespace

InputFile::InputFile(const std::filesystem::path& path) : path_(path.string()) {
  int fd = -1;
  do {
    // O_NONBLOCK: opening a FIFO must not wait for a writer; it has no effect on regular files.
    fd = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) fail(path_, "open", errno);
  fd_ = UniqueFd(fd);
  struct stat info {};
  if (::fstat(fd, &info) != 0) fail(path_, "fstat", errno);
  if (!S_ISREG(info.st_mode)) {
    throw IoError(Report{.what = fmt::format("cannot read '{}'", path_),
                         .got = S_ISDIR(info.st_mode) ? "a folder" : "a device, pipe or socket",
                         .expected = "a file",
                         .fix = "check the path"},
                  ExitCode::kInputMissing);
  }
  size_ = static_cast<std::uint64_t>(info.st_size);
}

std::size_t InputFile::read_at(std::uint64_t offset, std::span<std::byte> into) const {
  std::size_t done = 0;
  while (done < into.size()) {
    const auto got = ::pread(fd_.get(), into.data() + done, into.size() - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(path_, "read", errno);
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  return done;
}

std::string read_text(const std::filesystem::path& path, const char* what, std::uint64_t largest) {
  const bool has_limit = largest != std::numeric_limits<std::uint64_t>::max();
  const std::string limit = has_limit ? " of at most " + format_bytes(largest) : "";
  const auto refuse = [&](const std::string& got) {
    throw DataError(Report{.what = fmt::format("'{}' is no {}", path.string(), what),
                           .got = got,
                           .expected = "a regular file" + limit,
                           .fix = "check the path"});
  };
  std::error_code none;
  if (std::filesystem::exists(path, none) && !std::filesystem::is_regular_file(path, none))
    refuse(std::filesystem::is_directory(path, none) ? "a folder" : "a device, pipe or socket");
  const InputFile file(path);
  if (file.size() > largest) refuse(format_bytes(file.size()));
  std::string text(file.size(), '\0');
  text.resize(file.read_at(0, std::as_writable_bytes(std::span(text))));
  return text;
}

}  // namespace reigen::format
