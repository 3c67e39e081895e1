// IDX files, the original form of MNIST (http://yann.lecun.com/exdb/mnist). A file may be plain or gzipped; its content
// decides which, not its name. The layout of a file: two zero bytes, a byte for the type, a byte for the number D of
// dimensions, D big-endian 32-bit sizes, and the elements, big-endian. Thread rule: the functions have no shared state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "reigen/base/bytes.h"

namespace reigen::format {

enum class IdxType : std::uint8_t { kU8 = 0x08, kI8 = 0x09, kI16 = 0x0B, kI32 = 0x0C, kF32 = 0x0D, kF64 = 0x0E };

std::size_t size_of(IdxType type);

struct IdxArray {
  IdxType type = IdxType::kU8;
  std::vector<std::int64_t> dims;  // the sizes of the D dimensions
  std::unique_ptr<std::byte[]> storage;
  std::size_t size = 0;  // bytes: product of dims times size_of(type)

  std::span<const std::byte> bytes() const { return {storage.get(), size}; }  // elements in this machine's byte order
};

struct IdxOptions {
  std::size_t max_bytes = 8 * kGiB;  // a file that declares a larger array is refused
};

// Reads the whole array. The declared size is checked against the file's size before memory is allocated, and
// decompression stops at the declared size. Throws IoError with exit code 66 for a missing file and for a folder, and
// with exit code 77 for a file that is not readable. Throws DataError, naming file and offset, for a wrong magic
// number, an unknown type, fewer or more elements than declared, and a truncated or damaged gzip stream (its CRC is
// checked).
IdxArray read_idx(const std::filesystem::path& path, const IdxOptions& options = {});

}  // namespace reigen::format
