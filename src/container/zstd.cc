// Values compressed with zstd (RFC 8878).
#include <fmt/format.h>
#include <zstd.h>

#include "container/libraries.h"
#include "container/meta.h"
#include "container/sample.h"
#include "reigen/base/error.h"

namespace reigen::container {

void require_zstd() {}
std::string_view zstd_version() { return ZSTD_versionString(); }

std::vector<std::byte> zstd_packed(std::span<const std::byte> bytes) {
  std::vector<std::byte> packed(ZSTD_compressBound(bytes.size()));
  const std::size_t size = ZSTD_compress(packed.data(), packed.size(), bytes.data(), bytes.size(), ZSTD_CLEVEL_DEFAULT);
  if (ZSTD_isError(size) != 0) throw InternalError(fmt::format("ZSTD_compress: {}", ZSTD_getErrorName(size)));
  packed.resize(size);
  return packed;
}

std::vector<std::byte> zstd_unpacked(std::span<const std::byte> bytes, std::uint64_t most, const std::string& place) {
  const unsigned long long size = ZSTD_getFrameContentSize(bytes.data(), bytes.size());
  // A frame holds at most about 2^17 bytes for every 3 of its own: blocks of one repeated byte.
  constexpr std::uint64_t kMostRatio = 1U << 16;
  if (size == ZSTD_CONTENTSIZE_ERROR || size == ZSTD_CONTENTSIZE_UNKNOWN || size > most ||
      size / kMostRatio > bytes.size()) {
    fail_damaged(place, "no frame of zstd with a size that is possible", fmt::format("at most {} bytes", most));
  }
  std::vector<std::byte> unpacked(size);
  const std::size_t got = ZSTD_decompress(unpacked.data(), unpacked.size(), bytes.data(), bytes.size());
  if (ZSTD_isError(got) != 0) fail_damaged(place, fmt::format("zstd: {}", ZSTD_getErrorName(got)), "a whole frame");
  unpacked.resize(got);
  return unpacked;
}

}  // namespace reigen::container
