// Chooses the reader by the content of a file or a folder.
#include <fmt/format.h>

#include <optional>
#include <system_error>

#include "container/folder/class_folders.h"
#include "container/folder/walk.h"
#include "container/readers.h"
#include "container/shards/detect.h"
#include "container/shards/shard_set.h"
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

// The first file that is not empty decides; a shard may be empty.
FileForm form_of_shards(const ShardSet& shards) {
  for (const fs::path& file : shards.files) {
    FileForm form = form_of_file(file);
    if (form.kind || !form.packed_by.empty() || fs::file_size(file) > 0) return form;
  }
  return {};
}

[[noreturn]] void fail_of_packed_tar(const ShardSet& shards, const std::string& packed_by) {
  throw InvalidArgument(Report{
      .what = fmt::format("'{}' is compressed, so no sample can be read alone", shards.name),
      .got = fmt::format("a tar packed by {}", packed_by),
      .expected = "a container with access to every sample",
      .fix = fmt::format("reigen data pack {} {}.lmdb", shards.name, fs::path(shards.name).stem().stem().string())});
}

[[noreturn]] void fail_of_packed_records(const ShardSet& shards, const std::string& packed_by) {
  throw InvalidArgument(
      Report{.what = fmt::format("'{}' is compressed, and compressed TFRecords are not read", shards.name),
             .got = fmt::format("TFRecords packed by {}", packed_by),
             .expected = "TFRecords that are not compressed",
             .fix = packed_by == "zlib" ? "write them again without a compression_type"
                                        : fmt::format("unpack every file: {} -dc < FILE > OTHER; or write them again "
                                                      "without a compression_type",
                                                      packed_by)});
}

// What is inside is known by its bytes where they can be unpacked here, and otherwise by the name.
bool holds_records(const FileForm& form, const ShardSet& shards) {
  if (form.kind) return form.kind == ContainerKind::kTfRecord;
  const std::string name = lower(shards.files.front().filename().string());
  return name.find("tfrecord") != std::string::npos && name.find(".tar") == std::string::npos;
}

std::unique_ptr<Reader> open_shards(const ShardSet& shards, const OpenOptions& options) {
  const FileForm form = form_of_shards(shards);
  // The meta data know the kind of a shard that is damaged at its beginning.
  const auto kind = shards.meta ? std::optional(shards.meta->kind) : form.kind;
  if (!form.packed_by.empty()) {
    if (holds_records(form, shards)) fail_of_packed_records(shards, form.packed_by);
    if (!options.allow_sequential) fail_of_packed_tar(shards, form.packed_by);
    return open_packed_tar(shards, options);
  }
  if (kind == ContainerKind::kTfRecord) return open_tfrecord(shards, options);
  if (kind == ContainerKind::kTar) return open_tar(shards, options);
  if (shards.files.size() == 1 && kind == ContainerKind::kLmdb) return open_lmdb(shards.files[0], options);
  if (shards.files.size() == 1 && kind == ContainerKind::kHdf5) return open_hdf5(shards.files[0], options);
  fail_of_no_kind(shards.files.front());
}

// A flat folder of pictures has no classes; a file can give them.
void refuse_flat_folder(const fs::path& path) {
  std::error_code ignored;
  std::string picture;
  for (const auto& entry : fs::directory_iterator(path, ignored)) {
    if (entry.is_directory(ignored)) return;
    if (is_picture_name(entry.path())) picture = entry.path().filename().string();
  }
  if (picture.empty()) return;
  throw InvalidArgument(Report{.what = fmt::format("'{}' holds pictures without classes", path.string()),
                               .got = fmt::format("'{}' and no folders", picture),
                               .expected = "a folder of pictures for each class, or a file of labels",
                               .fix = "--labels FILE (OpenOptions::labels_file) gives a file with lines `name label`"});
}

std::unique_ptr<Reader> open_folder(const fs::path& path, const OpenOptions& options) {
  if (!options.labels_file.empty()) return open_flat_folder(path, options);
  if (is_lmdb_folder(path)) return open_lmdb(path, options);
  const ShardSet shards = shards_in_folder(path);
  if (!shards.files.empty()) return open_shards(shards, options);
  refuse_flat_folder(path);
  return open_class_folders(path, options);
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

bool is_container(const fs::path& path) {
  std::error_code ignored;
  return !fs::is_directory(path, ignored) || is_lmdb_folder(path) || !shards_in_folder(path).files.empty();
}

std::unique_ptr<Reader> open(const fs::path& path, const OpenOptions& options) {
  check_open_options(path, options);
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return open_folder(path, options);
  return open_shards(shards_of_pattern(path), options);
}

}  // namespace reigen::container
