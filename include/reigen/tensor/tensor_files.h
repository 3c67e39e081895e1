// Writes named tensors to a safetensors file, and reads them from one.
// Thread rule: the functions have no shared state.
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
  // If ranks shard the tensor, `part` says which part this rank has. A part is a box (a rectangular block) of the whole
  // tensor, or consecutive elements of a box. `tensor` then is the box, and only the elements [part->first, part->first
  // + part->count) of it are used. If the tensor is divided as a flat buffer, the box is the whole tensor. With tensor
  // parallelism the box is smaller, and `shape` is the shape of the whole tensor.
  std::optional<layout::Part> part = {};
  layout::Shape shape = {};
  // Whether all ranks along the data-parallel axes have the same part. It is a box then, and only the first of these
  // ranks writes it to a checkpoint.
  bool is_replicated = false;

  bool is_divided() const { return part.has_value(); }
  // The shape of the whole tensor.
  layout::Shape whole_shape() const { return part && !shape.empty() ? shape : layout::Shape(tensor.sizes().vec()); }
};

// Returns the module's parameters and then its buffers, with the names that they have in the module. The tensors are
// handles, not copies.
std::vector<NamedTensor> tensors_of(const torch::nn::Module& module);
// The same as tensors_of(module), with two differences. For weights that are gathered and freed one unit (part of the
// model) at a time, the result contains this rank's share. For a weight of which ranks divide a dimension, the result
// says which box this rank has.
std::vector<NamedTensor> tensors_of(const torch::nn::Module& module, const std::vector<ParameterRange>& ranges);

// Sets which part of the segment's parameter `item` is. If `has_share` is true, `item` has only this rank's share of
// the range. Otherwise it has the whole parameter, or the box of it that the rank has.
void describe_part(NamedTensor& item, const ParameterRange& range, const Segment& segment, bool has_share);

// Writes the whole file or no file. The same tensors give the same bytes. Throws InvalidArgument for an element type
// that the format does not have, and IoError if the file cannot be written.
format::FileHash write_tensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                               const std::map<std::string, std::string>& metadata = {});

// Reads all tensors of the file, in the order of the file. Throws IoError if the file cannot be read. Throws DataError
// if the file is damaged, or if LibTorch does not have a tensor's type (packed elements of 4 or 6 bits).
std::vector<NamedTensor> read_tensors(const std::filesystem::path& path);

// For each tensors[i], reads the file's tensor of the same name into the memory of tensors[i]. Throws DataError, and
// changes nothing, if a tensor is missing, unknown, or of another shape or type. The error names the first such tensor.
void read_tensors_into(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors);

}  // namespace reigen::tensor
