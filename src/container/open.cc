// Chooses the reader by the content of a file or a folder.
#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "container/folder/class_folders.h"
#include "container/readers.h"
#include "container/shards/detect.h"
#include "reigen/base/error.h"

namespace reigen::container {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail_of_no_kind(const fs::path& path) {
  throw DataError(
      Report{.what = fmt::format("'{}' is no container", path.string()),
             .got = fmt::format("a file of {} bytes that begins like no known kind", fs::file_size(path)),
             .expected = "LMDB, HDF5, TFRecord, tar, or a folder of pictures",
             .fix = "check the path; a container that was cut or damaged at its beginning must be restored"});
}

std::unique_ptr<Reader> open_folder(const fs::path& path, const OpenOptions& options) {
  std::error_code ignored;
  if (!options.labels_file.empty()) return open_flat_folder(path, options);
  if (fs::exists(path / "data.mdb", ignored)) return open_lmdb(path, options);
  return open_class_folders(path, options);
}

std::unique_ptr<Reader> open_file(const fs::path& path, const OpenOptions& options) {
  const FileForm form = form_of_file(path);
  if (form.kind == ContainerKind::kLmdb) return open_lmdb(path, options);
  fail_of_no_kind(path);
}

void check_open_options(const fs::path& path, const OpenOptions& options) {
  std::error_code ignored;
  if (options.labels_file.empty() || fs::is_directory(path, ignored)) return;
  throw InvalidArgument(Report{.what = fmt::format("'{}' takes no file of labels", path.string()),
                               .got = fmt::format("--labels {}", options.labels_file.string()),
                               .expected = "a flat folder of pictures",
                               .fix = "leave --labels out"});
}

}  // namespace

std::unique_ptr<Reader> open(const fs::path& path, const OpenOptions& options) {
  check_open_options(path, options);
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return open_folder(path, options);
  return open_file(path, options);
}

}  // namespace reigen::container
