// safetensors files (github.com/huggingface/safetensors): eight bytes of header length, a JSON header, the tensors'
// bytes. Python reads what is written here with safetensors.torch.load_file, and the other way round. Writing is
// deterministic: the same tensors and metadata give the same bytes. Reading believes nothing: every size is checked
// before it is used. Thread rule: a SafetensorsFile may be read from several threads at once.
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

// All types of the format (safetensors 0.8). kC64: two F32. kF4 and kF6*: elements of 4 and 6 bits, packed; a tensor of
// them fills whole bytes.
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

unsigned bits_of(TensorType type);          // of an element
bool has_whole_bytes(TensorType type);      // false: elements are packed, and no part of a tensor can be read alone
std::size_t size_of(TensorType type);       // bytes of an element; throws InvalidArgument where they are packed
std::string_view name_of(TensorType type);  // "F32", as in the file
std::string describe(TensorType type, std::span<const std::int64_t> shape);  // "F32 [2, 3]", for messages
std::optional<TensorType> tensor_type_of(std::string_view name);
const std::string& names_of_tensor_types();  // "F64, F32, ... or F4", for messages
// Bytes of a tensor; nothing where they pass 2^63 - 1, where a size is negative, or where packed elements end inside a
// byte.
std::optional<std::uint64_t> bytes_of(TensorType type, std::span<const std::int64_t> shape);

// What to write. `bytes` is borrowed: elements in row-major order, little-endian.
struct TensorSource {
  std::string name;
  TensorType type = TensorType::kF32;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;
};

// What a file holds.
struct TensorEntry {
  std::string name;
  TensorType type = TensorType::kF32;
  std::vector<std::int64_t> shape;
  std::uint64_t offset = 0;  // in the file
  std::uint64_t bytes = 0;
};

using Metadata = std::map<std::string, std::string>;

inline constexpr std::uint64_t kMaxSafetensorsHeader = 100'000'000;  // bytes, the format's own limit

// Writes whole or not at all (atomic_file.h). Tensors lie by falling element size, then name, so that each is aligned;
// the header is padded to 8 bytes. Returns size and hash of the file. Throws InvalidArgument (a name twice or not
// UTF-8, a shape that does not fit its bytes, too long a header) and IoError.
FileHash write_safetensors(const std::filesystem::path& path, std::span<const TensorSource> tensors,
                           const Metadata& metadata = {});

// The same piece by piece, for tensors that are not in memory all at once.
//
//   SafetensorsWriter writer(path, {{.name = "a", .type = TensorType::kF32, .shape = {1000, 1000}}});
//   for (const TensorEntry& tensor : writer.tensors()) writer.write(bytes of tensor, in any number of parts);
//   writer.commit();
class SafetensorsWriter {
 public:
  // Of the entries name, type and shape count. Throws as write_safetensors().
  SafetensorsWriter(const std::filesystem::path& path, std::vector<TensorEntry> tensors, const Metadata& metadata = {},
                    Hashed hashed = Hashed::kNot);
  ~SafetensorsWriter();  // without commit() nothing is left
  SafetensorsWriter(SafetensorsWriter&&) noexcept;
  SafetensorsWriter& operator=(SafetensorsWriter&&) noexcept;

  const std::vector<TensorEntry>& tensors() const;  // in the order of their bytes
  // The next bytes. Throws IoError; InvalidArgument when there are more than the tensors have.
  void write(std::span<const std::byte> bytes);

  struct Written {
    FileHash file = {};              // the hash only with Hashed::kWhole
    std::uint64_t header_bytes = 0;  // before the first tensor
    std::uint64_t header_hash = 0;
    std::vector<std::uint64_t> hashes = {};  // of tensors(), each of its bytes
  };
  // Throws InvalidArgument when bytes are missing, and IoError. The file is on the disk when it returns.
  Written commit();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

class SafetensorsFile {
 public:
  // Reads and checks the header. Throws IoError (66 missing, 77 not readable) and DataError naming file and offset:
  // header length, JSON, types, shapes, names twice, ranges that overlap, leave holes or do not end with the file; of
  // what is another kind of file (a pointer of Git LFS, a web page, an archive) its kind, and what to do.
  explicit SafetensorsFile(const std::filesystem::path& path);
  ~SafetensorsFile();
  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;

  const std::vector<TensorEntry>& tensors() const;  // in the order of their bytes
  const Metadata& metadata() const;
  const TensorEntry* find(std::string_view name) const;  // null: not there
  const TensorEntry& at(std::string_view name) const;    // throws DataError
  const std::string& path() const;

  // into = the tensor's bytes from `first` on; `into` must end inside the tensor. Throws IoError, and DataError when
  // the file has shrunk since it was opened.
  void read(const TensorEntry& tensor, std::span<std::byte> into, std::uint64_t first = 0) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace reigen::format
