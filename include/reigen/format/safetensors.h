// safetensors files (github.com/huggingface/safetensors): eight bytes of header length, a JSON header, the tensors'
// bytes. Python's safetensors.torch.load_file reads the files written here, and this reader reads the files that Python
// wrote. Writing is deterministic: the same tensors and metadata give the same bytes. The reader trusts nothing in the
// file: it checks every size before it uses it. Thread rule: several threads may read from a SafetensorsFile at once.
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

#include "reigen/format/hash.h"

namespace reigen::format {

// All types of the format (safetensors 0.8). kC64 is a complex number of two F32. Elements of kF4 have 4 bits and
// elements of kF6* have 6 bits, packed without gaps; a tensor of such a type must fill whole bytes.
enum class TensorType : std::uint8_t {
  kF64,
  kF32,
  kF16,
  kBF16,
  kI64,
  kI32,
  kI16,
  kI8,
  kU8,
  kBool,
  kU64,
  kU32,
  kU16,
  kC64,
  kF8E4M3,
  kF8E5M2,
  kF8E4M3Fnuz,
  kF8E5M2Fnuz,
  kF8E8M0,
  kF6E2M3,
  kF6E3M2,
  kF4
};

unsigned bits_of(TensorType type);          // bits of an element
bool has_whole_bytes(TensorType type);      // false for packed types, of which only whole tensors can be read
std::size_t size_of(TensorType type);       // bytes of an element; throws InvalidArgument for packed types
std::string_view name_of(TensorType type);  // "F32", as in the file
std::string describe(TensorType type, std::span<const std::int64_t> shape);  // "F32 [2, 3]", for messages
std::optional<TensorType> tensor_type_of(std::string_view name);
const std::string& names_of_tensor_types();  // "F64, F32, ... or F4", for messages
// Returns the number of bytes of a tensor. Returns nullopt if this number exceeds 2^63 - 1, if a size is negative, or
// if packed elements end inside a byte.
std::optional<std::uint64_t> bytes_of(TensorType type, std::span<const std::int64_t> shape);

// A tensor to write. `bytes` refers to memory of the caller: the elements in row-major order, little-endian.
struct TensorSource {
  std::string name;
  TensorType type = TensorType::kF32;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;
};

// A tensor of a file.
struct TensorEntry {
  std::string name;
  TensorType type = TensorType::kF32;
  std::vector<std::int64_t> shape;
  std::uint64_t offset = 0;  // position of the first byte in the file
  std::uint64_t bytes = 0;
};

using Metadata = std::map<std::string, std::string>;

inline constexpr std::uint64_t kMaxSafetensorsHeader = 100'000'000;  // bytes, the format's own limit

// Writes the whole file or nothing (atomic_file.h). Tensors are sorted by decreasing element size, then by name, so
// that each tensor is aligned; the header is padded to 8 bytes. Returns size and hash of the file. Throws
// InvalidArgument for two tensors with one name, a name that is not UTF-8, a shape that does not fit the number of
// bytes, and a header that is too long. Throws IoError when writing fails.
FileHash write_safetensors(const std::filesystem::path& path, std::span<const TensorSource> tensors,
                           const Metadata& metadata = {});

// The order in which the bytes of these tensors come in a file, with their sizes in bytes.
std::vector<TensorEntry> in_file_order(std::vector<TensorEntry> tensors);

// Writes the same file as write_safetensors() in parts, for tensors that are not in memory all at once.
//
//   SafetensorsWriter writer(path, {{.name = "a", .type = TensorType::kF32, .shape = {1000, 1000}}});
//   for (const TensorEntry& tensor : writer.tensors()) writer.write(bytes of tensor, in any number of parts);
//   writer.commit();
class SafetensorsWriter {
 public:
  // Only name, type and shape of the entries are used. With Hashed::kWhole, commit() also returns the hash of the whole
  // file. Throws as write_safetensors() does.
  SafetensorsWriter(const std::filesystem::path& path, std::vector<TensorEntry> tensors, const Metadata& metadata = {},
                    Hashed hashed = Hashed::kNot);
  ~SafetensorsWriter();  // leaves no file if commit() was not called
  SafetensorsWriter(SafetensorsWriter&&) noexcept;
  SafetensorsWriter& operator=(SafetensorsWriter&&) noexcept;

  const std::vector<TensorEntry>& tensors() const;  // in the order of their bytes in the file
  // Writes the next bytes of the tensors. Throws IoError when writing fails, and InvalidArgument when more bytes are
  // given than the tensors have.
  void write(std::span<const std::byte> bytes);

  struct Written {
    FileHash file = {};                      // file.hash is set only with Hashed::kWhole
    std::uint64_t header_bytes = 0;          // bytes before the first tensor
    std::uint64_t header_hash = 0;           // hash of the bytes before the first tensor
    std::vector<std::uint64_t> hashes = {};  // the hash of each tensor's bytes, in the order of tensors()
  };
  // Completes the file, which is fsynced when commit() returns. Throws InvalidArgument when bytes are missing, and
  // IoError when writing fails.
  Written commit();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

class SafetensorsFile {
 public:
  // Reads and checks the header. Throws IoError with exit code 66 for a missing file, and with exit code 77 for a file
  // that is not readable. Throws DataError naming file and offset for a fault in the header's length, its JSON, a type
  // or a shape, for two tensors of one name, and for tensors whose bytes overlap, leave holes or do not end with the
  // file. For another kind of file (a pointer of Git LFS, a web page, an archive) the DataError names the kind and what
  // to do.
  explicit SafetensorsFile(const std::filesystem::path& path);
  ~SafetensorsFile();
  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;

  const std::vector<TensorEntry>& tensors() const;  // in the order of their bytes in the file
  const Metadata& metadata() const;
  const TensorEntry* find(std::string_view name) const;  // null if no tensor has this name
  const TensorEntry& at(std::string_view name) const;    // throws DataError
  const std::string& path() const;

  // Fills `into` with the tensor's bytes, beginning with the tensor's byte number `first`. All bytes that are read must
  // lie inside the tensor. Throws IoError when reading fails, and DataError when the file has shrunk since it was
  // opened.
  void read(const TensorEntry& tensor, std::span<std::byte> into, std::uint64_t first = 0) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace reigen::format
