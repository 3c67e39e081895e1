#include "container/shards/detect.h"

#include <zlib.h>

#include <array>
#include <cstring>
#include <string_view>
#include <vector>

#include "container/sample.h"
#include "format/crc32c/crc32c.h"
#include "format/input_file.h"

namespace reigen::container {
namespace {

constexpr std::size_t kTarBlock = 512;
constexpr std::size_t kChecksumAt = 148;
constexpr std::size_t kChecksumSize = 8;

struct Magic {
  std::string_view bytes;
  std::string_view name;
};
constexpr Magic kPackers[] = {{"\x1f\x8b", "gzip"},
                              {"\x28\xb5\x2f\xfd", "zstd"},
                              {std::string_view("\xfd"
                                                "7zXZ\0",
                                                6),
                               "xz"},
                              {"BZh", "bzip2"}};
constexpr std::string_view kHdf5Signature("\x89HDF\r\n\x1a\n", 8);
constexpr std::string_view kLmdbMagicBytes("\xde\xc0\xef\xbe", 4);

// HDF5's signature is at 0, 512, 1024, 2048, ...: other data may lie before it.
bool is_hdf5(const format::InputFile& file) {
  constexpr std::uint64_t kFirst = 512;
  constexpr std::uint64_t kLast = std::uint64_t{1} << 20;
  for (std::uint64_t at = 0; at <= kLast && at < file.size(); at = at == 0 ? kFirst : 2 * at) {
    std::array<std::byte, 8> bytes{};
    if (file.read_at(at, bytes) == bytes.size() && text_of(bytes) == kHdf5Signature) return true;
  }
  return false;
}

// The kind that the first bytes show of a container that is read in one piece.
std::optional<ContainerKind> kind_of_stream(std::span<const std::byte> begin) {
  if (is_tar_header(begin)) return ContainerKind::kTar;
  constexpr std::size_t kLengthBytes = 8;
  std::uint32_t checksum = 0;
  if (begin.size() < kLengthBytes + sizeof checksum) return std::nullopt;
  std::memcpy(&checksum, begin.data() + kLengthBytes, sizeof checksum);
  if (checksum != format::masked_crc32c(text_of(begin.first(kLengthBytes)))) return std::nullopt;
  return ContainerKind::kTfRecord;
}

// The kind of what gzip or zlib has packed, by its first bytes. Both are ways in which TensorFlow compresses TFRecords.
std::optional<ContainerKind> kind_inside(const format::InputFile& file) {
  constexpr std::size_t kPackedBytes = 65536;  // hold the first block, unless a header of gzip has a huge comment
  constexpr int kGzipOrZlib = 32 + MAX_WBITS;
  std::vector<std::byte> packed(kPackedBytes);
  packed.resize(file.read_at(0, packed));
  std::array<std::byte, kTarBlock> begin{};
  z_stream stream{};
  stream.next_in = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_in = static_cast<uInt>(packed.size());
  stream.next_out = reinterpret_cast<Bytef*>(begin.data());
  stream.avail_out = static_cast<uInt>(begin.size());
  if (::inflateInit2(&stream, kGzipOrZlib) != Z_OK) return std::nullopt;
  ::inflate(&stream, Z_SYNC_FLUSH);  // what comes out counts; damage behind it is not looked for here
  const std::size_t got = begin.size() - stream.avail_out;
  ::inflateEnd(&stream);
  return kind_of_stream(std::span(begin).first(got));
}

}  // namespace

bool is_tar_header(std::span<const std::byte> block) {
  if (block.size() < kTarBlock) return false;
  std::uint64_t sum = 0;
  std::uint64_t stored = 0;
  bool has_digits = false;
  for (std::size_t i = 0; i < kTarBlock; ++i) {
    const auto byte = std::to_integer<unsigned char>(block[i]);
    const bool is_checksum = i >= kChecksumAt && i < kChecksumAt + kChecksumSize;
    sum += is_checksum ? ' ' : byte;
    if (is_checksum && byte >= '0' && byte <= '7') {
      stored = stored * 8 + (byte - '0');
      has_digits = true;
    }
  }
  return has_digits && stored == sum;
}

FileForm form_of_file(const std::filesystem::path& path) {
  const format::InputFile file(path);
  std::array<std::byte, kTarBlock> buffer{};
  const std::span<const std::byte> begin(buffer.data(), file.read_at(0, buffer));
  const std::string_view text = text_of(begin);
  for (const Magic& packer : kPackers) {
    if (!text.starts_with(packer.bytes)) continue;
    return {.kind = packer.name == "gzip" ? kind_inside(file) : std::nullopt, .packed_by = std::string(packer.name)};
  }
  constexpr std::size_t kMagicOfLmdbAt = 16;
  if (text.size() > kMagicOfLmdbAt && text.substr(kMagicOfLmdbAt).starts_with(kLmdbMagicBytes)) {
    return {.kind = ContainerKind::kLmdb};
  }
  if (is_hdf5(file)) return {.kind = ContainerKind::kHdf5};
  const auto kind = kind_of_stream(begin);
  // Two bytes are too few to know zlib by, so what is inside must be of a kind.
  constexpr std::string_view kZlib = "\x78";
  if (kind || !text.starts_with(kZlib)) return {.kind = kind};
  const auto inside = kind_inside(file);
  return {.kind = inside, .packed_by = inside ? "zlib" : ""};
}

}  // namespace reigen::container
