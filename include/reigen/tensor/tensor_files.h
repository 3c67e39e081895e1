// Named tensors to and from a safetensors file.
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
  // Where ranks divide it: what this one has. The tensor is the part's box then, of which elements [first, first +
  // count) are looked at and no others. For a flat share the box is the whole tensor; for a tensor-parallel shard it is
  // not, and `shape` is that of the whole tensor.
  std::optional<layout::Part> part = {};
  layout::Shape shape = {};

  bool is_divided() const { return part.has_value(); }
  // Of the whole tensor.
  layout::Shape whole_shape() const { return part && !shape.empty() ? shape : layout::Shape(tensor.sizes().vec()); }
};

// Parameters, then buffers, under the module's own names. Handles, not copies.
std::vector<NamedTensor> tensors_of(const torch::nn::Module& module);
// The same, of weights of which this rank has its share only (parameters that are gathered) that share.
std::vector<NamedTensor> tensors_of(const torch::nn::Module& module, const std::vector<ParameterRange>& ranges);

// Whole or absent; the same tensors give the same bytes. Throws InvalidArgument (an element type that the format does
// not know) and IoError.
format::FileHash write_tensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                               const std::map<std::string, std::string>& metadata = {});

// All tensors of the file, in its order. Throws IoError, and DataError: also for one of a type that LibTorch does not
// have (packed elements of 4 and 6 bits).
std::vector<NamedTensor> read_tensors(const std::filesystem::path& path);

// tensors[i] = the file's tensor of that name, in place. Throws DataError naming the first tensor that is missing,
// unknown or of another shape or type; nothing is changed then.
void read_tensors_into(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors);

}  // namespace reigen::tensor
