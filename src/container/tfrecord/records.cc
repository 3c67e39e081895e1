#include "container/tfrecord/records.h"

#include <fmt/format.h>

#include <array>
#include <cstring>

#include "base/text.h"
#include "container/sample.h"
#include "format/crc32c/crc32c.h"
#include "reigen/base/error.h"

namespace reigen::container {
namespace {

template <class Number>
Number number_in(std::string_view bytes) {
  Number number{};
  std::memcpy(&number, bytes.data(), sizeof number);
  return number;
}

template <class Number>
void append_number(std::string& bytes, Number number) {
  bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
}

// What is wrong with the head of a record; empty if nothing is.
std::string fault_of_head(std::string_view head, std::uint64_t left) {
  if (head.size() < kRecordHead)
    return fmt::format("{} bytes at the end of the file; a record has at least 16", head.size());
  if (format::masked_crc32c(head.substr(0, 8)) != number_in<std::uint32_t>(head.substr(8))) {
    return "a wrong checksum of the record's length";
  }
  const auto length = number_in<std::uint64_t>(head);
  if (left < kRecordHead + kRecordTail || length > left - kRecordHead - kRecordTail) {
    return fmt::format("a length of {} bytes, beyond the end of the file", length);
  }
  return {};
}

}  // namespace

std::string framed(std::string_view data) {
  std::string bytes;
  bytes.reserve(data.size() + kRecordHead + kRecordTail);
  append_number(bytes, static_cast<std::uint64_t>(data.size()));
  append_number(bytes, format::masked_crc32c(bytes));
  bytes += data;
  append_number(bytes, format::masked_crc32c(data));
  return bytes;
}

RecordOffsets scan_records(const format::InputFile& file, std::string* fault) {
  RecordOffsets offsets = {0};
  while (offsets.back() < file.size()) {
    const std::uint64_t at = offsets.back();
    std::array<std::byte, kRecordHead> head{};
    const std::size_t got = file.read_at(at, head);
    const std::string_view text = text_of(std::span<const std::byte>(head).first(got));
    const std::string wrong = fault_of_head(text, file.size() - at);
    if (wrong.empty()) {
      offsets.push_back(at + number_in<std::uint64_t>(text) + kRecordHead + kRecordTail);
      continue;
    }
    const std::string place = fmt::format("'{}', record {} (offset {})", file.path(), offsets.size() - 1, at);
    if (fault == nullptr) fail_damaged(place, wrong, "a record, or the end of the file");
    *fault = fmt::format("{}: {}; {} bytes after it cannot be read", place, wrong, file.size() - at);
    break;
  }
  return offsets;
}

std::string index_text(const RecordOffsets& offsets) {
  std::string text;
  for (std::size_t i = 0; i + 1 < offsets.size(); ++i) {
    text += fmt::format("{} {}\n", offsets[i], offsets[i + 1] - offsets[i]);
  }
  return text;
}

std::optional<RecordOffsets> parse_record_index(std::string_view text, std::uint64_t file_size) {
  RecordOffsets offsets = {0};
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const auto blank = line.find(' ');
    if (blank == std::string_view::npos) return std::nullopt;
    const auto offset = base::parse<std::uint64_t>(line.substr(0, blank));
    const auto size = base::parse<std::uint64_t>(line.substr(blank + 1));
    if (!offset || !size || *offset != offsets.back() || *size < kRecordHead + kRecordTail ||
        *size > file_size - *offset) {
      return std::nullopt;
    }
    offsets.push_back(*offset + *size);
  }
  if (offsets.back() != file_size) return std::nullopt;
  return offsets;
}

std::vector<std::byte> read_record(const format::InputFile& file, std::uint64_t begin, std::uint64_t end,
                                   const std::string& place) {
  std::vector<std::byte> record(end - begin);
  const std::size_t got = file.read_at(begin, record);
  const std::string_view text = text_of(record);
  if (got != record.size())
    fail_damaged(place, fmt::format("the end of the file after {} bytes", got), "a whole record");
  const std::string wrong = fault_of_head(text, record.size());
  if (!wrong.empty()) fail_damaged(place, wrong, "the right checksum and length");
  if (number_in<std::uint64_t>(text) != record.size() - kRecordHead - kRecordTail) {
    fail_damaged(place, fmt::format("a length of {} bytes", number_in<std::uint64_t>(text)),
                 fmt::format("{}, as the index says", record.size() - kRecordHead - kRecordTail));
  }
  const std::string_view data = data_of(record);
  if (format::masked_crc32c(data) != number_in<std::uint32_t>(text.substr(text.size() - kRecordTail))) {
    fail_damaged(place, "a wrong checksum of the record's data", "the checksum of the data");
  }
  return record;
}

std::string_view data_of(const std::vector<std::byte>& record) {
  return text_of(record).substr(kRecordHead, record.size() - kRecordHead - kRecordTail);
}

}  // namespace reigen::container
