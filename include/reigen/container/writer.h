// Writes containers. A container is whole or absent: it is written under PATH.tmp, fsynced and renamed. A writer that
// was killed leaves PATH.tmp, which the next writer of the same path removes. The same records and options give the
// same bytes.
//
//   auto writer = make_writer("train.lmdb", {.kind = kind_of_target("train.lmdb"), .fields = fields, .classes =
//   names}); for (const Record& record : records) writer->add(record); writer->finish();
//
// Thread rule: a Writer belongs to one thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "reigen/container/container.h"

namespace reigen::container {

enum class Compression : std::uint8_t { kNone, kZstd };

struct WriterOptions {
  ContainerKind kind = ContainerKind::kLmdb;     // not kFolder
  std::vector<Field> fields = {};                // of every record
  std::vector<std::string> classes = {};         // names of the classes; may be empty
  int shards = 1;                                // files of TFRecord and tar
  std::int64_t count = -1;                       // number of records; is needed for more than one shard
  Compression compression = Compression::kNone;  // of tensors and bytes in LMDB and HDF5; pictures are compressed
  bool force = false;                            // replace what is at the path
};

class Writer {
 public:
  virtual ~Writer() = default;  // without finish(): removes what was written

  // Appends a sample: a value for each field. Throws InvalidArgument for values that do not fit the fields, NoRoom when
  // the disk is full, and IoError.
  virtual void add(const Record& record) = 0;
  // Makes the container appear under its path; it is fsynced then. Throws DataError if it has no samples.
  virtual void finish() = 0;
};

// The kind that a target's name asks for: .lmdb; .h5 or .hdf5; .tfrecord or .tfrecords; .tar. Throws InvalidArgument
// for another ending.
ContainerKind kind_of_target(const std::filesystem::path& path);

// LMDB is a folder with data.mdb, HDF5 a file. TFRecord and tar are a folder of shards NAME-00000-of-00064 and
// NAME-000000.tar, where NAME is the path's stem. Throws IoError with exit code 73 if the path exists, unless `force`
// is set, or if another process is writing it; InvalidArgument for options that the kind does not have; BackendError if
// this build lacks the library.
std::unique_ptr<Writer> make_writer(const std::filesystem::path& path, const WriterOptions& options);

}  // namespace reigen::container
