#include "reigen/checkpoint/tensors.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/module.h>

#include <cstring>

#include "base/check.h"
#include "reigen/format/safetensors.h"

namespace reigen::checkpoint {

namespace {

struct TypePair {
  at::ScalarType scalar;
  format::TensorType stored;
};

constexpr TypePair kTypes[] = {
    {at::kDouble, format::TensorType::kF64}, {at::kFloat, format::TensorType::kF32},
    {at::kHalf, format::TensorType::kF16},   {at::kBFloat16, format::TensorType::kBF16},
    {at::kLong, format::TensorType::kI64},   {at::kInt, format::TensorType::kI32},
    {at::kShort, format::TensorType::kI16},  {at::kChar, format::TensorType::kI8},
    {at::kByte, format::TensorType::kU8},    {at::kBool, format::TensorType::kBool},
};

format::TensorType stored_type(const NamedTensor& item) {
  for (const TypePair& pair : kTypes) {
    if (pair.scalar == item.tensor.scalar_type()) return pair.stored;
  }
  throw InvalidArgument(
      fmt::format("cannot store {}: safetensors has no type {}", item.name, at::toString(item.tensor.scalar_type())));
}

at::ScalarType scalar_type(const format::TensorEntry& entry) {
  for (const TypePair& pair : kTypes) {
    if (pair.stored == entry.type) return pair.scalar;
  }
  throw DataError(fmt::format("no tensor type for {} of {}", format::name_of(entry.type), entry.name));
}

void read_into(const format::SafetensorsFile& file, const format::TensorEntry& entry, const at::Tensor& tensor) {
  file.read(entry, {static_cast<std::byte*>(tensor.data_ptr()), static_cast<std::size_t>(entry.bytes)});
}

}  // namespace

std::vector<NamedTensor> tensors_of(const torch::nn::Module& module) {
  std::vector<NamedTensor> tensors;
  for (const auto& item : module.named_parameters()) tensors.push_back({item.key(), item.value()});
  for (const auto& item : module.named_buffers()) tensors.push_back({item.key(), item.value()});
  return tensors;
}

format::FileHash write_tensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                               const std::map<std::string, std::string>& metadata) {
  std::vector<at::Tensor> kept;
  std::vector<format::TensorSource> sources;
  for (const NamedTensor& item : tensors) {
    const at::Tensor& tensor = kept.emplace_back(item.tensor.detach().contiguous());
    sources.push_back({.name = item.name,
                       .type = stored_type(item),
                       .shape = tensor.sizes().vec(),
                       .bytes = {static_cast<const std::byte*>(tensor.data_ptr()), tensor.nbytes()}});
  }
  return format::write_safetensors(path, sources, metadata);
}

std::vector<NamedTensor> read_tensors(const std::filesystem::path& path) {
  const format::SafetensorsFile file(path);
  std::vector<NamedTensor> tensors;
  for (const format::TensorEntry& entry : file.tensors()) {
    tensors.push_back({entry.name, at::empty(entry.shape, at::TensorOptions().dtype(scalar_type(entry)))});
    read_into(file, entry, tensors.back().tensor);
  }
  return tensors;
}

void read_tensors_into(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors) {
  const format::SafetensorsFile file(path);
  const auto describe = [](at::ScalarType type, at::IntArrayRef shape) {
    return fmt::format("{} [{}]", at::toString(type), fmt::join(shape, ", "));
  };
  for (const NamedTensor& item : tensors) {
    const format::TensorEntry& entry = file.at(item.name);
    if (at::IntArrayRef(entry.shape) != item.tensor.sizes() || scalar_type(entry) != item.tensor.scalar_type()) {
      throw DataError(Report{.what = fmt::format("{}: {} does not fit the model", path.string(), item.name),
                             .got = describe(scalar_type(entry), entry.shape),
                             .expected = describe(item.tensor.scalar_type(), item.tensor.sizes())});
    }
  }
  if (file.tensors().size() != tensors.size()) {
    for (const format::TensorEntry& entry : file.tensors()) {
      const auto same = [&](const NamedTensor& item) { return item.name == entry.name; };
      if (std::none_of(tensors.begin(), tensors.end(), same)) {
        throw DataError(fmt::format("{}: the model has no {}", path.string(), entry.name));
      }
    }
  }
  const at::NoGradGuard no_grad;
  for (const NamedTensor& item : tensors) {
    const format::TensorEntry& entry = file.at(item.name);
    const at::Tensor target = item.tensor.detach();
    if (target.is_contiguous()) {
      read_into(file, entry, target);
    } else {
      const at::Tensor loaded = at::empty(entry.shape, target.options());
      read_into(file, entry, loaded);
      target.copy_(loaded);
    }
  }
}

}  // namespace reigen::checkpoint
