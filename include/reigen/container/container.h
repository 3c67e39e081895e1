// Datasets in containers: folders of pictures, LMDB, HDF5, TFRecord and tar (WebDataset). docs/containers.md describes
// the formats and how files of other programs are read.
//
//   auto reader = container::open("train.lmdb");
//   container::Record record = reader->read(7);
//   record.at(0).bytes, record.at(1).label()      // in the order of reader->fields()
//
// The usual two fields are `input` (the picture or the tensor) and `target` (the class). Pictures stay encoded here.
// Thread rule: a Reader may be used by many threads at once; a Record is a value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reigen/container/split.h"
#include "reigen/format/safetensors.h"

namespace reigen::container {

enum class FieldKind : std::uint8_t {
  kPicture,  // the bytes of a JPEG or PNG file
  kLabel,    // the number of a class
  kTensor,   // elements in row-major order, little-endian
  kBytes     // any bytes
};
std::string_view name_of(FieldKind kind);  // "picture", "label", "tensor", "bytes"
std::optional<FieldKind> field_kind_of(std::string_view name);

// A part of every sample. `type` and `shape` are those of a kTensor; a first size of -1 differs between samples.
struct Field {
  std::string name;
  FieldKind kind = FieldKind::kBytes;
  format::TensorType type = format::TensorType::kU8;
  std::vector<std::int64_t> shape = {};

  bool operator==(const Field&) const = default;
};
std::string describe(const Field& field);  // "input (picture)", "mask (tensor U8 [2, 3])", for messages

// The value of a field in one sample. The bytes of a label are its eight bytes as int64, little-endian.
struct Value {
  std::span<const std::byte> bytes = {};

  std::int64_t label() const;  // throws InvalidArgument unless there are eight bytes
};

// The shape of a value of a kTensor, with the size that differs between samples. Throws DataError if the bytes do not
// fit the field; `where` is named in the error.
std::vector<std::int64_t> shape_of(const Field& field, const Value& value, const std::string& where);

// The values of one sample, in the order of Reader::fields(). Its bytes live as long as a copy of the Record. They are
// read-only memory of the container where it is mapped, and memory of their own otherwise. They have any alignment.
class Record {
 public:
  Record() = default;
  Record(std::vector<Value> values, std::shared_ptr<const void> keeps)
      : values_(std::move(values)), keeps_(std::move(keeps)) {}

  const Value& at(std::size_t field) const { return values_.at(field); }
  const std::vector<Value>& values() const { return values_; }
  const std::shared_ptr<const void>& keeps() const { return keeps_; }
  std::uint64_t bytes() const;  // of all values

 private:
  std::vector<Value> values_;
  std::shared_ptr<const void> keeps_;
};

// XXH64 over the number of bytes (8 bytes, little-endian) and the bytes of each value. The same sample has the same
// hash in every container.
std::uint64_t hash_of(const Record& record);

enum class ContainerKind : std::uint8_t { kFolder, kLmdb, kHdf5, kTfRecord, kTar };
std::string_view name_of(ContainerKind kind);  // "folder", "LMDB", "HDF5", "TFRecord", "tar"
std::optional<ContainerKind> container_kind_of(std::string_view name);

class Reader {
 public:
  virtual ~Reader() = default;

  virtual ContainerKind kind() const = 0;
  virtual std::string name() const = 0;  // the path, for messages
  virtual std::int64_t size() const = 0;
  virtual const std::vector<Field>& fields() const = 0;
  virtual const std::vector<std::string>& classes() const = 0;  // names of the classes; may be empty

  // The sample of this index, 0..size()-1. Cost: one read from the disk where the container is not mapped. Throws
  // DataError, which names container, sample and offset, for a sample that is damaged, whose shape or type differs from
  // the first sample's, or whose label has no class. Throws IoError when reading fails.
  virtual Record read(std::int64_t index) const = 0;
  // Where a sample is, for messages: "train-00003-of-00064, offset 1234". Throws nothing for a damaged sample.
  virtual std::string where(std::int64_t index) const = 0;

  // The hash_of() every sample that was stored when the container was written by Reigen; empty for other containers.
  virtual std::span<const std::uint64_t> hashes() const { return {}; }
  // The names of everything that a field can be taken from (OpenOptions::fields), for messages and `inspect`.
  virtual std::vector<std::string> stored_names() const;
  // True if samples can be read only in the order 0, 1, 2, ..., by one thread at a time (compressed tars).
  virtual bool is_sequential() const { return false; }
  // The bytes of the files of the container.
  virtual std::uint64_t stored_bytes() const = 0;
};

struct OpenOptions {
  // Name of the field -> name in the file: {{"input", "/x/img"}, {"target", "/x/label"}}. Empty: the usual names, or
  // all fields that the container has. Then there are exactly these fields, `input` and `target` first.
  std::map<std::string, std::string> fields = {};
  // Without `fields`: leaves fields of kBytes out, but for `input` and `target`, and unless there are no others. Their
  // lengths differ, so a batch for training has no place for them.
  bool without_bytes = false;
  // Is subtracted from every stored label. ImageNet's TFRecords count from 1.
  std::int64_t label_offset = 0;
  // Of a flat folder of pictures: a file with lines `name label`.
  std::filesystem::path labels_file = {};
  // Of a folder of class folders with train/ and test/: which of them. Without, such a folder is an error.
  std::optional<Split> split = {};
  // Reads compressed tars, in order only (Reader::is_sequential). Without, they are an InvalidArgument.
  bool allow_sequential = false;
  // Use a stored index (PATH.idx) of TFRecord and tar. Without, one scan finds the samples. verify() scans.
  bool use_index = true;
};

// Opens a container of any kind, which is known by its content. `path` is a file, a folder, or a pattern of files:
// "train-{000000..000063}.tar", "train-*-of-00064". Throws IoError with exit code 66 for a missing file, and for a
// missing shard, which it names; DataError for a file of no known kind, a damaged one, or one without samples;
// InvalidArgument for a field that the container does not have, with those that are there, for a flat folder without
// labels, and for compressed TFRecords; BackendError if this build lacks the library, with the package to install.
std::unique_ptr<Reader> open(const std::filesystem::path& path, const OpenOptions& options = {});

// Whether open() reads files of a container at this path, and not pictures in folders: true for a file, for a pattern
// of files, and for a folder with an LMDB or with shards. Reads the first bytes of files. Throws as open() does for a
// folder that can be either, and for shards that are missing.
bool is_container(const std::filesystem::path& path);

// A library that Reigen may be built without.
struct Library {
  std::string_view name;     // "LMDB"
  std::string_view version;  // empty if it is not built in
};
std::vector<Library> libraries();  // LMDB, HDF5, libarchive, zstd

}  // namespace reigen::container
