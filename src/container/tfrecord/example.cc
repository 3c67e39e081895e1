#include "container/tfrecord/example.h"

#include <cstring>

#include "container/sample.h"
#include "format/protobuf/protobuf.h"

namespace reigen::container {
namespace {

using format::protobuf::Fields;
using format::protobuf::Kind;
using format::protobuf::Message;

template <class Number>
void append_bytes(std::vector<std::byte>& bytes, Number number) {
  const std::size_t before = bytes.size();
  bytes.resize(before + sizeof number);
  std::memcpy(bytes.data() + before, &number, sizeof number);
}

bool parse_feature(std::string_view message, Feature& feature) {
  Fields kinds(message);
  while (const auto kind = kinds.next()) {
    if (kind->number < 1 || kind->number > 3 || kind->kind != Kind::kBytes) continue;
    feature.kind = static_cast<FeatureKind>(kind->number);
    feature.list = kind->bytes;
  }
  return !kinds.is_wrong();
}

bool parse_features(std::string_view message, std::vector<Feature>& features) {
  Fields entries(message);
  while (const auto entry = entries.next()) {
    if (entry->number != 1 || entry->kind != Kind::kBytes) continue;
    Feature feature;
    Fields parts(entry->bytes);
    while (const auto part = parts.next()) {
      if (part->kind != Kind::kBytes) continue;
      if (part->number == 1) feature.name = part->bytes;
      if (part->number == 2 && !parse_feature(part->bytes, feature)) return false;
    }
    if (parts.is_wrong()) return false;
    features.push_back(feature);
  }
  return !entries.is_wrong();
}

}  // namespace

std::optional<std::vector<Feature>> parse_example(std::string_view message) {
  std::vector<Feature> features;
  Fields all(message);
  while (const auto field = all.next()) {
    if (field->number != 1 || field->kind != Kind::kBytes) continue;
    if (!parse_features(field->bytes, features)) return std::nullopt;
  }
  if (all.is_wrong()) return std::nullopt;
  return features;
}

std::optional<std::vector<std::string_view>> bytes_in(std::string_view list) {
  std::vector<std::string_view> values;
  Fields fields(list);
  while (const auto field = fields.next()) {
    if (field->number == 1 && field->kind == Kind::kBytes) values.push_back(field->bytes);
  }
  if (fields.is_wrong()) return std::nullopt;
  return values;
}

std::optional<std::vector<std::byte>> floats_in(std::string_view list) {
  std::vector<std::byte> values;
  Fields fields(list);
  while (const auto field = fields.next()) {
    if (field->number != 1) continue;
    if (field->kind == Kind::kFour) append_bytes(values, static_cast<std::uint32_t>(field->integer));
    if (field->kind != Kind::kBytes) continue;
    if (field->bytes.size() % sizeof(float) != 0) return std::nullopt;
    const auto packed = bytes_of_text(field->bytes);
    values.insert(values.end(), packed.begin(), packed.end());
  }
  if (fields.is_wrong()) return std::nullopt;
  return values;
}

std::optional<std::vector<std::byte>> integers_in(std::string_view list) {
  std::vector<std::byte> values;
  Fields fields(list);
  while (const auto field = fields.next()) {
    if (field->number != 1) continue;
    if (field->kind == Kind::kVarint) append_bytes(values, field->integer);
    if (field->kind != Kind::kBytes) continue;
    for (std::string_view packed = field->bytes; !packed.empty();) {
      const auto value = format::protobuf::take_varint(packed);
      if (!value) return std::nullopt;
      append_bytes(values, *value);
    }
  }
  if (fields.is_wrong()) return std::nullopt;
  return values;
}

void ExampleWriter::feature(std::string_view name, FeatureKind kind, const std::string& list) {
  Message feature, entry, features;
  feature.bytes(static_cast<std::uint32_t>(kind), list);
  entry.bytes(1, name);
  entry.message(2, feature);
  features.message(1, entry);
  features_ += features.to_bytes();
}

void ExampleWriter::bytes(std::string_view name, std::span<const std::byte> value) {
  Message list;
  list.bytes(1, text_of(value));
  feature(name, FeatureKind::kBytes, list.to_bytes());
}

void ExampleWriter::floats(std::string_view name, std::span<const std::byte> values) {
  Message list;
  list.bytes(1, text_of(values));
  feature(name, FeatureKind::kFloats, list.to_bytes());
}

void ExampleWriter::integers(std::string_view name, std::span<const std::byte> values) {
  std::string packed;
  for (std::size_t i = 0; i + sizeof(std::uint64_t) <= values.size(); i += sizeof(std::uint64_t)) {
    std::uint64_t value = 0;
    std::memcpy(&value, values.data() + i, sizeof value);
    format::protobuf::append_varint(packed, value);
  }
  Message list;
  list.bytes(1, packed);
  feature(name, FeatureKind::kIntegers, list.to_bytes());
}

std::string ExampleWriter::message() const {
  Message example;
  example.bytes(1, features_);
  return example.to_bytes();
}

}  // namespace reigen::container
