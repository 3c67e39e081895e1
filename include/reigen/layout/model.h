// What a model is made of: its tensors by name, without their memory.
// Thread rule: values.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "reigen/format/safetensors.h"
#include "reigen/layout/part.h"

namespace reigen::layout {

inline constexpr std::size_t kNoUnit = static_cast<std::size_t>(-1);

struct TensorSpec {
  std::string name;                       // "conv1.weight"
  std::vector<std::string> aliases = {};  // further names of a tied tensor
  Shape shape = {};
  format::TensorType type = format::TensorType::kF32;
  bool trainable = true;
  bool packs = true;           // may lie in a flat buffer beside others; false: a tensor of integers, for example
  std::size_t unit = kNoUnit;  // of ModelSpec::units; kNoUnit: read outside of all units
  int stage = 0;               // of a pipeline

  bool operator==(const TensorSpec&) const = default;
};

struct ModelSpec {
  std::vector<TensorSpec> tensors = {};  // in the order of registration
  std::vector<std::string> units = {};   // parts of the model that are gathered and averaged as one
};

// One state that an optimizer or an average keeps of every trainable tensor.
struct StateSpec {
  std::string name;  // "exp_avg"
  // The type of its elements; none: that of the tensor. Tensors of 16 bits may have another.
  std::optional<format::TensorType> type = {};
  std::optional<format::TensorType> type_of_16_bits = {};
  bool of_16_bits_only = false;  // master weights: tensors of more bits have none
  bool is_scalar = false;        // one element for each tensor, on every rank: a count of steps

  bool operator==(const StateSpec&) const = default;
};

}  // namespace reigen::layout
