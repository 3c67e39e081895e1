#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <limits>
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
  std::size_t size;
};

constexpr std::array<TypeRow, 10> kTypes = {{{TensorType::kF64, "F64", 8},
                                             {TensorType::kF32, "F32", 4},
                                             {TensorType::kF16, "F16", 2},
                                             {TensorType::kBF16, "BF16", 2},
                                             {TensorType::kI64, "I64", 8},
                                             {TensorType::kI32, "I32", 4},
                                             {TensorType::kI16, "I16", 2},
                                             {TensorType::kI8, "I8", 1},
                                             {TensorType::kU8, "U8", 1},
                                             {TensorType::kBool, "BOOL", 1}}};

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

void check_source(const TensorSource& tensor, std::set<std::string_view>& names) {
  REIGEN_CHECK(tensor.name != "__metadata__",
               "a tensor must not be named '__metadata__': the name is the format's own");
  REIGEN_CHECK(names.insert(tensor.name).second, "two tensors are named '{}'", tensor.name);
  std::uint64_t bytes = size_of(tensor.type);
  for (const std::int64_t dim : tensor.shape) {
    REIGEN_CHECK(dim >= 0, "tensor '{}' has a negative size: [{}]", tensor.name, fmt::join(tensor.shape, ", "));
    const auto size = static_cast<std::uint64_t>(dim);
    REIGEN_CHECK(size == 0 || bytes <= std::numeric_limits<std::uint64_t>::max() / size,
                 "tensor '{}' is too large: [{}]", tensor.name, fmt::join(tensor.shape, ", "));
    bytes *= size;
  }
  REIGEN_CHECK(bytes == tensor.bytes.size(), "tensor '{}' of {} [{}] has {} bytes, not {}", tensor.name,
               name_of(tensor.type), fmt::join(tensor.shape, ", "), tensor.bytes.size(), bytes);
}

std::string header_text(const std::vector<const TensorSource*>& tensors, const Metadata& metadata) {
  std::string text = "{";
  if (!metadata.empty()) {
    text += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) text += quoted(key) + ":" + quoted(value) + ",";
    text.back() = '}';
    text += ',';
  }
  std::uint64_t offset = 0;
  for (const TensorSource* tensor : tensors) {
    text += fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}},)", quoted(tensor->name),
                        name_of(tensor->type), fmt::join(tensor->shape, ","), offset, offset + tensor->bytes.size());
    offset += tensor->bytes.size();
  }
  if (text.back() == ',') text.pop_back();
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

}  // namespace

std::size_t size_of(TensorType type) { return row_of(type).size; }

std::string_view name_of(TensorType type) { return row_of(type).name; }

std::optional<TensorType> tensor_type_of(std::string_view name) {
  const auto found = std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeRow& row) { return row.name == name; });
  if (found == kTypes.end()) return std::nullopt;
  return found->type;
}

FileHash write_safetensors(const std::filesystem::path& path, std::span<const TensorSource> tensors,
                           const Metadata& metadata) {
  std::set<std::string_view> names;
  std::vector<const TensorSource*> order;
  for (const TensorSource& tensor : tensors) {
    check_source(tensor, names);
    order.push_back(&tensor);
  }
  std::sort(order.begin(), order.end(), [](const TensorSource* a, const TensorSource* b) {
    const auto size_a = size_of(a->type);
    const auto size_b = size_of(b->type);
    return size_a != size_b ? size_a > size_b : a->name < b->name;
  });
  const std::string header = header_text(order, metadata);
  REIGEN_CHECK(header.size() <= kMaxSafetensorsHeader,
               "the header of '{}' would have {} bytes, more than the format's {}", path.string(), header.size(),
               kMaxSafetensorsHeader);
  const std::uint64_t length = header.size();
  AtomicFile file(path);
  file.write(std::as_bytes(std::span(&length, 1)));
  file.write(std::as_bytes(std::span(header.data(), header.size())));
  for (const TensorSource* tensor : order) file.write(tensor->bytes);
  file.commit();
  return file.hash();
}

}  // namespace reigen::format
