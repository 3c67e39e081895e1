#include "reigen/tensor/tensor_files.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/module.h>

#include <cstring>

#include "base/check.h"
#include "reigen/format/safetensors.h"
#include "tensor/stored_type.h"

namespace reigen::tensor {

namespace {

void read_into(const format::SafetensorsFile& file, const format::TensorEntry& entry, const at::Tensor& tensor) {
  file.read(entry, {static_cast<std::byte*>(tensor.data_ptr()), static_cast<std::size_t>(entry.bytes)});
}

}  // namespace

void describe_part(NamedTensor& item, const ParameterRange& range, const Segment& segment, bool has_share) {
  if (!has_share && !segment.box) return;
  item.part = has_share ? range.part_of(segment) : segment.box->part;
  if (segment.box) item.shape = segment.box->whole;
  item.is_replicated = !has_share;
}

std::vector<NamedTensor> tensors_of(const torch::nn::Module& module) {
  std::vector<NamedTensor> tensors;
  for (const auto& item : module.named_parameters()) tensors.push_back({item.key(), item.value()});
  for (const auto& item : module.named_buffers()) tensors.push_back({item.key(), item.value()});
  return tensors;
}

std::vector<NamedTensor> tensors_of(const torch::nn::Module& module, const std::vector<ParameterRange>& ranges) {
  std::vector<NamedTensor> tensors = tensors_of(module);
  for (const ParameterRange& range : ranges) {
    const bool has_share = range.sharing().whole() != nullptr;
    for (const Segment& segment : range.segments()) {
      if (!has_share && !segment.box) continue;
      for (NamedTensor& item : tensors) {
        if (item.tensor.unsafeGetTensorImpl() != segment.parameter.unsafeGetTensorImpl()) continue;
        if (has_share) item.tensor = range.values().narrow(0, segment.offset, segment.numel).view(segment.shape);
        describe_part(item, range, segment, has_share);
      }
    }
  }
  return tensors;
}

format::FileHash write_tensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                               const std::map<std::string, std::string>& metadata) {
  std::vector<at::Tensor> kept;
  std::vector<format::TensorSource> sources;
  for (const NamedTensor& item : tensors) {
    const at::Tensor& tensor = kept.emplace_back(item.tensor.detach().cpu().contiguous());
    sources.push_back({.name = item.name,
                       .type = stored_type(item.name, tensor.scalar_type()),
                       .shape = tensor.sizes().vec(),
                       .bytes = {static_cast<const std::byte*>(tensor.data_ptr()), tensor.nbytes()}});
  }
  return format::write_safetensors(path, sources, metadata);
}

std::vector<NamedTensor> read_tensors(const std::filesystem::path& path) {
  const format::SafetensorsFile file(path);
  std::vector<NamedTensor> tensors;
  for (const format::TensorEntry& entry : file.tensors()) {
    const at::ScalarType type = scalar_type_of(entry.name, entry.type);
    tensors.push_back({entry.name, at::empty(entry.shape, at::TensorOptions().dtype(type))});
    read_into(file, entry, tensors.back().tensor);
  }
  return tensors;
}

void read_tensors_into(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors) {
  const format::SafetensorsFile file(path);
  const auto describe = [](const NamedTensor& item) {
    return format::describe(stored_type(item.name, item.tensor.scalar_type()), item.tensor.sizes());
  };
  for (const NamedTensor& item : tensors) {
    const format::TensorEntry& entry = file.at(item.name);
    if (at::IntArrayRef(entry.shape) != item.tensor.sizes() ||
        stored_type(item.name, item.tensor.scalar_type()) != entry.type) {
      throw DataError(Report{.what = fmt::format("{}: {} does not fit the model", path.string(), item.name),
                             .got = format::describe(entry.type, entry.shape),
                             .expected = describe(item)});
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
    if (target.is_contiguous() && target.device().is_cpu()) {
      read_into(file, entry, target);
    } else {
      const at::Tensor loaded = at::empty(entry.shape, target.options().device(at::kCPU));
      read_into(file, entry, loaded);
      target.copy_(loaded);
    }
  }
}

}  // namespace reigen::tensor
