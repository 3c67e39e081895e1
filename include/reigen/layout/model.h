// The tensors of a model by name, without their memory.
// Thread rule: values, freely copied between threads.
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
  std::vector<std::string> aliases = {};  // the other names of a tied tensor
  Shape shape = {};
  format::TensorType type = format::TensorType::kF32;
  bool trainable = true;
  bool packs = true;           // may share a flat buffer with others; false, for example, for a tensor of integers
  std::size_t unit = kNoUnit;  // index in ModelSpec::units; kNoUnit: the tensor belongs to no unit
  int stage = 0;               // stage of a pipeline

  bool operator==(const TensorSpec&) const = default;
};

struct ModelSpec {
  std::vector<TensorSpec> tensors = {};  // in the order of registration
  std::vector<std::string> units = {};   // names of the model's parts that are each gathered and averaged in one piece
};

// A state that an optimizer or an average keeps of every trainable tensor.
struct StateSpec {
  std::string name;  // "exp_avg"
  // The type of the state's elements; not set: the type of the tensor. For 16-bit tensors type_of_16_bits replaces it.
  std::optional<format::TensorType> type = {};
  std::optional<format::TensorType> type_of_16_bits = {};
  bool of_16_bits_only = false;  // for master weights: only 16-bit tensors have this state
  bool is_scalar = false;        // one element for each tensor, on every rank; for example a count of steps

  bool operator==(const StateSpec&) const = default;
};

}  // namespace reigen::layout
