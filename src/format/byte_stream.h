// The bytes of a file in order. A gzipped file is unpacked on the way (RFC 1952, several members allowed).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "format/input_file.h"

struct z_stream_s;

namespace reigen::format {

class ByteStream {
 public:
  explicit ByteStream(const std::filesystem::path& path);  // throws IoError
  ~ByteStream();

  // Reads the next bytes of the (unpacked) content into `into`, and returns their number, which is less than the size
  // of `into` only at the end. Throws IoError, and DataError for a gzip stream that is damaged or ends early.
  std::size_t read(std::span<std::byte> into);

  bool packed() const { return inflater_ != nullptr; }
  const InputFile& file() const { return file_; }
  std::uint64_t file_offset() const;  // position in the file itself of the next byte to be used

 private:
  bool refill();
  void next_member();
  std::size_t unpack(std::span<std::byte> into);
  [[noreturn]] void fail_damaged(int code) const;

  struct End {
    void operator()(z_stream_s* stream) const;
  };

  InputFile file_;
  std::uint64_t read_to_ = 0;      // how far the file has been read
  std::vector<std::byte> buffer_;  // packed bytes for the inflater
  std::unique_ptr<z_stream_s, End> inflater_;
  bool ended_ = false;
};

}  // namespace reigen::format
