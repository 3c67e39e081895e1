#include "reigen/checkpoint/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "base/check.h"
#include "checkpoint/coverage.h"
#include "reigen/format/hash.h"

namespace reigen::checkpoint {

using nlohmann::json;

namespace {

constexpr const char* kFormat = "reigen checkpoint";
constexpr std::size_t kMostDimensions = 64;  // as many as a tensor can have in LibTorch and NumPy

// An error that says what is wrong with a manifest; from_text() adds the path of the manifest.
struct Damage : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// File names need not be UTF-8, but JSON must be, so bytes that are not UTF-8 are replaced.
std::string dump(const json& value, int indent) {
  return value.dump(indent, ' ', false, json::error_handler_t::replace);
}

json to_json(const StoredPiece& piece, const Shape& tensor) {
  json result = {{"file", piece.file},
                 {"at", piece.at},
                 {"first", piece.part.first},
                 {"count", piece.part.count},
                 {"xxh64", format::hash_text(piece.hash)}};
  const auto& offset = piece.part.offset;
  const bool at_begin = std::all_of(offset.begin(), offset.end(), [](std::int64_t o) { return o == 0; });
  if (piece.part.shape != tensor || !at_begin) {
    result["box_offset"] = piece.part.offset;
    result["box_shape"] = piece.part.shape;
  }
  return result;
}

json content_of(const Manifest& m) {
  json content = {{"format", kFormat},
                  {"format_version", kFormatVersion},
                  {"version", m.version},
                  {"step", m.step},
                  {"epoch", m.epoch},
                  {"position", m.position},
                  {"global_batch", m.global_batch},
                  {"seed", m.seed},
                  {"world_size", m.world_size},
                  {"optimizer_steps", m.optimizer_steps},
                  {"options", m.options},
                  {"mesh", json::array()},
                  {"files", json::array()},
                  {"tensors", json::object()}};
  for (const auto& [axis, size] : m.mesh) content["mesh"].push_back({{"axis", axis}, {"size", size}});
  for (const StoredFile& file : m.files) {
    content["files"].push_back({{"name", file.name},
                                {"bytes", file.bytes},
                                {"header_bytes", file.header_bytes},
                                {"header_xxh64", format::hash_text(file.header_hash)}});
  }
  for (const auto& [name, group] : m.groups) {
    json tensors = json::array();
    for (const StoredTensor& tensor : group) {
      json pieces = json::array();
      for (const StoredPiece& piece : tensor.pieces) pieces.push_back(to_json(piece, tensor.shape));
      tensors.push_back({{"name", tensor.name},
                         {"type", format::name_of(tensor.type)},
                         {"shape", tensor.shape},
                         {"pieces", std::move(pieces)}});
    }
    content["tensors"][name] = std::move(tensors);
  }
  return content;
}

std::uint64_t hash_from(const json& text) {
  const auto& digits = text.get_ref<const std::string&>();
  std::uint64_t value = 0;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  if (digits.size() != 16 || result.ec != std::errc() || result.ptr != digits.data() + digits.size()) {
    throw Damage(fmt::format("\"{}\" is no hash", digits));
  }
  return value;
}

template <class Number>
Number number_from(const json& value, const char* key) {
  const json& number = value.at(key);
  // This check is needed, because the JSON library's conversion would wrap around without an error.
  const bool fits = number.is_number_unsigned() ? number.get<std::uint64_t>() <= std::uint64_t{INT64_MAX}
                                                : number.is_number_integer() && std::is_signed_v<Number>;
  if (!fits) throw Damage(fmt::format("{} is {}", key, number.dump()));
  return number.get<Number>();
}

Shape shape_from(const json& value, const char* key) {
  Shape shape;
  if (value.at(key).size() > kMostDimensions) throw Damage(fmt::format("{} has {} numbers", key, value.at(key).size()));
  for (const json& size : value.at(key)) {
    if (!size.is_number_unsigned() || size.get<std::uint64_t>() > std::uint64_t{INT64_MAX}) {
      throw Damage(fmt::format("{} is {}", key, value.at(key).dump()));
    }
    shape.push_back(size.get<std::int64_t>());
  }
  return shape;
}

// Refuses names that lead out of the directory: a manifest with such a name could make a reader read any file.
StoredFile file_from(const json& value) {
  StoredFile file{.name = value.at("name").get<std::string>(),
                  .bytes = number_from<std::uint64_t>(value, "bytes"),
                  .header_bytes = number_from<std::uint64_t>(value, "header_bytes"),
                  .header_hash = hash_from(value.at("header_xxh64"))};
  const bool plain = !file.name.empty() && file.name[0] != '.' && file.name.find('/') == std::string::npos &&
                     file.name.find('\0') == std::string::npos;
  if (!plain) throw Damage(fmt::format("\"{}\" is no name of a file of a checkpoint", file.name));
  if (file.header_bytes > file.bytes) throw Damage(fmt::format("the header of {} is longer than it", file.name));
  return file;
}

StoredTensor tensor_from(const json& value, const std::vector<StoredFile>& files) {
  StoredTensor tensor{.name = value.at("name").get<std::string>(), .shape = shape_from(value, "shape")};
  const auto& type_text = value.at("type").get_ref<const std::string&>();
  const auto type = format::tensor_type_of(type_text);
  if (!type) throw Damage(fmt::format("{} has the unknown type {}", tensor.name, type_text));
  // Packed types are refused, because pieces hold whole elements and begin at a whole byte.
  if (!format::has_whole_bytes(*type)) throw Damage(fmt::format("{} has the packed type {}", tensor.name, type_text));
  tensor.type = *type;
  layout::numel(tensor.shape);  // throws if the number of elements overflows
  for (const json& given : value.at("pieces")) {
    StoredPiece piece{.part = layout::whole(tensor.shape),
                      .file = number_from<std::size_t>(given, "file"),
                      .at = number_from<std::uint64_t>(given, "at"),
                      .hash = hash_from(given.at("xxh64"))};
    if (given.contains("box_offset") || given.contains("box_shape")) {
      piece.part.offset = shape_from(given, "box_offset");
      piece.part.shape = shape_from(given, "box_shape");
    }
    piece.part.first = number_from<std::int64_t>(given, "first");
    piece.part.count = number_from<std::int64_t>(given, "count");
    layout::check_part(tensor.name, tensor.shape, piece.part);
    if (piece.file >= files.size()) throw Damage(fmt::format("{} is in file {}", tensor.name, piece.file));
    const std::uint64_t bytes = static_cast<std::uint64_t>(piece.part.count) * format::size_of(tensor.type);
    const StoredFile& file = files[piece.file];
    if (piece.at < file.header_bytes || piece.at > file.bytes || bytes > file.bytes - piece.at) {
      throw Damage(fmt::format("{} does not lie in {}", tensor.name, file.name));
    }
    tensor.pieces.push_back(std::move(piece));
  }
  return tensor;
}

struct Extent {
  std::uint64_t begin;
  std::uint64_t end;
  const std::string* tensor;
  bool operator<(const Extent& other) const { return std::pair(begin, end) < std::pair(other.begin, other.end); }
};

// Checks that header and pieces fill each file without gap or overlap, so that every byte has a hash.
void check_files(const Manifest& m) {
  std::vector<std::vector<Extent>> extents(m.files.size());
  for (const auto& [group, tensors] : m.groups) {
    for (const StoredTensor& tensor : tensors) {
      for (const StoredPiece& piece : tensor.pieces) {
        const auto bytes = static_cast<std::uint64_t>(piece.part.count) * format::size_of(tensor.type);
        extents[piece.file].push_back({piece.at, piece.at + bytes, &tensor.name});
      }
    }
  }
  for (std::size_t i = 0; i < m.files.size(); ++i) {
    const StoredFile& file = m.files[i];
    std::sort(extents[i].begin(), extents[i].end());
    std::uint64_t end = file.header_bytes;
    for (const Extent& extent : extents[i]) {
      if (extent.begin != end) {
        throw Damage(fmt::format("{} {} before byte {} of {}", *extent.tensor,
                                 extent.begin < end ? "begins" : "leaves a hole", std::max(end, extent.begin),
                                 file.name));
      }
      end = extent.end;
    }
    if (end != file.bytes) throw Damage(fmt::format("byte {} of {} is of no tensor", end, file.name));
  }
}

void check_names(const Manifest& m) {
  std::set<std::string_view> files;
  for (const StoredFile& file : m.files) {
    if (!files.insert(file.name).second) throw Damage(fmt::format("file {} comes twice", file.name));
  }
  for (const auto& [group, tensors] : m.groups) {
    std::set<std::string_view> names;
    for (const StoredTensor& tensor : tensors) {
      if (!names.insert(tensor.name).second) throw Damage(fmt::format("{} {} comes twice", group, tensor.name));
    }
  }
}

Manifest manifest_from(const json& content) {
  Manifest m{.step = number_from<std::int64_t>(content, "step"),
             .epoch = number_from<std::int64_t>(content, "epoch"),
             .position = number_from<std::int64_t>(content, "position"),
             .global_batch = number_from<std::int64_t>(content, "global_batch"),
             .seed = number_from<std::int64_t>(content, "seed"),
             .world_size = number_from<std::int64_t>(content, "world_size"),
             .optimizer_steps = number_from<std::int64_t>(content, "optimizer_steps"),
             .options = content.at("options").get<std::map<std::string, std::string>>(),
             .version = content.at("version").get<std::string>()};
  for (const json& axis : content.at("mesh")) {
    m.mesh.emplace_back(axis.at("axis").get<std::string>(), number_from<std::int64_t>(axis, "size"));
  }
  for (const json& file : content.at("files")) m.files.push_back(file_from(file));
  for (const auto& [name, tensors] : content.at("tensors").items()) {
    Group& group = m.groups[name];
    for (const json& tensor : tensors) group.push_back(tensor_from(tensor, m.files));
  }
  check_names(m);
  check_files(m);
  return m;
}

std::string seal(const json& content) {
  const std::string text = dump(content, -1);
  return dump({{"content", content}, {"xxh64", format::hash_text(format::hash64(text.data(), text.size()))}}, 1) + '\n';
}

}  // namespace

std::uint64_t Manifest::bytes() const {
  std::uint64_t sum = 0;
  for (const StoredFile& file : files) sum += file.bytes;
  return sum;
}

const StoredTensor* Manifest::find(std::string_view group, std::string_view name) const {
  const auto found = groups.find(std::string(group));
  if (found == groups.end()) return nullptr;
  const auto tensor = std::find_if(found->second.begin(), found->second.end(),
                                   [&](const StoredTensor& one) { return one.name == name; });
  return tensor == found->second.end() ? nullptr : &*tensor;
}

std::string to_text(const Manifest& manifest) { return seal(content_of(manifest)); }

Manifest from_text(std::string_view text, const std::string& where) {
  const auto damaged = [&](const std::string& how) {
    return DataError(Report{.what = fmt::format("{} is damaged: {}", where, how),
                            .fix = "take an older checkpoint; it is passed over where the newest whole one is sought"});
  };
  // Limits the nesting to a depth that no manifest has, so that a file of many brackets cannot overflow the stack.
  const auto shallow = [](int depth, json::parse_event_t, json&) {
    if (depth > 16) throw Damage("it is nested too deeply");
    return true;
  };
  try {
    const json sealed = json::parse(text, shallow, false);
    const auto content = sealed.is_object() ? sealed.find("content") : sealed.end();
    if (!sealed.is_object() || content == sealed.end() || !content->is_object()) {
      throw damaged("not the JSON of a manifest");
    }
    const auto version = content->value("format_version", json());
    if (version.is_number_integer() && version != kFormatVersion) {
      throw Error(ExitCode::kJobMismatch, Report{.what = fmt::format("{} is of another version of the format", where),
                                                 .got = fmt::format("format version {}", version.dump()),
                                                 .expected = fmt::format("{}", kFormatVersion),
                                                 .fix = "read it with the program that wrote it"});
    }
    if (seal(*content) != text) throw damaged("its hash differs");
    Manifest manifest = manifest_from(*content);
    // If writing the manifest again gives a different text, the file has something that this version never writes, for
    // example an unknown entry. This is damage.
    if (to_text(manifest) != text) throw damaged("it holds what a manifest of its version does not");
    return manifest;
  } catch (const json::exception& problem) {
    throw damaged(problem.what());
  } catch (const InvalidArgument& problem) {
    throw damaged(problem.what());
  } catch (const Damage& problem) {
    throw damaged(problem.what());
  }
}

void check_coverage(const Manifest& manifest, const std::string& where) {
  for (const auto& [group, tensors] : manifest.groups) {
    for (const StoredTensor& tensor : tensors) {
      std::vector<const Part*> parts;
      for (const StoredPiece& piece : tensor.pieces) parts.push_back(&piece.part);
      const std::optional<std::string> wrong = what_parts_miss(tensor.shape, parts);
      if (!wrong) continue;
      throw DataError(
          Report{.what = fmt::format("{}: the pieces of {} {} do not make it up", where, group, tensor.name),
                 .got = *wrong,
                 .expected = fmt::format("{} elements, each once", layout::numel(tensor.shape))});
    }
  }
}

}  // namespace reigen::checkpoint
