#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/check.h"
#include "reigen/base/error.h"
#include "reigen/format/atomic_file.h"
#include "reigen/format/safetensors.h"

namespace reigen::format {
namespace {

struct TypeRow {
  TensorType type;
  std::string_view name;
  unsigned bits;
};

constexpr std::array<TypeRow, 22> kTypes = {{{TensorType::kF64, "F64", 64},
                                             {TensorType::kF32, "F32", 32},
                                             {TensorType::kF16, "F16", 16},
                                             {TensorType::kBF16, "BF16", 16},
                                             {TensorType::kI64, "I64", 64},
                                             {TensorType::kI32, "I32", 32},
                                             {TensorType::kI16, "I16", 16},
                                             {TensorType::kI8, "I8", 8},
                                             {TensorType::kU8, "U8", 8},
                                             {TensorType::kBool, "BOOL", 8},
                                             {TensorType::kU64, "U64", 64},
                                             {TensorType::kU32, "U32", 32},
                                             {TensorType::kU16, "U16", 16},
                                             {TensorType::kC64, "C64", 64},
                                             {TensorType::kF8E4M3, "F8_E4M3", 8},
                                             {TensorType::kF8E5M2, "F8_E5M2", 8},
                                             {TensorType::kF8E4M3Fnuz, "F8_E4M3FNUZ", 8},
                                             {TensorType::kF8E5M2Fnuz, "F8_E5M2FNUZ", 8},
                                             {TensorType::kF8E8M0, "F8_E8M0", 8},
                                             {TensorType::kF6E2M3, "F6_E2M3", 6},
                                             {TensorType::kF6E3M2, "F6_E3M2", 6},
                                             {TensorType::kF4, "F4", 4}}};

const TypeRow& row_of(TensorType type) {
  const auto index = static_cast<std::size_t>(type);
  REIGEN_CHECK(index < kTypes.size(), "unknown tensor type {}", index);
  return kTypes[index];
}

std::string quoted(const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    throw InvalidArgument("a tensor name or metadata text is not valid UTF-8, which safetensors files need");
  }
}

// Computes the tensors' sizes and sorts them into the order of the file.
void lay_out(std::vector<TensorEntry>& tensors) {
  std::set<std::string_view> names;
  for (TensorEntry& tensor : tensors) {
    REIGEN_CHECK(tensor.name != "__metadata__",
                 "a tensor must not be named '__metadata__': the name is the format's own");
    REIGEN_CHECK(names.insert(tensor.name).second, "two tensors are named '{}'", tensor.name);
    const auto negative = std::find_if(tensor.shape.begin(), tensor.shape.end(), [](auto dim) { return dim < 0; });
    REIGEN_CHECK(negative == tensor.shape.end(), "tensor '{}' has a negative size: [{}]", tensor.name,
                 fmt::join(tensor.shape, ", "));
    const auto bytes = bytes_of(tensor.type, tensor.shape);
    REIGEN_CHECK(bytes, "tensor '{}' is too large, or ends inside a byte: {}", tensor.name,
                 describe(tensor.type, tensor.shape));
    tensor.bytes = *bytes;
  }
  std::sort(tensors.begin(), tensors.end(), [](const TensorEntry& a, const TensorEntry& b) {
    const auto bits_a = bits_of(a.type);
    const auto bits_b = bits_of(b.type);
    return bits_a != bits_b ? bits_a > bits_b : a.name < b.name;
  });
}

std::string header_text(const std::vector<TensorEntry>& tensors, const Metadata& metadata) {
  std::string text = "{";
  if (!metadata.empty()) {
    text += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) text += quoted(key) + ":" + quoted(value) + ",";
    text.back() = '}';
    text += ',';
  }
  std::uint64_t offset = 0;
  for (const TensorEntry& tensor : tensors) {
    text += fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}},)", quoted(tensor.name),
                        name_of(tensor.type), fmt::join(tensor.shape, ","), offset, offset + tensor.bytes);
    offset += tensor.bytes;
  }
  if (text.back() == ',') text.pop_back();
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

}  // namespace

unsigned bits_of(TensorType type) { return row_of(type).bits; }

bool has_whole_bytes(TensorType type) { return bits_of(type) % 8 == 0; }

std::size_t size_of(TensorType type) {
  REIGEN_CHECK(has_whole_bytes(type), "elements of {} have {} bits, and are packed", name_of(type), bits_of(type));
  return bits_of(type) / 8;
}

std::string_view name_of(TensorType type) { return row_of(type).name; }

std::string describe(TensorType type, std::span<const std::int64_t> shape) {
  return fmt::format("{} [{}]", name_of(type), fmt::join(shape, ", "));
}

std::optional<TensorType> tensor_type_of(std::string_view name) {
  const auto found = std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeRow& row) { return row.name == name; });
  if (found == kTypes.end()) return std::nullopt;
  return found->type;
}

const std::string& names_of_tensor_types() {
  static const std::string names = [] {
    std::string text;
    for (const TypeRow& row : kTypes) {
      if (!text.empty()) text += row.type == kTypes.back().type ? " or " : ", ";
      text += row.name;
    }
    return text;
  }();
  return names;
}

std::optional<std::uint64_t> bytes_of(TensorType type, std::span<const std::int64_t> shape) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
  // Eight elements of a packed type fill whole bytes. The size is computed from full groups of eight elements and a
  // rest, because the size of the whole tensor in bits could exceed 2^64.
  const bool packed = !has_whole_bytes(type);
  const std::uint64_t unit = packed ? 1 : bits_of(type) / 8;
  std::uint64_t count = unit;
  for (const std::int64_t dim : shape) {
    if (dim < 0) return std::nullopt;
    const auto size = static_cast<std::uint64_t>(dim);
    if (size != 0 && count > kMost / size) return std::nullopt;
    count *= size;
  }
  if (!packed) return count;
  const std::uint64_t rest_bits = count % 8 * bits_of(type);
  if (rest_bits % 8 != 0) return std::nullopt;
  return count / 8 * bits_of(type) + rest_bits / 8;
}

struct SafetensorsWriter::Impl {
  AtomicFile file;
  std::vector<TensorEntry> tensors;
  Written written = {};
  std::size_t next = 0;    // the tensor whose bytes come next
  std::uint64_t done = 0;  // bytes of this tensor that are written
  Hash64 hash = Hash64();

  // Ends tensors whose bytes are complete; a tensor without bytes is complete at once.
  void end_complete() {
    for (; next < tensors.size() && done == tensors[next].bytes; ++next, done = 0) {
      written.hashes.push_back(hash.value());
      hash = Hash64();
    }
  }
};

std::vector<TensorEntry> in_file_order(std::vector<TensorEntry> tensors) {
  lay_out(tensors);
  return tensors;
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path, std::vector<TensorEntry> tensors,
                                     const Metadata& metadata, Hashed hashed) {
  lay_out(tensors);
  const std::string header = header_text(tensors, metadata);
  const std::uint64_t length = header.size();
  REIGEN_CHECK(length <= kMaxSafetensorsHeader, "the header of '{}' would have {} bytes, more than the format's {}",
               path.string(), length, kMaxSafetensorsHeader);
  std::uint64_t offset = 8 + length;
  for (TensorEntry& tensor : tensors) {
    tensor.offset = offset;
    offset += tensor.bytes;
  }
  impl_.reset(new Impl{AtomicFile(path, hashed), std::move(tensors)});
  const auto length_bytes = std::as_bytes(std::span(&length, 1));
  const auto header_bytes = std::as_bytes(std::span(header.data(), header.size()));
  Hash64 hash;
  for (const auto& bytes : {length_bytes, header_bytes}) {
    hash.update(bytes);
    impl_->file.write(bytes);
  }
  impl_->written.header_bytes = 8 + length;
  impl_->written.header_hash = hash.value();
  impl_->end_complete();
}
SafetensorsWriter::~SafetensorsWriter() = default;
SafetensorsWriter::SafetensorsWriter(SafetensorsWriter&&) noexcept = default;
SafetensorsWriter& SafetensorsWriter::operator=(SafetensorsWriter&&) noexcept = default;

const std::vector<TensorEntry>& SafetensorsWriter::tensors() const { return impl_->tensors; }

void SafetensorsWriter::write(std::span<const std::byte> bytes) {
  constexpr std::uint64_t kAtOnce = std::uint64_t{1} << 20;  // small enough to stay in the cache between hash and write
  while (!bytes.empty()) {
    REIGEN_CHECK(impl_->next < impl_->tensors.size(), "{} bytes more than the tensors of the file have", bytes.size());
    const std::uint64_t left = impl_->tensors[impl_->next].bytes - impl_->done;
    const auto part = bytes.first(static_cast<std::size_t>(std::min({left, kAtOnce, std::uint64_t{bytes.size()}})));
    impl_->hash.update(part);
    impl_->file.write(part);
    impl_->done += part.size();
    impl_->end_complete();
    bytes = bytes.subspan(part.size());
  }
}

SafetensorsWriter::Written SafetensorsWriter::commit() {
  if (impl_->next < impl_->tensors.size()) {
    const TensorEntry& tensor = impl_->tensors[impl_->next];
    throw InvalidArgument(
        fmt::format("tensor '{}' was not written whole: {} of {} bytes", tensor.name, impl_->done, tensor.bytes));
  }
  impl_->file.commit();
  impl_->written.file = impl_->file.hash();
  return impl_->written;
}

FileHash write_safetensors(const std::filesystem::path& path, std::span<const TensorSource> tensors,
                           const Metadata& metadata) {
  std::map<std::string_view, const TensorSource*> sources;
  std::vector<TensorEntry> entries;
  for (const TensorSource& tensor : tensors) {
    sources[tensor.name] = &tensor;
    entries.push_back({.name = tensor.name, .type = tensor.type, .shape = tensor.shape});
  }
  lay_out(entries);
  for (const TensorEntry& entry : entries) {
    const TensorSource& source = *sources.at(entry.name);
    REIGEN_CHECK(entry.bytes == source.bytes.size(), "tensor '{}' of {} has {} bytes, not {}", entry.name,
                 describe(entry.type, entry.shape), source.bytes.size(), entry.bytes);
  }
  SafetensorsWriter writer(path, std::move(entries), metadata, Hashed::kWhole);
  for (const TensorEntry& entry : writer.tensors()) writer.write(sources.at(entry.name)->bytes);
  return writer.commit().file;
}

}  // namespace reigen::format
