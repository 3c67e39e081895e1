#include "container/meta.h"

#include <fmt/format.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "container/names.h"
#include "container/sample.h"
#include "format/json/json_part.h"
#include "reigen/base/error.h"
#include "reigen/format/hash.h"

namespace reigen::container {
namespace {

constexpr std::int64_t kVersion = 1;
constexpr std::int64_t kMostSamples = std::int64_t{1} << 40;
constexpr const char* kFixMeta = "restore the container, or pack it again";

constexpr std::string_view kHashKey = "\"hash\": \"";  // the last key; the hash is that of the text before it

std::string hash_before_key(std::string_view json) {
  const std::string_view covered = json.substr(0, json.rfind(kHashKey));
  return format::hash_text(format::hash64(covered.data(), covered.size()));
}

Field field_of(const format::JsonPart& json) {
  Field field{.name = json.at("name").text()};
  const auto kind = field_kind_of(json.at("kind").text());
  if (!kind) json.at("kind").refuse("picture, label, tensor or bytes");
  field.kind = *kind;
  if (field.kind != FieldKind::kTensor) return field;
  const auto type = format::tensor_type_of(json.at("type").text());
  if (!type) json.at("type").refuse(format::names_of_tensor_types());
  field.type = *type;
  for (const format::JsonPart& size : json.at("shape").elements()) {
    field.shape.push_back(size.number());
    const bool differs = field.shape.size() == 1 && field.shape[0] == -1;
    if (field.shape.back() < 0 && !differs) size.refuse("a size");
  }
  return field;
}

}  // namespace

std::string to_json(const Meta& meta) {
  nlohmann::ordered_json json;
  json["version"] = kVersion;
  json["container"] = name_of(meta.kind);
  json["count"] = meta.count;
  json["fields"] = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < meta.fields.size(); ++i) {
    const Field& field = meta.fields[i];
    nlohmann::ordered_json one;
    one["name"] = field.name;
    one["stored"] = meta.stored[i];
    one["kind"] = name_of(field.kind);
    if (field.kind == FieldKind::kTensor) {
      one["type"] = format::name_of(field.type);
      one["shape"] = field.shape;
    }
    json["fields"].push_back(one);
  }
  json["classes"] = meta.classes;
  if (meta.compression == Compression::kZstd) json["compression"] = "zstd";
  if (!meta.shards.empty()) json["shards"] = meta.shards;
  json["hashes"] = format::hash_text(meta.hashes);
  std::string text = json.dump(1);
  text.resize(text.size() - 2);  // without "\n}"
  text += fmt::format(",\n {}", kHashKey);
  return text + hash_before_key(text) + "\"\n}\n";
}

Meta parse_meta(std::string_view json, const std::string& file) {
  const nlohmann::json value = format::parse_json(json, file);
  const format::JsonPart all(value, file, kFixMeta);
  if (all.at("version").number() != kVersion) all.at("version").refuse(fmt::format("{}", kVersion));
  const std::string hash = hash_before_key(json);
  if (all.at("hash").text() != hash) all.at("hash").refuse(hash, "does not match the content");
  const auto kind = container_kind_of(all.at("container").text());
  if (!kind) all.at("container").refuse("LMDB, HDF5, TFRecord or tar");
  Meta meta{.kind = *kind, .count = all.at("count").number()};
  if (meta.count < 1 || meta.count > kMostSamples) all.at("count").refuse("a number of samples, at least 1");
  for (const format::JsonPart& field : all.at("fields").elements()) {
    meta.fields.push_back(field_of(field));
    meta.stored.push_back(field.at("stored").text());
  }
  for (const format::JsonPart& name : all.at("classes").elements()) meta.classes.push_back(name.text());
  const std::string compression = all.at("compression").text("none");
  if (compression != "none" && compression != "zstd") all.at("compression").refuse("zstd");
  if (compression == "zstd") meta.compression = Compression::kZstd;
  if (!all.at("shards").is_null()) {
    for (const format::JsonPart& name : all.at("shards").elements()) meta.shards.push_back(name.text());
  }
  const std::string hashes = all.at("hashes").text();
  constexpr int kHexadecimal = 16;
  meta.hashes = std::strtoull(hashes.c_str(), nullptr, kHexadecimal);
  if (meta.fields.empty()) all.at("fields").refuse("at least one field");
  return meta;
}

std::vector<std::uint64_t> parse_hashes(std::span<const std::byte> bytes, const Meta& meta, const std::string& file) {
  const auto count = static_cast<std::uint64_t>(meta.count);
  if (bytes.size() != count * sizeof(std::uint64_t)) {
    fail_damaged(fmt::format("{}, {}", file, kHashesName), fmt::format("{} bytes", bytes.size()),
                 fmt::format("8 for each of the {} samples", count));
  }
  if (format::hash64(bytes) != meta.hashes) {
    fail_damaged(fmt::format("{}, {}", file, kHashesName), format::hash_text(format::hash64(bytes)),
                 fmt::format("the hash {} of {}", format::hash_text(meta.hashes), kMetaName));
  }
  std::vector<std::uint64_t> hashes(count);
  std::memcpy(hashes.data(), bytes.data(), bytes.size());
  return hashes;
}

std::span<const std::byte> bytes_of_hashes(const std::vector<std::uint64_t>& hashes) {
  return std::as_bytes(std::span(hashes));
}

std::vector<Candidate> candidates_of(const Meta& meta) {
  std::vector<Candidate> candidates;
  for (std::size_t i = 0; i < meta.fields.size(); ++i) candidates.push_back({meta.stored[i], meta.fields[i]});
  return candidates;
}

bool is_packed(const Field& field, Compression compression) {
  return compression == Compression::kZstd && (field.kind == FieldKind::kTensor || field.kind == FieldKind::kBytes);
}

}  // namespace reigen::container
