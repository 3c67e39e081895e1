#include "reigen/container/container.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "reigen/base/error.h"
#include "reigen/format/hash.h"

namespace reigen::container {
namespace {

constexpr std::array<std::string_view, 4> kFieldKinds = {"picture", "label", "tensor", "bytes"};
constexpr std::array<std::string_view, 5> kContainerKinds = {"folder", "LMDB", "HDF5", "TFRecord", "tar"};

}  // namespace

std::string_view name_of(FieldKind kind) { return kFieldKinds[static_cast<std::size_t>(kind)]; }

std::optional<FieldKind> field_kind_of(std::string_view name) {
  const auto found = std::find(kFieldKinds.begin(), kFieldKinds.end(), name);
  if (found == kFieldKinds.end()) return std::nullopt;
  return static_cast<FieldKind>(found - kFieldKinds.begin());
}

std::string_view name_of(ContainerKind kind) { return kContainerKinds[static_cast<std::size_t>(kind)]; }

std::optional<ContainerKind> container_kind_of(std::string_view name) {
  const auto found = std::find(kContainerKinds.begin(), kContainerKinds.end(), name);
  if (found == kContainerKinds.end()) return std::nullopt;
  return static_cast<ContainerKind>(found - kContainerKinds.begin());
}

std::string describe(const Field& field) {
  if (field.kind != FieldKind::kTensor) return fmt::format("{} ({})", field.name, name_of(field.kind));
  return fmt::format("{} (tensor {})", field.name, format::describe(field.type, field.shape));
}

std::int64_t Value::label() const {
  std::int64_t number = 0;
  if (bytes.size() != sizeof number) {
    throw InvalidArgument(Report{.what = "the value is no label",
                                 .got = fmt::format("{} bytes", bytes.size()),
                                 .expected = "8 bytes",
                                 .fix = "ask for the label of a field of kind kLabel"});
  }
  std::memcpy(&number, bytes.data(), sizeof number);
  return number;
}

std::vector<std::int64_t> shape_of(const Field& field, const Value& value, const std::string& where) {
  std::vector<std::int64_t> shape = field.shape;
  const bool differs = !shape.empty() && shape[0] == -1;
  if (differs) shape[0] = 1;
  const auto one = format::bytes_of(field.type, shape);
  if (differs && one && *one > 0 && value.bytes.size() % *one == 0) {
    shape[0] = static_cast<std::int64_t>(value.bytes.size() / *one);
    return shape;
  }
  if (!differs && one && *one == value.bytes.size()) return shape;
  throw DataError(Report{.what = fmt::format("a tensor of another size in {}", where),
                         .got = fmt::format("{} bytes in '{}'", value.bytes.size(), field.name),
                         .expected = format::describe(field.type, field.shape),
                         .fix = "every sample must have the type and shape of the first"});
}

std::uint64_t Record::bytes() const {
  std::uint64_t sum = 0;
  for (const Value& value : values_) sum += value.bytes.size();
  return sum;
}

std::uint64_t hash_of(const Record& record) {
  format::Hash64 hash;
  for (const Value& value : record.values()) {
    const std::uint64_t size = value.bytes.size();
    hash.update(&size, sizeof size);
    hash.update(value.bytes);
  }
  return hash.value();
}

std::vector<std::string> Reader::stored_names() const {
  std::vector<std::string> names;
  for (const Field& field : fields()) names.push_back(field.name);
  return names;
}

}  // namespace reigen::container
