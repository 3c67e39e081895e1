#include "reigen/format/idx.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <new>
#include <string>

#include "format/byte_stream.h"
#include "format/file_kind.h"
#include "reigen/base/error.h"

namespace reigen::format {
namespace {

constexpr std::uint64_t kMaxInflation = 1032;  // deflate's highest ratio of compression (zlib.net/zlib_tech.html)
constexpr std::size_t kMaxDims = 8;
constexpr const char* kFetchAgain = "check that this is the right file, or fetch it again";

std::uint32_t big_endian(const std::byte* at) {
  std::uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value = value << 8 | std::to_integer<std::uint32_t>(at[i]);
  return value;
}

void read_exactly(ByteStream& stream, std::span<std::byte> into, std::uint64_t offset) {
  const std::size_t got = stream.read(into);
  if (got == into.size()) return;
  throw DataError(Report{.what = fmt::format("'{}' ends early, at byte {}", stream.file().path(), offset + got),
                         .got = fmt::format("{} bytes", offset + got),
                         .expected = fmt::format("at least {} bytes", offset + into.size()),
                         .fix = kFetchAgain});
}

struct Header {
  IdxType type = IdxType::kU8;
  std::vector<std::int64_t> dims;
  std::uint64_t header_bytes = 0;
  std::uint64_t data_bytes = 0;
};

bool known(std::byte type) {
  constexpr std::array kTypes = {IdxType::kU8,  IdxType::kI8,  IdxType::kI16,
                                 IdxType::kI32, IdxType::kF32, IdxType::kF64};
  return std::any_of(kTypes.begin(), kTypes.end(), [&](IdxType t) { return static_cast<std::byte>(t) == type; });
}

Header read_header(ByteStream& stream, const IdxOptions& options) {
  const std::string& path = stream.file().path();
  std::array<std::byte, 4> magic{};
  read_exactly(stream, magic, 0);
  const auto rank = std::to_integer<std::size_t>(magic[3]);
  if (magic[0] != std::byte{0} || magic[1] != std::byte{0} || !known(magic[2]) || rank == 0 || rank > kMaxDims) {
    // If another kind of file (a web page, a pointer of Git LFS) is in the file's place, the error names that kind.
    const auto kind = stream.packed() ? std::nullopt : kind_of_file(stream.file());
    const std::vector<unsigned> bytes = {std::to_integer<unsigned>(magic[0]), std::to_integer<unsigned>(magic[1]),
                                         std::to_integer<unsigned>(magic[2]), std::to_integer<unsigned>(magic[3])};
    throw DataError(
        Report{.what = fmt::format("'{}' is not an IDX file: wrong magic number at byte 0", path),
               .got = fmt::format("{:02x}{}", fmt::join(bytes, " "), kind ? fmt::format(" ({})", kind->name) : ""),
               .expected = "00 00, a type (08, 09, 0b to 0e), the number of dimensions (1 to 8)",
               .fix = kFetchAgain});
  }
  Header header;
  header.type = static_cast<IdxType>(magic[2]);
  header.header_bytes = 4 + 4 * rank;
  std::vector<std::byte> sizes(4 * rank);
  read_exactly(stream, sizes, 4);
  // The product of eight 32-bit sizes can exceed 64 bits, so the multiplication stops at the limit. A size of zero
  // makes the array empty, whatever the other sizes are.
  bool too_large = false;
  header.data_bytes = size_of(header.type);
  for (std::size_t d = 0; d < rank; ++d) {
    header.dims.push_back(big_endian(sizes.data() + 4 * d));
    const auto dim = static_cast<std::uint64_t>(header.dims.back());
    too_large = too_large || (dim != 0 && header.data_bytes > options.max_bytes / dim);
    if (!too_large) header.data_bytes *= dim;
  }
  if (std::find(header.dims.begin(), header.dims.end(), 0) != header.dims.end()) {
    too_large = false;
    header.data_bytes = 0;
  }
  if (too_large) {
    throw DataError(
        Report{.what = fmt::format("'{}' declares too large an array in bytes 4 to {}", path, header.header_bytes),
               .got = fmt::format("{} elements of {} bytes", fmt::join(header.dims, " x "), size_of(header.type)),
               .expected = fmt::format("at most {}", format_bytes(options.max_bytes)),
               .fix = kFetchAgain});
  }
  return header;
}

// Checks, before memory is taken, whether the file can hold the array that it declares.
void check_declared(const ByteStream& stream, const Header& header) {
  const std::uint64_t file = stream.file().size();
  const std::uint64_t declared = header.header_bytes + header.data_bytes;
  const std::uint64_t most = stream.packed() ? file * kMaxInflation : file;
  if (declared <= most && (stream.packed() || declared == file)) return;
  throw DataError(
      Report{.what = fmt::format("'{}' does not hold what it declares in bytes 4 to {}", stream.file().path(),
                                 header.header_bytes),
             .got = stream.packed() ? fmt::format("{} packed bytes, at most {} unpacked", file, most)
                                    : fmt::format("{} bytes", file),
             .expected = fmt::format("{} bytes: {} + {} elements of {} bytes", declared, header.header_bytes,
                                     fmt::join(header.dims, " x "), size_of(header.type)),
             .fix = kFetchAgain});
}

void to_host_order(std::span<std::byte> bytes, std::size_t element) {
  if (element == 1) return;
  for (std::size_t i = 0; i < bytes.size(); i += element) std::reverse(bytes.data() + i, bytes.data() + i + element);
}

}  // namespace

std::size_t size_of(IdxType type) {
  switch (type) {
    case IdxType::kU8:
    case IdxType::kI8: return 1;
    case IdxType::kI16: return 2;
    case IdxType::kI32:
    case IdxType::kF32: return 4;
    case IdxType::kF64: return 8;
  }
  throw InvalidArgument(fmt::format("unknown IDX type {:#x}", static_cast<unsigned>(type)));
}

IdxArray read_idx(const std::filesystem::path& path, const IdxOptions& options) {
  ByteStream stream(path);
  Header header = read_header(stream, options);
  check_declared(stream, header);
  IdxArray array;
  array.type = header.type;
  array.dims = std::move(header.dims);
  array.size = header.data_bytes;
  try {
    array.storage = std::make_unique_for_overwrite<std::byte[]>(array.size);  // gets memory pages only as data arrives
  } catch (const std::bad_alloc&) {
    throw IoError(fmt::format("no memory for the {} of '{}'", format_bytes(array.size), stream.file().path()),
                  ExitCode::kOsResource);
  }
  const std::span<std::byte> bytes(array.storage.get(), array.size);
  read_exactly(stream, bytes, header.header_bytes);
  std::byte extra{};
  if (stream.read({&extra, 1}) != 0) {  // in a gzip stream this read also makes zlib check the CRC
    throw DataError(
        Report{.what = fmt::format("'{}' goes on after its array", stream.file().path()),
               .got = fmt::format("more than {} bytes", header.header_bytes + array.size),
               .expected = fmt::format("{} bytes: {} + {} elements of {} bytes", header.header_bytes + array.size,
                                       header.header_bytes, fmt::join(array.dims, " x "), size_of(array.type)),
               .fix = kFetchAgain});
  }
  to_host_order(bytes, size_of(array.type));
  return array;
}

}  // namespace reigen::format
