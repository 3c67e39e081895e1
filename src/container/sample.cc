#include "container/sample.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/text.h"
#include "reigen/base/error.h"

namespace reigen::container {

std::string place_of(const Reader& reader, std::int64_t index) {
  return place_of(reader.name(), index, reader.where(index));
}

std::string place_of(const std::string& name, std::int64_t index, const std::string& where) {
  return fmt::format("'{}', sample {} ({})", name, index, where);
}

void require_workers(int workers) {
  constexpr int kMostWorkers = 1024;
  if (workers >= 1 && workers <= kMostWorkers) return;
  throw InvalidArgument(Report{.what = "the number of workers is out of range",
                               .got = fmt::format("{}", workers),
                               .expected = fmt::format("1 to {}", kMostWorkers),
                               .fix = "--workers 2"});
}

std::string name_of_sample(const Reader& reader, std::int64_t index) {
  return fmt::format("{}, sample {} ({})", reader.name(), index, reader.where(index));
}

void fail_damaged(const std::string& place, const std::string& got, const std::string& expected) {
  throw DataError(Report{.what = fmt::format("damaged: {}", place),
                         .got = got,
                         .expected = expected,
                         .fix = "restore the file, or pack it again; `reigen data verify` names all damaged samples"});
}

void require_index(const Reader& reader, std::int64_t index) {
  if (index >= 0 && index < reader.size()) return;
  throw InvalidArgument(Report{.what = fmt::format("no sample {} in '{}'", index, reader.name()),
                               .got = fmt::format("{}", index),
                               .expected = fmt::format("0 to {}", reader.size() - 1),
                               .fix = "give an index that the container has"});
}

RecordParts::RecordParts(std::size_t fields) : held_(std::make_shared<Held>()) {
  values_.reserve(fields);
  held_->owned.reserve(fields);
}

void RecordParts::view(std::span<const std::byte> bytes) { values_.push_back({bytes}); }

void RecordParts::own(std::vector<std::byte> bytes) {
  held_->owned.push_back(std::move(bytes));  // a vector that moves keeps its memory
  values_.push_back({held_->owned.back()});
}

void RecordParts::label(std::int64_t number) {
  std::vector<std::byte> bytes(sizeof number);
  std::memcpy(bytes.data(), &number, sizeof number);
  own(std::move(bytes));
}

Record RecordParts::build(std::shared_ptr<const void> mapped) {
  held_->mapped = std::move(mapped);
  return {std::move(values_), std::move(held_)};
}

std::int64_t label_of_text(std::span<const std::byte> text, const std::string& place) {
  std::string_view word = text_of(text);
  constexpr std::string_view kBlanks = " \t\r\n";
  const auto first = word.find_first_not_of(kBlanks);
  word = first == std::string_view::npos ? "" : word.substr(first, word.find_last_not_of(kBlanks) - first + 1);
  const auto number = base::parse<std::int64_t>(word);
  if (number) return *number;
  fail_damaged(place, fmt::format("\"{}\" as a label", word.substr(0, 40)), "the number of a class, in decimal");
}

std::string text_of_label(std::int64_t label) { return fmt::format("{}", label); }

void check_record(const Record& record, const std::vector<Field>& fields, const std::vector<std::string>& classes,
                  const std::string& place) {
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (fields[i].kind == FieldKind::kTensor) shape_of(fields[i], record.at(i), place);
    if (fields[i].kind != FieldKind::kLabel || fields[i].name != "target" || classes.empty()) continue;
    const std::int64_t label = record.at(i).label();
    if (label >= 0 && label < static_cast<std::int64_t>(classes.size())) continue;
    throw DataError(Report{.what = fmt::format("a label without a class: {}", place),
                           .got = fmt::format("{}", label),
                           .expected = fmt::format("0 to {}, the classes of the container", classes.size() - 1),
                           .fix = "labels that count from 1 need --label-offset 1"});
  }
}

bool begins_as_picture(std::span<const std::byte> bytes) {
  constexpr std::array<unsigned char, 3> kJpeg = {0xff, 0xd8, 0xff};
  constexpr std::array<unsigned char, 4> kPng = {0x89, 'P', 'N', 'G'};
  const auto begins = [&](const auto& magic) {
    return bytes.size() >= magic.size() && std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
  };
  return begins(kJpeg) || begins(kPng);
}

}  // namespace reigen::container
