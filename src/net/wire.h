// Numbers and byte strings inside a message. Numbers are little-endian; a string has a u32 length before it.
// A reader checks every length against the bytes that are left, and throws DataError instead of reading beyond the end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace reigen::net {

void put_u8(std::string& out, std::uint8_t value);
void put_u32(std::string& out, std::uint32_t value);
void put_u64(std::string& out, std::uint64_t value);
void put_bytes(std::string& out, std::string_view bytes);

class WireReader {
 public:
  explicit WireReader(std::string_view data) : data_(data) {}  // a view: the data must outlive the reader

  std::uint8_t u8();
  std::uint32_t u32();
  std::uint64_t u64();
  std::string_view raw(std::size_t count);
  std::string_view bytes();

  bool at_end() const { return data_.empty(); }
  void expect_end() const;  // throws DataError when bytes are left

 private:
  std::uint64_t number(std::size_t size);

  std::string_view data_;
};

}  // namespace reigen::net
