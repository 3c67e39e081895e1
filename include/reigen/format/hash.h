// The hash of the contents of files and tensors: XXH64 (github.com/Cyan4973/xxHash, doc/xxhash_spec.md), about 10 GB/s
// on one core. It detects damage and differences; it does not protect against forged files. Thread rule: a Hash64
// belongs to one thread; the functions may be called from any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace reigen::format {

// Hashes a stream of bytes. The value does not depend on how the bytes are divided into update() calls.
class Hash64 {
 public:
  explicit Hash64(std::uint64_t seed = 0);

  void update(std::span<const std::byte> bytes);
  void update(const void* data, std::size_t size) { update({static_cast<const std::byte*>(data), size}); }

  // The hash of all bytes so far; more bytes may be added later.
  std::uint64_t value() const;

 private:
  std::array<std::uint64_t, 4> lanes_;
  std::array<std::byte, 32> tail_;  // the first total_ % 32 bytes are in use
  std::uint64_t seed_;
  std::uint64_t total_ = 0;
};

std::uint64_t hash64(std::span<const std::byte> bytes, std::uint64_t seed = 0);
std::uint64_t hash64(const void* data, std::size_t size, std::uint64_t seed = 0);

// Whether a file's whole content is hashed while it is written. kNot is for callers that themselves hash the parts of
// the file.
enum class Hashed { kWhole, kNot };

struct FileHash {
  std::uint64_t bytes = 0;
  std::uint64_t hash = 0;
};
FileHash hash_file(const std::filesystem::path& path);  // throws IoError

std::string hash_text(std::uint64_t hash);  // 16 hexadecimal digits, as xxhsum prints it

}  // namespace reigen::format
