#include "format/zip_archive.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "base/check.h"
#include "reigen/base/bytes.h"
#include "reigen/base/error.h"

namespace reigen::format {
namespace {

constexpr std::uint32_t kHeaderMark = 0x04034B50;
constexpr std::uint32_t kEntryMark = 0x02014B50;
constexpr std::uint32_t kEndMark = 0x06054B50;
constexpr std::uint32_t kEnd64Mark = 0x06064B50;
constexpr std::uint32_t kLocatorMark = 0x07064B50;
constexpr std::size_t kHeaderBytes = 30;
constexpr std::size_t kEntryBytes = 46;
constexpr std::size_t kEndBytes = 22;
constexpr std::size_t kEnd64Bytes = 56;
constexpr std::size_t kLocatorBytes = 20;
constexpr std::uint64_t kMax16 = 0xFFFF;  // if a field has this value, the number is in a zip64 field
constexpr std::uint64_t kMax32 = 0xFFFFFFFF;
constexpr unsigned kSizesFollow = 0x0008;  // sizes and CRC are zero in the header, and follow the content
constexpr unsigned kUtf8 = 0x0800;
constexpr std::uint16_t kZip64Field = 0x0001;
constexpr const char* kArchiveFix = "fetch the file again, or write it again with torch.save (PyTorch >= 1.6)";

[[noreturn]] void fail_zip(const std::string& path, const std::string& where, std::string got, std::string expected) {
  throw DataError(Report{.what = fmt::format("'{}' is not a valid checkpoint file: {}", path, where),
                         .got = std::move(got),
                         .expected = std::move(expected),
                         .fix = kArchiveFix});
}

template <typename T>
T load(std::span<const std::byte> bytes, std::size_t at) {
  REIGEN_ASSERT(at <= bytes.size() && sizeof(T) <= bytes.size() - at, "{} + {} of {}", at, sizeof(T), bytes.size());
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}
std::uint16_t load16(std::span<const std::byte> bytes, std::size_t at) { return load<std::uint16_t>(bytes, at); }
std::uint32_t load32(std::span<const std::byte> bytes, std::size_t at) { return load<std::uint32_t>(bytes, at); }
std::uint64_t load64(std::span<const std::byte> bytes, std::size_t at) { return load<std::uint64_t>(bytes, at); }

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// The content of the zip64 field among an entry's extra fields; empty if there is none, or if the fields are
// incomplete.
std::span<const std::byte> zip64_field(std::span<const std::byte> extra) {
  while (extra.size() >= 4) {
    const std::size_t size = load16(extra, 2);
    if (size > extra.size() - 4) break;
    if (load16(extra, 0) == kZip64Field) return extra.subspan(4, size);
    extra = extra.subspan(4 + size);
  }
  return {};
}

}  // namespace

ZipArchive::ZipArchive(InputFile file) : file_(std::move(file)) {
  const Directory directory = find_directory();
  read_directory(directory);
  for (ZipRecord& record : records_) read_header(record, directory.offset);
  check_overlaps();
  for (std::size_t i = 0; i < records_.size(); ++i) {
    if (!index_.emplace(records_[i].name, i).second) {
      fail_zip(file_.path(), fmt::format("record '{}' at byte {}", records_[i].name, records_[i].header), "it twice",
               "each name once");
    }
  }
}

const ZipRecord* ZipArchive::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &records_[found->second];
}

std::vector<std::byte> ZipArchive::bytes_at(std::uint64_t offset, std::uint64_t count, const char* what) const {
  if (offset > file_.size() || count > file_.size() - offset) {
    fail_zip(file_.path(), fmt::format("{} at byte {} goes past the end", what, offset),
             fmt::format("a file of {} bytes", file_.size()), fmt::format("{} bytes from there on", count));
  }
  std::vector<std::byte> bytes(count);
  if (const std::size_t got = file_.read_at(offset, bytes); got != count) {
    fail_zip(file_.path(), fmt::format("truncated at byte {}, in {}", offset + got, what), fmt::format("{} bytes", got),
             fmt::format("{} bytes", count));
  }
  return bytes;
}

ZipArchive::Directory ZipArchive::find_directory() const {
  const std::uint64_t tail_bytes = std::min<std::uint64_t>(file_.size(), kEndBytes + kMax16);
  const std::uint64_t tail_at = file_.size() - tail_bytes;
  const std::vector<std::byte> tail = bytes_at(tail_at, tail_bytes, "the end of the file");
  // After the end record the file has only the comment, whose length is in the end record.
  std::size_t at = tail.size();
  bool found = false;
  for (std::size_t behind = kEndBytes; behind <= tail.size() && !found; ++behind) {
    at = tail.size() - behind;
    found = load32(tail, at) == kEndMark && load16(tail, at + 20) == behind - kEndBytes;
  }
  if (!found) {
    fail_zip(file_.path(), "truncated: its end has no zip directory", fmt::format("a file of {} bytes", file_.size()),
             "an end record in the last 64 KiB");
  }
  const std::span<const std::byte> end(tail.data() + at, kEndBytes);
  Directory directory{.offset = load32(end, 16), .size = load32(end, 12), .entries = load16(end, 10)};
  std::uint64_t ends_at = tail_at + at;
  if (load16(end, 4) != 0 || load16(end, 6) != 0 || load16(end, 8) != directory.entries) {
    fail_zip(file_.path(), fmt::format("end record at byte {}", ends_at), "an archive in several parts", "one file");
  }
  if (ends_at >= kLocatorBytes) read_end64(ends_at - kLocatorBytes, directory, ends_at);
  if (directory.offset > ends_at || directory.size != ends_at - directory.offset) {
    fail_zip(file_.path(), fmt::format("its zip directory does not end at byte {}", ends_at),
             fmt::format("{} bytes from byte {} on", directory.size, directory.offset),
             fmt::format("the end record right after it, in a file of {} bytes", file_.size()));
  }
  if (directory.entries > directory.size / kEntryBytes) {
    fail_zip(file_.path(), fmt::format("zip directory at byte {}", directory.offset),
             fmt::format("{} records in {} bytes", directory.entries, directory.size),
             fmt::format("at least {} bytes a record", kEntryBytes));
  }
  return directory;
}

// Takes the 64-bit numbers if the file has them; the 32-bit numbers must agree with them.
void ZipArchive::read_end64(std::uint64_t locator_at, Directory& directory, std::uint64_t& ends_at) const {
  const std::vector<std::byte> locator = bytes_at(locator_at, kLocatorBytes, "the zip64 locator");
  if (load32(locator, 0) != kLocatorMark) return;
  const std::uint64_t at = load64(locator, 8);
  if (at > locator_at || locator_at - at < kEnd64Bytes || load32(locator, 4) != 0 || load32(locator, 16) > 1) {
    fail_zip(file_.path(), fmt::format("zip64 locator at byte {}", locator_at),
             fmt::format("an end record at byte {}", at), "one file, and the end record before the locator");
  }
  const std::vector<std::byte> end = bytes_at(at, kEnd64Bytes, "the zip64 end record");
  const Directory wide{.offset = load64(end, 48), .size = load64(end, 40), .entries = load64(end, 32)};
  const bool whole = load32(end, 0) == kEnd64Mark && load64(end, 4) == locator_at - at - 12 && load32(end, 16) == 0 &&
                     load32(end, 20) == 0 && load64(end, 24) == wide.entries;
  if (!whole || std::min(wide.offset, kMax32) != directory.offset || std::min(wide.size, kMax32) != directory.size ||
      std::min(wide.entries, kMax16) != directory.entries) {
    fail_zip(file_.path(), fmt::format("zip64 end record at byte {}", at),
             fmt::format("{} records in {} bytes from byte {} on", wide.entries, wide.size, wide.offset),
             "one file, and the numbers of the other end record");
  }
  directory = wide;
  ends_at = at;
}

void ZipArchive::read_directory(const Directory& directory) {
  const std::vector<std::byte> bytes = bytes_at(directory.offset, directory.size, "the zip directory");
  std::span<const std::byte> rest(bytes);
  records_.reserve(directory.entries);
  for (std::uint64_t i = 0; i < directory.entries; ++i) {
    rest = rest.subspan(read_entry(directory, rest, directory.offset + (bytes.size() - rest.size())));
  }
  if (!rest.empty()) {
    fail_zip(file_.path(), fmt::format("zip directory at byte {}", directory.offset),
             fmt::format("{} bytes after its {} records", rest.size(), directory.entries), "nothing");
  }
}

// Adds the record at the beginning of `rest`, which is at byte `at` of the file, and returns the entry's length.
std::size_t ZipArchive::read_entry(const Directory& directory, std::span<const std::byte> rest, std::uint64_t at) {
  const auto check = [&](bool good, const std::string& got, const char* expected) {
    if (!good) fail_zip(file_.path(), fmt::format("zip directory entry at byte {}", at), got, expected);
  };
  check(rest.size() >= kEntryBytes && load32(rest, 0) == kEntryMark, "no entry", "PK 01 02");
  const std::size_t name = load16(rest, 28);
  const std::size_t extra = load16(rest, 30);
  const std::size_t length = kEntryBytes + name + extra + load16(rest, 32);
  check(length <= rest.size(), fmt::format("{} bytes", length), "an entry inside the directory");
  ZipRecord record;
  record.name = text_of(rest.subspan(kEntryBytes, name));
  const unsigned flags = load16(rest, 8);
  record.method = load16(rest, 10);
  check((flags & ~(kSizesFollow | kUtf8)) == 0, fmt::format("flags {:#06x} for '{}'", flags, record.name),
        "a record that is not encrypted");
  record.crc = load32(rest, 16);
  record.size = load32(rest, 24);
  std::uint64_t packed = load32(rest, 20);
  record.header = load32(rest, 42);
  const auto wide = zip64_field(rest.subspan(kEntryBytes + name, extra));
  std::size_t used = 0;
  for (std::uint64_t* number : {&record.size, &packed, &record.header}) {
    if (*number != kMax32 || wide.empty()) continue;
    check(wide.size() >= used + 8, fmt::format("a zip64 field of {} bytes for '{}'", wide.size(), record.name),
          "a number for every size and offset that needs one");
    *number = load64(wide, used);
    used += 8;
  }
  check(packed == record.size || record.method != 0,
        fmt::format("{} bytes that were {} for '{}'", packed, record.size, record.name),
        "equal sizes of a stored record");
  record.size = packed;
  check(load16(rest, 34) == 0, fmt::format("'{}' in part {}", record.name, load16(rest, 34)), "one file");
  check(record.header <= directory.offset, fmt::format("'{}' at byte {}", record.name, record.header),
        "an offset before the directory");
  records_.push_back(std::move(record));
  return length;
}

// Finds where the record's content begins: directly after the record's header. The length of the header is only in the
// header itself. The content must end before `limit`.
void ZipArchive::read_header(ZipRecord& record, std::uint64_t limit) const {
  const auto check = [&](bool good, const std::string& got, const std::string& expected) {
    if (good) return;
    fail_zip(file_.path(), fmt::format("header of record '{}' at byte {}", record.name, record.header), got, expected);
  };
  const std::size_t length = kHeaderBytes + record.name.size();
  check(length <= limit - record.header, fmt::format("{} bytes", length), fmt::format("an end before byte {}", limit));
  const std::vector<std::byte> header = bytes_at(record.header, length, "a record's header");
  check(load32(header, 0) == kHeaderMark, fmt::format("{:08x}", load32(header, 0)), "PK 03 04");
  const std::string_view name = text_of(std::span(header).subspan(kHeaderBytes));
  check(load16(header, 26) == name.size() && name == record.name, "another name", "the name in the zip directory");
  check(load16(header, 8) == record.method, fmt::format("packed by method {}", load16(header, 8)),
        fmt::format("{}, as in the zip directory", record.method));
  const bool follows = (load16(header, 6) & kSizesFollow) != 0;
  check(follows || load32(header, 14) == record.crc, fmt::format("CRC-32 {:08x}", load32(header, 14)),
        fmt::format("{:08x}, as in the zip directory", record.crc));
  const std::uint64_t before = record.header + length + load16(header, 28);
  check(before <= limit && record.size <= limit - before, fmt::format("{} bytes from byte {} on", record.size, before),
        fmt::format("an end before byte {}", limit));
  record.offset = before;
}

// Throws if records overlap, because with overlapping records a small file could claim to hold far more data than it
// has.
void ZipArchive::check_overlaps() const {
  std::vector<const ZipRecord*> order;
  order.reserve(records_.size());
  for (const ZipRecord& record : records_) order.push_back(&record);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) { return a->header < b->header; });
  for (std::size_t i = 1; i < order.size(); ++i) {
    const std::uint64_t end = order[i - 1]->offset + order[i - 1]->size;
    if (order[i]->header >= end) continue;
    fail_zip(file_.path(), fmt::format("record '{}' overlaps '{}'", order[i]->name, order[i - 1]->name),
             fmt::format("byte {}", order[i]->header), fmt::format("byte {} or later", end));
  }
}

void ZipArchive::read(const ZipRecord& record, std::uint64_t first, std::span<std::byte> into) const {
  REIGEN_ASSERT(first <= record.size && into.size() <= record.size - first, "bytes {} to {} of '{}', which has {}",
                first, first + into.size(), record.name, record.size);
  const std::size_t got = file_.read_at(record.offset + first, into);
  if (got != into.size()) {
    fail_zip(file_.path(),
             fmt::format("truncated at byte {}, in record '{}'", record.offset + first + got, record.name),
             fmt::format("{} bytes", got), fmt::format("{} bytes", into.size()));
  }
}

std::uint32_t ZipArchive::crc_of(std::span<const std::byte> bytes, std::uint32_t before) {
  return static_cast<std::uint32_t>(crc32_z(before, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

std::uint32_t ZipArchive::crc_of_content(const ZipRecord& record) const {
  std::vector<std::byte> block(std::min<std::uint64_t>(record.size, kMiB));
  std::uint32_t crc = 0;
  for (std::uint64_t first = 0; first < record.size; first += block.size()) {
    const auto part = std::span(block).first(std::min<std::uint64_t>(block.size(), record.size - first));
    read(record, first, part);
    crc = crc_of(part, crc);
  }
  return crc;
}

}  // namespace reigen::format
