#include "reigen/container/writer.h"

#include <fmt/format.h>

#include "base/text.h"
#include "container/folder/walk.h"
#include "container/names.h"
#include "container/write/samples.h"
#include "format/utf8.h"
#include "reigen/base/error.h"

namespace reigen::container {
namespace {

constexpr int kMostShards = 99'999;  // five digits in the names

[[noreturn]] void refuse_option(const std::string& what, const std::string& got, const std::string& expected,
                                const std::string& fix) {
  throw InvalidArgument(Report{.what = what, .got = got, .expected = expected, .fix = fix});
}

void check_options(const std::filesystem::path& path, const WriterOptions& options) {
  const std::string_view kind = name_of(options.kind);
  const bool has_shards = options.kind == ContainerKind::kTfRecord || options.kind == ContainerKind::kTar;
  require_writable(options.fields);
  for (const std::string& name : options.classes) {
    if (format::is_utf8(name)) continue;
    refuse_option(fmt::format("the name of a class cannot be stored in '{}'", path.string()), name, "UTF-8",
                  "rename the class");
  }
  if (options.shards < 1 || options.shards > kMostShards || (options.shards > 1 && !has_shards)) {
    refuse_option(fmt::format("{} cannot be written in so many shards", kind), fmt::format("{} shards", options.shards),
                  has_shards ? fmt::format("1 to {}", kMostShards) : "one", "shards are for .tfrecord and .tar");
  }
  if (options.shards > 1 && options.count < options.shards) {
    refuse_option("too few samples for the shards", fmt::format("{} samples", options.count),
                  fmt::format("at least {}, the number of shards", options.shards), "write fewer shards");
  }
  if (options.compression == Compression::kNone) return;
  if (has_shards) {
    refuse_option(fmt::format("{} has no compressed values", kind), "zstd", "LMDB or HDF5",
                  "choose a target .lmdb or .h5, or no compression");
  }
  require_zstd();
}

}  // namespace

ContainerKind kind_of_target(const std::filesystem::path& path) {
  const auto named = path.has_filename() ? path : path.parent_path();
  const std::string ending = lower(named.extension().string());
  if (ending == ".lmdb" || ending == ".mdb") return ContainerKind::kLmdb;
  if (ending == ".h5" || ending == ".hdf5") return ContainerKind::kHdf5;
  if (ending == ".tfrecord" || ending == ".tfrecords") return ContainerKind::kTfRecord;
  if (ending == ".tar") return ContainerKind::kTar;
  refuse_option(fmt::format("the name of '{}' says no kind of container", path.string()),
                ending.empty() ? "no ending" : ending, ".lmdb, .h5, .tfrecord or .tar",
                fmt::format("name it {}.lmdb", named.stem().string()));
}

std::unique_ptr<Writer> make_writer(const std::filesystem::path& path, const WriterOptions& options) {
  check_options(path, options);
  switch (options.kind) {
    case ContainerKind::kLmdb: return make_lmdb_writer(path, options);
    case ContainerKind::kHdf5: return make_hdf5_writer(path, options);
    case ContainerKind::kTfRecord: return make_tfrecord_writer(path, options);
    case ContainerKind::kTar: return make_tar_writer(path, options);
    case ContainerKind::kFolder: break;
  }
  refuse_option(fmt::format("'{}' cannot be written as a folder", path.string()), "folder",
                "LMDB, HDF5, TFRecord or tar", "choose another kind");
}

}  // namespace reigen::container
