#include "container/tar/members.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <span>
#include <utility>

#include "base/text.h"
#include "container/sample.h"
#include "container/shards/detect.h"
#include "reigen/base/error.h"

namespace reigen::container {
namespace {

constexpr std::uint64_t kMostExtended = std::uint64_t{1} << 20;  // bytes of a long name or of pax records

// Places in a header.
struct HeaderPart {
  std::size_t at;
  std::size_t size;
};
constexpr HeaderPart kName = {0, 100};
constexpr HeaderPart kMode = {100, 8};
constexpr HeaderPart kSize = {124, 12};
constexpr HeaderPart kTime = {136, 12};
constexpr HeaderPart kChecksum = {148, 8};
constexpr std::size_t kType = 156;
constexpr HeaderPart kMagic = {257, 8};
constexpr HeaderPart kPrefix = {345, 155};

using TarBlock = std::array<std::byte, kTarBlockBytes>;

std::string_view part_of_header(std::span<const std::byte> block, const HeaderPart& part) {
  return text_of(block).substr(part.at, part.size);
}

std::string_view until_zero(std::string_view text) { return text.substr(0, text.find('\0')); }

// Octal digits, or GNU's form for large numbers: a bit, then the bytes of the number.
std::optional<std::uint64_t> header_number(std::string_view text) {
  std::uint64_t number = 0;
  if (!text.empty() && (static_cast<unsigned char>(text[0]) & 0x80U) != 0) {
    for (std::size_t i = 0; i < text.size(); ++i) {
      const auto byte = static_cast<unsigned char>(i == 0 ? text[i] & 0x7f : text[i]);
      if (number >> 55U != 0) return std::nullopt;
      number = number << 8U | byte;
    }
    return number;
  }
  for (const char c : text) {
    if (c == ' ' || c == '\0') continue;
    if (c < '0' || c > '7' || number >> 60U != 0) return std::nullopt;
    number = number * 8 + static_cast<std::uint64_t>(c - '0');
  }
  return number;
}

bool is_zero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte byte) { return byte == std::byte{0}; });
}

std::uint64_t rounded_to_blocks(std::uint64_t size) {
  return (size + kTarBlockBytes - 1) / kTarBlockBytes * kTarBlockBytes;
}

// What headers before a file say about it.
struct Extended {
  std::string name;
  std::optional<std::uint64_t> size;
};

class TarScan {
 public:
  TarScan(const format::InputFile& file, bool with_names) : file_(file), with_names_(with_names) {}

  // Reads the next member. False at the end.
  bool next() {
    TarBlock block{};
    at_ = offset_;
    if (file_.read_at(offset_, block) != block.size())
      fail("the end of the file without the end of the tar", "two blocks of zeros at its end");
    if (is_zero(block)) return end();
    if (!is_tar_header(block)) fail("a wrong checksum of a header", "the header of a file");
    const auto stored = header_number(part_of_header(block, kSize));
    const char type = static_cast<char>(block[kType]);
    if (!stored) fail("a size that is no number", "octal digits");
    const bool is_file = type == '0' || type == '\0' || type == '7';
    const std::uint64_t size = is_file ? extended_.size.value_or(*stored) : *stored;
    const std::uint64_t data = offset_ + kTarBlockBytes;
    if (size > file_.size() - data || rounded_to_blocks(size) > file_.size() - data) {
      fail(fmt::format("a size of {} bytes, beyond the end of the file", size),
           fmt::format("at most {}", file_.size() - data));
    }
    offset_ = data + rounded_to_blocks(size);
    if (type == 'L' || type == 'x') {
      take_extended(type, data, size);
    } else if (type == 'S') {
      fail("a sparse file", "files with all their bytes");
    } else if (type != 'g' && type != 'K') {
      if (is_file) take_file(block, data, size);
      extended_ = {};
    }
    return true;
  }

  TarIndex take() {
    index_.firsts.push_back(index_.files.size());
    return std::move(index_);
  }
  std::size_t samples() const { return index_.firsts.size(); }
  std::uint64_t offset() const { return at_; }

 private:
  bool end() {
    std::vector<std::byte> rest(1U << 16U);
    std::uint64_t at = offset_;
    if (file_.size() - at < 2 * kTarBlockBytes) fail("one block of zeros at the end", "two");
    while (at < file_.size()) {
      const std::size_t got = file_.read_at(at, rest);
      if (got == 0) break;
      if (!is_zero(std::span<const std::byte>(rest).first(got))) fail("other bytes behind the end of the tar", "zeros");
      at += got;
    }
    return false;
  }

  std::string text_at(std::uint64_t offset, std::uint64_t size) const {
    if (size > kMostExtended)
      fail(fmt::format("a long name of {} bytes", size), fmt::format("at most {}", kMostExtended));
    std::string text(size, '\0');
    text.resize(file_.read_at(offset, std::as_writable_bytes(std::span(text.data(), text.size()))));
    return text;
  }

  void take_extended(char type, std::uint64_t data, std::uint64_t size) {
    const std::string text = text_at(data, size);
    if (type == 'L') {
      extended_.name = until_zero(text);
      return;
    }
    // Records "LENGTH KEY=VALUE\n", where the length counts the whole record.
    for (std::string_view rest = text; !rest.empty();) {
      const auto blank = rest.find(' ');
      const auto length =
          blank == std::string_view::npos ? std::nullopt : base::parse<std::uint64_t>(rest.substr(0, blank));
      if (!length || *length < blank + 3 || *length > rest.size() || rest[*length - 1] != '\n') {
        fail("a record of pax that is damaged", "LENGTH KEY=VALUE");
      }
      const std::string_view record = rest.substr(blank + 1, *length - blank - 2);
      const auto equals = record.find('=');
      const std::string_view key = record.substr(0, equals);
      const std::string_view value = equals == std::string_view::npos ? std::string_view() : record.substr(equals + 1);
      if (key == "path") extended_.name = value;
      if (key == "size") extended_.size = base::parse<std::uint64_t>(value);
      if (key.starts_with("GNU.sparse")) fail("a sparse file", "files with all their bytes");
      rest.remove_prefix(*length);
    }
  }

  void take_file(std::span<const std::byte> block, std::uint64_t data, std::uint64_t size) {
    std::string name = extended_.name;
    if (name.empty()) {
      name = until_zero(part_of_header(block, kName));
      const std::string_view prefix = until_zero(part_of_header(block, kPrefix));
      const bool is_ustar = part_of_header(block, kMagic).starts_with(std::string_view("ustar\0", 6));
      if (is_ustar && !prefix.empty()) name = fmt::format("{}/{}", prefix, name);
    }
    const auto parts = split_member_name(name);
    if (!parts) return;
    if (index_.firsts.empty() || parts->sample != sample_) {
      index_.firsts.push_back(index_.files.size());
      sample_ = parts->sample;
    }
    const auto [ending, is_new] =
        endings_.try_emplace(std::string(parts->ending), static_cast<std::uint32_t>(endings_.size()));
    if (is_new) index_.endings.push_back(ending->first);
    index_.files.push_back({ending->second, data, size});
    if (with_names_) index_.names.push_back(std::move(name));
  }

  [[noreturn]] void fail(const std::string& got, const std::string& expected) const {
    fail_damaged(fmt::format("'{}', after {} samples (offset {})", file_.path(), samples(), at_), got, expected);
  }

  const format::InputFile& file_;
  bool with_names_;
  std::uint64_t offset_ = 0;
  std::uint64_t at_ = 0;  // of the member that is being read
  Extended extended_;
  TarIndex index_;
  std::string sample_;
  std::map<std::string, std::uint32_t, std::less<>> endings_;
};

}  // namespace

TarIndex scan_tar(const format::InputFile& file, bool with_names, std::string* fault) {
  TarScan scan(file, with_names);
  try {
    while (scan.next()) {
    }
  } catch (const DataError& error) {
    if (fault == nullptr) throw;
    *fault = fmt::format("{}\n  {} bytes from offset {} on cannot be read", error.what(), file.size() - scan.offset(),
                         scan.offset());
  }
  return scan.take();
}

std::optional<SplitName> split_member_name(std::string_view name) {
  const auto slash = name.rfind('/');
  const std::size_t begin = slash == std::string_view::npos ? 0 : slash + 1;
  const auto dot = name.find('.', begin);
  const std::string_view base = name.substr(begin);
  const bool is_meta = base.size() > 4 && base.starts_with("__") && base.ends_with("__");
  if (dot == std::string_view::npos || dot == begin || is_meta || dot + 1 == name.size()) return std::nullopt;
  return SplitName{name.substr(0, dot), name.substr(dot + 1)};
}

std::string tar_index_text(const TarIndex& index, const std::string& file) {
  std::string text = fmt::format("v1.2 {}\n", index.samples());
  for (std::size_t sample = 0; sample < index.samples(); ++sample) {
    for (std::uint64_t i = index.firsts[sample]; i < index.firsts[sample + 1]; ++i) {
      const std::string& name = index.names[i];
      if (name.find_first_of(" \n") != std::string::npos) {
        throw InvalidArgument(Report{.what = fmt::format("'{}' can have no index", file),
                                     .got = fmt::format("a blank in the name \"{}\"", name),
                                     .expected = "names without blanks, which separate the parts of an index",
                                     .fix = "pack it again; without an index, one scan finds the samples"});
      }
      const TarFile& member = index.files[i];
      text += fmt::format("{}{} {} {} {}", i == index.firsts[sample] ? "" : " ", index.endings[member.ending],
                          member.offset, member.size, name);
    }
    text += '\n';
  }
  return text;
}

std::optional<TarIndex> parse_tar_index(std::string_view text, std::uint64_t file_size) {
  const auto line = [&text] {
    const auto end = std::min(text.find('\n'), text.size());
    const std::string_view one = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    return one;
  };
  const std::string_view head = line();
  if (!head.starts_with("v1.2 ")) return std::nullopt;
  const auto count = base::parse<std::uint64_t>(head.substr(5));
  TarIndex index;
  std::map<std::string, std::uint32_t, std::less<>> endings;
  std::uint64_t before = 0;
  while (!text.empty()) {
    std::string_view rest = line();
    if (rest.empty()) return std::nullopt;  // a sample has a file
    index.firsts.push_back(index.files.size());
    const auto word = [&rest] {
      const auto end = std::min(rest.find(' '), rest.size());
      const std::string_view one = rest.substr(0, end);
      rest.remove_prefix(std::min(end + 1, rest.size()));
      return one;
    };
    while (!rest.empty()) {
      const std::string ending(word());
      const auto offset = base::parse<std::uint64_t>(word());
      const auto size = base::parse<std::uint64_t>(word());
      if (word().empty() || !offset || !size || *offset % kTarBlockBytes != 0 || *offset < before ||
          *offset > file_size || *size > file_size - *offset) {
        return std::nullopt;
      }
      before = *offset + *size;
      const auto [known, is_new] = endings.try_emplace(ending, static_cast<std::uint32_t>(endings.size()));
      if (is_new) index.endings.push_back(ending);
      index.files.push_back({known->second, *offset, *size});
    }
  }
  index.firsts.push_back(index.files.size());
  // Behind the last file there are its padding and the end of the tar, and nothing else.
  const bool fits = count && *count == index.samples() && rounded_to_blocks(before) + 2 * kTarBlockBytes <= file_size;
  return fits ? std::optional(std::move(index)) : std::nullopt;
}

bool ends_as_indexed(const format::InputFile& file, const TarIndex& index) {
  const std::uint64_t end =
      index.files.empty() ? 0 : rounded_to_blocks(index.files.back().offset + index.files.back().size);
  TarBlock block{};
  return file.read_at(end, block) == block.size() && is_zero(block);
}

namespace {

std::string header_block(std::string_view name, std::uint64_t size, char type) {
  std::string block(kTarBlockBytes, '\0');
  const auto put = [&block](const HeaderPart& part, std::string_view text) {
    block.replace(part.at, text.size(), text);
  };
  put(kName, name.substr(0, kName.size));
  put(kMode, "0000644");
  put({108, 8}, "0000000");
  put({116, 8}, "0000000");
  constexpr std::uint64_t kMostOctal = std::uint64_t{1} << 33;
  put(kSize, fmt::format("{:011o}", size < kMostOctal ? size : 0));
  put(kTime, "00000000000");
  block[kType] = type;
  put(kMagic, std::string_view("ustar\00000", 8));
  put(kChecksum, "        ");
  unsigned sum = 0;
  for (const char c : block) sum += static_cast<unsigned char>(c);
  put(kChecksum, fmt::format("{:06o}", sum));
  block[kChecksum.at + 6] = '\0';
  return block;
}

// The length counts its own digits.
std::string pax_record(std::string_view key, std::string_view value) {
  const std::size_t rest = key.size() + value.size() + 3;
  std::size_t length = rest + 1;
  while (fmt::format("{}", length).size() + rest != length) ++length;
  return fmt::format("{} {}={}\n", length, key, value);
}

}  // namespace

std::string tar_header(const std::string& name, std::uint64_t size) {
  constexpr std::uint64_t kMostOctal = std::uint64_t{1} << 33;
  std::string records;
  if (name.size() > kName.size) records += pax_record("path", name);
  if (size >= kMostOctal) records += pax_record("size", fmt::format("{}", size));
  std::string header;
  if (!records.empty()) {
    header = header_block("PaxHeaders/" + name.substr(0, 80), records.size(), 'x') + records;
    header += tar_padding(records.size());
  }
  return header + header_block(name, size, '0');
}

void compare_headers(const format::InputFile& file, const TarIndex& index, std::int64_t first,
                     const std::function<void(std::int64_t sample, std::uint64_t offset)>& report) {
  std::uint64_t end = 0;  // of the file before
  std::string expected;
  std::string found;
  const auto compare = [&](std::uint64_t to, std::int64_t sample) {
    if (to < end || to - end != expected.size()) return report(sample, end);
    found.assign(expected.size(), '\0');
    found.resize(file.read_at(end, std::as_writable_bytes(std::span(found.data(), found.size()))));
    if (found != expected) report(sample, end);
  };
  for (std::size_t sample = 0; sample < index.samples(); ++sample) {
    const std::int64_t number = first + static_cast<std::int64_t>(sample);
    for (std::uint64_t i = index.firsts[sample]; i < index.firsts[sample + 1]; ++i) {
      const TarFile& member = index.files[i];
      expected += tar_header(fmt::format("{:012}.{}", number, index.endings[member.ending]), member.size);
      compare(member.offset, number);
      end = member.offset + member.size;
      expected = tar_padding(member.size);
    }
  }
  expected += tar_end();
  compare(file.size(), -1);
}

std::string_view tar_padding(std::uint64_t size) {
  static constexpr std::array<char, kTarBlockBytes> kZeros{};
  return {kZeros.data(), static_cast<std::size_t>(rounded_to_blocks(size) - size)};
}

std::string_view tar_end() {
  static constexpr std::array<char, 2 * kTarBlockBytes> kZeros{};
  return {kZeros.data(), kZeros.size()};
}

}  // namespace reigen::container
