#include "container/tar/npy.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/text.h"
#include "container/sample.h"

namespace reigen::container {
namespace {

using format::TensorType;

constexpr std::string_view kNpyMagic("\x93NUMPY", 6);
constexpr std::size_t kNpyAlignment = 64;

constexpr std::pair<std::string_view, TensorType> kNpyTypes[] = {
    {"<f8", TensorType::kF64},  {"<f4", TensorType::kF32}, {"<f2", TensorType::kF16}, {"<i8", TensorType::kI64},
    {"<i4", TensorType::kI32},  {"<i2", TensorType::kI16}, {"|i1", TensorType::kI8},  {"|u1", TensorType::kU8},
    {"|b1", TensorType::kBool}, {"<u8", TensorType::kU64}, {"<u4", TensorType::kU32}, {"<u2", TensorType::kU16},
    {"<c8", TensorType::kC64}};

// The text behind `'key': ` in the dictionary.
std::optional<std::string_view> value_of_key(std::string_view head, std::string_view key) {
  const auto at = head.find(fmt::format("'{}':", key));
  if (at == std::string_view::npos) return std::nullopt;
  head.remove_prefix(at + key.size() + 3);
  head.remove_prefix(std::min(head.find_first_not_of(' '), head.size()));
  return head;
}

std::optional<std::vector<std::int64_t>> shape_in(std::string_view text) {
  if (!text.starts_with('(')) return std::nullopt;
  const auto end = text.find(')');
  if (end == std::string_view::npos) return std::nullopt;
  std::vector<std::int64_t> shape;
  for (const std::string& word : base::split(text.substr(1, end - 1), ',')) {
    if (word.empty()) continue;  // after the comma of "(3,)"
    const auto size = base::parse<std::int64_t>(word);
    if (!size || *size < 0) return std::nullopt;
    shape.push_back(*size);
  }
  return shape;
}

}  // namespace

std::string npy_head(TensorType type, const std::vector<std::int64_t>& shape) {
  const auto named =
      std::find_if(std::begin(kNpyTypes), std::end(kNpyTypes), [&](const auto& one) { return one.second == type; });
  const std::string descr =
      named != std::end(kNpyTypes) ? std::string(named->first) : fmt::format("|V{}", format::size_of(type));
  std::string sizes;
  for (const std::int64_t size : shape) sizes += fmt::format("{}{}", size, shape.size() == 1 ? "," : ", ");
  if (shape.size() > 1) sizes.resize(sizes.size() - 2);
  std::string text = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", descr, sizes);
  constexpr std::size_t kBefore = 10;
  text.append(kNpyAlignment - (kBefore + text.size() + 1) % kNpyAlignment, ' ');
  text += '\n';
  std::string head(kNpyMagic);
  head += '\1';
  head += '\0';
  head += static_cast<char>(text.size() & 0xffU);
  head += static_cast<char>(text.size() >> 8U);
  return head + text;
}

std::optional<Npy> parse_npy(std::span<const std::byte> file) {
  const std::string_view all = text_of(file);
  constexpr std::size_t kVersionOne = 10;
  constexpr std::size_t kVersionTwo = 12;
  if (!all.starts_with(kNpyMagic) || all.size() < kVersionTwo) return std::nullopt;
  const auto byte = [&](std::size_t i) { return std::size_t{static_cast<unsigned char>(all[i])}; };
  const bool is_one = all[6] == 1;
  const std::size_t before = is_one ? kVersionOne : kVersionTwo;
  const std::size_t size =
      is_one ? byte(8) | byte(9) << 8U : byte(8) | byte(9) << 8U | byte(10) << 16U | byte(11) << 24U;
  if (size > all.size() - before) return std::nullopt;
  const std::string_view head = all.substr(before, size);
  const auto descr = value_of_key(head, "descr");
  const auto order = value_of_key(head, "fortran_order");
  const auto shape_text = value_of_key(head, "shape");
  if (!descr || !order || !shape_text || !descr->starts_with('\'')) return std::nullopt;
  Npy npy{.type = {}, .shape = {}, .data = file.subspan(before + size)};
  const auto shape = shape_in(*shape_text);
  if (!shape || (order->starts_with("True") && shape->size() > 1)) return std::nullopt;
  npy.shape = *shape;
  const std::string_view name = descr->substr(1, descr->find('\'', 1) - 1);
  for (const auto& [known, type] : kNpyTypes) {
    if (name == known) npy.type = type;
  }
  if (npy.type) {
    const auto bytes = format::bytes_of(*npy.type, npy.shape);
    if (!bytes || *bytes != npy.data.size()) return std::nullopt;
  } else if (!name.starts_with("|V")) {
    return std::nullopt;
  }
  return npy;
}

}  // namespace reigen::container
