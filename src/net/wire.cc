#include "net/wire.h"

#include <fmt/format.h>

#include <limits>

#include "base/check.h"
#include "reigen/base/error.h"

namespace reigen::net {

namespace {

void put_number(std::string& out, std::uint64_t value, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) out += static_cast<char>(static_cast<unsigned char>(value >> (8 * i)));
}

}  // namespace

void put_u8(std::string& out, std::uint8_t value) { put_number(out, value, 1); }
void put_u32(std::string& out, std::uint32_t value) { put_number(out, value, 4); }
void put_u64(std::string& out, std::uint64_t value) { put_number(out, value, 8); }

void put_bytes(std::string& out, std::string_view bytes) {
  REIGEN_ASSERT(bytes.size() <= std::numeric_limits<std::uint32_t>::max(), "string of {} bytes", bytes.size());
  put_u32(out, static_cast<std::uint32_t>(bytes.size()));
  out.append(bytes);
}

std::uint64_t WireReader::number(std::size_t size) {
  const std::string_view field = raw(size);
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < size; ++i) value |= std::uint64_t{static_cast<unsigned char>(field[i])} << (8 * i);
  return value;
}

std::uint8_t WireReader::u8() { return static_cast<std::uint8_t>(number(1)); }
std::uint32_t WireReader::u32() { return static_cast<std::uint32_t>(number(4)); }
std::uint64_t WireReader::u64() { return number(8); }

std::string_view WireReader::raw(std::size_t count) {
  if (count > data_.size())
    throw DataError(fmt::format("a message ends early: {} bytes wanted, {} left", count, data_.size()));
  const std::string_view field = data_.substr(0, count);
  data_.remove_prefix(count);
  return field;
}

std::string_view WireReader::bytes() { return raw(u32()); }

void WireReader::expect_end() const {
  if (!at_end()) throw DataError(fmt::format("a message has {} bytes too many", data_.size()));
}

}  // namespace reigen::net
