#include "format/byte_stream.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <limits>

#include "reigen/base/error.h"

namespace reigen::format {
namespace {

constexpr std::byte kMagic1{0x1f};
constexpr std::byte kMagic2{0x8b};
constexpr int kGzipWindow = 15 + 16;  // for zlib: the largest window, with gzip header and CRC

}  // namespace

void ByteStream::End::operator()(z_stream_s* stream) const {
  inflateEnd(stream);
  delete stream;
}

ByteStream::ByteStream(const std::filesystem::path& path) : file_(path) {
  std::byte magic[2] = {};
  if (file_.read_at(0, magic) < 2 || magic[0] != kMagic1 || magic[1] != kMagic2) return;
  auto stream = std::make_unique<z_stream>();
  if (inflateInit2(stream.get(), kGzipWindow) != Z_OK) {
    throw IoError(fmt::format("no memory to unpack '{}'", file_.path()), ExitCode::kOsResource);
  }
  inflater_.reset(stream.release());
  buffer_.resize(std::size_t{1} << 16);
}

ByteStream::~ByteStream() = default;

std::uint64_t ByteStream::file_offset() const { return read_to_ - (inflater_ ? inflater_->avail_in : 0); }

std::size_t ByteStream::read(std::span<std::byte> into) {
  if (inflater_) return unpack(into);
  const std::size_t got = file_.read_at(read_to_, into);
  read_to_ += got;
  return got;
}

bool ByteStream::refill() {
  const std::size_t got = file_.read_at(read_to_, buffer_);
  read_to_ += got;
  inflater_->next_in = reinterpret_cast<Bytef*>(buffer_.data());
  inflater_->avail_in = static_cast<uInt>(got);
  return got > 0;
}

void ByteStream::fail_damaged(int code) const {
  const bool truncated = code == Z_BUF_ERROR;
  throw DataError(Report{
      .what = fmt::format("'{}' is {} at byte {}", file_.path(), truncated ? "truncated" : "damaged", file_offset()),
      .got = truncated ? fmt::format("the gzip stream ends early, after {} bytes", file_.size())
                       : fmt::format("{}", inflater_->msg != nullptr ? inflater_->msg : "a broken gzip stream"),
      .expected = "a whole gzip stream",
      .fix = "fetch the file again"});
}

// After the end of a gzip member comes the end of the file, or another member.
void ByteStream::next_member() {
  if (inflater_->avail_in == 0 && !refill()) {
    ended_ = true;
    return;
  }
  if (*inflater_->next_in != std::to_integer<Bytef>(kMagic1)) {
    throw DataError(
        Report{.what = fmt::format("'{}' goes on after its gzip stream at byte {}", file_.path(), file_offset()),
               .got = fmt::format("{} more bytes", file_.size() - file_offset()),
               .expected = "the end of the file",
               .fix = "fetch the file again"});
  }
  inflateReset(inflater_.get());
}

std::size_t ByteStream::unpack(std::span<std::byte> into) {
  std::size_t done = 0;
  while (done < into.size() && !ended_) {
    if (inflater_->avail_in == 0 && !refill()) fail_damaged(Z_BUF_ERROR);
    const auto room = std::min<std::size_t>(into.size() - done, std::numeric_limits<uInt>::max());
    inflater_->next_out = reinterpret_cast<Bytef*>(into.data() + done);
    inflater_->avail_out = static_cast<uInt>(room);
    const int code = inflate(inflater_.get(), Z_NO_FLUSH);
    done += room - inflater_->avail_out;
    if (code == Z_STREAM_END) {
      next_member();
    } else if (code == Z_MEM_ERROR) {
      throw IoError(fmt::format("no memory to unpack '{}'", file_.path()), ExitCode::kOsResource);
    } else if (code != Z_OK && code != Z_BUF_ERROR) {  // Z_BUF_ERROR only means that more input is needed
      fail_damaged(code);
    }
  }
  return done;
}

}  // namespace reigen::format
