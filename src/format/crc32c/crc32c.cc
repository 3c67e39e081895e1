#include "format/crc32c/crc32c.h"

#include <array>
#include <cstring>

namespace reigen::format {
namespace {

using CrcTables = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr CrcTables make_tables() {
  constexpr std::uint32_t kPolynomial = 0x82F63B78;  // reversed
  CrcTables tables{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? (crc >> 1) ^ kPolynomial : crc >> 1;
    tables[0][i] = crc;
  }
  for (std::size_t t = 1; t < 8; ++t) {
    for (std::size_t i = 0; i < 256; ++i) tables[t][i] = (tables[t - 1][i] >> 8) ^ tables[0][tables[t - 1][i] & 0xff];
  }
  return tables;
}

constexpr CrcTables kCrcTables = make_tables();

}  // namespace

std::uint32_t crc32c_by_table(std::uint32_t crc, std::string_view data) {
  for (; data.size() >= 8; data.remove_prefix(8)) {
    std::uint64_t eight = 0;
    std::memcpy(&eight, data.data(), 8);
    eight ^= crc;
    crc = 0;
    for (std::size_t i = 0; i < 8; ++i) crc ^= kCrcTables[7 - i][(eight >> (8 * i)) & 0xff];
  }
  for (const char c : data) crc = (crc >> 8) ^ kCrcTables[0][(crc ^ static_cast<unsigned char>(c)) & 0xff];
  return crc;
}

std::uint32_t crc32c(std::string_view data) { return ~crc32c_by_machine(~0U, data); }

std::uint32_t masked_crc32c(std::string_view data) {
  const std::uint32_t crc = crc32c(data);
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8U;
}

}  // namespace reigen::format
