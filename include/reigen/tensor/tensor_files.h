// Writes named tensors to a safetensors file, and reads them from one.
// Thread rule: no shared state.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "reigen/format/hash.h"
#include "reigen/layout/part.h"
#include "reigen/tensor/parameter_range.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace reigen::tensor {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
  // Set if ranks shard the tensor: the part that this rank has. Then `tensor` is the part's box, and only its elements
  // [first, first + count) are used. For a flat share the box is the whole tensor. For a tensor-parallel shard the box
  // is smaller, and `shape` is the shape of the whole tensor.
  std::optional<layout::Part> part = {};
  layout::Shape shape = {};

  bool is_divided() const { return part.has_value(); }
  // The shape of the whole tensor.
  layout::Shape whole_shape() const { return part && !shape.empty() ? shape : layout::Shape(tensor.sizes().vec()); }
};

// The module's parameters, then its buffers, under the module's own names. The results are handles, not copies.
std::vector<NamedTensor> tensors_of(const torch::nn::Module& module);
// The same, but for weights that are gathered unit by unit the result contains this rank's share.
std::vector<NamedTensor> tensors_of(const torch::nn::Module& module, const std::vector<ParameterRange>& ranges);

// The file is written whole or not at all; the same tensors give the same bytes. Throws InvalidArgument for an element
// type that the format does not have, and IoError.
format::FileHash write_tensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                               const std::map<std::string, std::string>& metadata = {});

// Reads all tensors of the file, in the order of the file. Throws IoError, and DataError (also for a tensor of a type
// that LibTorch does not have: packed elements of 4 and 6 bits).
std::vector<NamedTensor> read_tensors(const std::filesystem::path& path);

// Reads into tensors[i], in place, the file's tensor of the same name. Throws DataError naming the first tensor that is
// missing, unknown or of another shape or type; in these cases nothing changes.
void read_tensors_into(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors);

}  // namespace reigen::tensor
