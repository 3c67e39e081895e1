// Describes the tensors of a model: their names, shapes and types, but not their elements.
// Thread rule: these types are values; every thread may have its own copy.
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
  bool packs = true;           // may share a flat buffer with other tensors; false, for example, for integers
  std::size_t unit = kNoUnit;  // index in ModelSpec::units; kNoUnit means that the tensor belongs to no unit
  std::size_t optimizer = 0;   // the number of the optimizer that steps it; each optimizer has buffers of its own
  int stage = 0;               // the coordinate on axis "pp" of the ranks that hold it (pipeline parallelism)
  // Further coordinates on axis "pp", of ranks whose stages use the tensor too (tied weights). These ranks hold copies,
  // which they do not write to checkpoints.
  std::vector<int> copies = {};

  bool operator==(const TensorSpec&) const = default;
};

struct ModelSpec {
  std::vector<TensorSpec> tensors = {};  // in the order of registration
  std::vector<std::string> units = {};   // names of the units: parts that are each gathered and averaged as a whole
};

// A state that an optimizer, or a moving average of the weights, keeps for every trainable tensor of the model.
struct StateSpec {
  std::string name;  // "exp_avg"
  // The element type of the state. If `type` is not set, the state has the type of the model's tensor. If
  // type_of_16_bits is set, the states of tensors with a 16-bit type have this type instead.
  std::optional<format::TensorType> type = {};
  std::optional<format::TensorType> type_of_16_bits = {};
  bool of_16_bits_only = false;               // for master weights: only 16-bit tensors have this state
  std::optional<std::size_t> optimizer = {};  // only tensors of this optimizer have the state; not set: all
  bool is_scalar = false;  // one element for each tensor, on every rank; for example a count of steps

  bool operator==(const StateSpec&) const = default;
};

}  // namespace reigen::layout
