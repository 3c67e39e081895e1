#include "container/hdf5/filters.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>

#include "container/meta.h"
#include "container/sample.h"

namespace reigen::container {
namespace {

std::vector<std::byte> inflated(const std::vector<std::byte>& packed, std::uint64_t size, const std::string& place) {
  // Deflate makes at most 1032 bytes of one, so a damaged size does not take memory.
  constexpr std::uint64_t kMostRatio = 1040;
  constexpr std::uint64_t kSlack = 1U << 16;
  if (size > packed.size() * kMostRatio + kSlack) {
    fail_damaged(place, fmt::format("a chunk of {} bytes from {}", size, packed.size()),
                 "a size that deflate can reach");
  }
  std::vector<std::byte> bytes(size);
  uLongf got = size;
  const int result = ::uncompress(reinterpret_cast<Bytef*>(bytes.data()), &got,
                                  reinterpret_cast<const Bytef*>(packed.data()), packed.size());
  if (result != Z_OK) fail_damaged(place, fmt::format("error {} of zlib", result), "a whole chunk");
  bytes.resize(got);
  return bytes;
}

// The filter puts the first bytes of all elements first, then the second ones. Bytes behind the last whole element
// stay.
std::vector<std::byte> unshuffled(const std::vector<std::byte>& bytes, std::size_t element) {
  if (element <= 1) return bytes;
  const std::size_t count = bytes.size() / element;
  std::vector<std::byte> result(bytes);
  for (std::size_t k = 0; k < element; ++k) {
    for (std::size_t i = 0; i < count; ++i) result[i * element + k] = bytes[k * count + i];
  }
  return result;
}

// HDF5's form of the checksum: sums of big-endian words of 16 bits.
std::uint32_t fletcher32(std::span<const std::byte> bytes) {
  std::uint32_t low = 0;
  std::uint32_t high = 0;
  std::size_t words = bytes.size() / 2;
  std::size_t at = 0;
  constexpr std::size_t kBeforeOverflow = 360;
  while (words > 0) {
    const std::size_t part = std::min(words, kBeforeOverflow);
    words -= part;
    for (std::size_t i = 0; i < part; ++i, at += 2) {
      low += std::to_integer<std::uint32_t>(bytes[at]) << 8U | std::to_integer<std::uint32_t>(bytes[at + 1]);
      high += low;
    }
    low = (low & 0xffffU) + (low >> 16U);
    high = (high & 0xffffU) + (high >> 16U);
  }
  if (bytes.size() % 2 != 0) {
    low += std::to_integer<std::uint32_t>(bytes.back()) << 8U;
    high += low;
    low = (low & 0xffffU) + (low >> 16U);
    high = (high & 0xffffU) + (high >> 16U);
  }
  low = (low & 0xffffU) + (low >> 16U);
  high = (high & 0xffffU) + (high >> 16U);
  return high << 16U | low;
}

std::vector<std::byte> without_checksum(std::vector<std::byte> bytes, const std::string& place) {
  std::uint32_t stored = 0;
  if (bytes.size() < sizeof stored) fail_damaged(place, "a chunk without its checksum", "four bytes at its end");
  std::memcpy(&stored, bytes.data() + bytes.size() - sizeof stored, sizeof stored);
  bytes.resize(bytes.size() - sizeof stored);
  const std::uint32_t sum = fletcher32(bytes);
  if (sum != stored)
    fail_damaged(place, fmt::format("the checksum {:08x} of a chunk", sum), fmt::format("{:08x}", stored));
  return bytes;
}

}  // namespace

bool is_known_filter(int filter) {
  return filter == kDeflateFilter || filter == kShuffleFilter || filter == kFletcherFilter || filter == kZstdFilter;
}

std::vector<std::byte> unfiltered(std::vector<std::byte> chunk, const std::vector<int>& filters, std::uint32_t mask,
                                  std::size_t element, std::uint64_t size, const std::string& place) {
  // A checksum that was made before packing lies in the packed bytes.
  std::uint64_t checksums = 0;
  for (std::size_t i = 0; i < filters.size(); ++i) {
    const bool is_applied = (mask >> i & 1U) == 0;
    if (filters[i] == kFletcherFilter && is_applied) checksums += sizeof(std::uint32_t);
  }
  for (std::size_t i = filters.size(); i-- > 0;) {
    if ((mask >> i & 1U) != 0) continue;
    if (filters[i] == kDeflateFilter) chunk = inflated(chunk, size + checksums, place);
    if (filters[i] == kZstdFilter) chunk = zstd_unpacked(chunk, size + checksums, place);
    if (filters[i] == kShuffleFilter) chunk = unshuffled(chunk, element);
    if (filters[i] == kFletcherFilter) {
      chunk = without_checksum(std::move(chunk), place);
      checksums -= sizeof(std::uint32_t);
    }
  }
  if (chunk.size() != size)
    fail_damaged(place, fmt::format("a chunk of {} bytes", chunk.size()), fmt::format("{} bytes", size));
  return chunk;
}

}  // namespace reigen::container
