// Makes a layout from the user's options and the abilities of the machine. This one pure function makes all of these
// decisions: what "auto" means, which memory is common, what travels, what is stored on a disk.
// Thread rule: values, freely copied between threads.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "reigen/layout/layout.h"

namespace reigen::layout {

// What the ranks along axis dp_shard divide among themselves (ZeRO, https://arxiv.org/abs/1910.02054).
enum class Sharding {
  kNone,
  kOptimizer,   // states of the optimizer
  kGradients,   // states and gradients
  kParameters,  // states, gradients and weights
};
const char* to_text(Sharding sharding);  // "none", "optimizer", "gradients", "parameters"

// Tensor parallelism: divides one dimension of a tensor along an axis.
struct Split {
  std::string axis;
  std::size_t dimension = 0;
};

struct Choices {
  // No value: kGradients if gradients then need not travel at all, else kNone.
  std::optional<Sharding> sharding = Sharding::kNone;
  // From outer to inner; the sizes multiply to the number of ranks. "dp_shard" divides flat buffers; "pp" has a stage
  // of a pipeline at each coordinate; an axis of a split divides the tensors that name it. All other axes replicate.
  std::vector<Axis> axes = {};
  std::map<std::string, Split> splits = {};  // key: name of the tensor
  std::vector<StateSpec> states = {};        // states that the optimizer keeps
  // Gradients must travel in buckets, because a strategy or a bucket size was set.
  bool buckets = false;
  bool offload = false;  // states, and values that ranks divide, are stored on a disk
  bool reshard_after_forward = true;
  std::size_t group_bytes = std::size_t{25} << 20;  // tensors in no unit are gathered in groups of this size
  // The types in which fp32 values and gradients travel; not set: fp32.
  std::optional<format::TensorType> gather_type = {};
  std::optional<format::TensorType> reduce_type = {};
};

struct Machine {
  bool shares_memory = false;  // the ranks along dp_shard can read each other's memory
};

// Throws InvalidArgument naming the axis or tensor: a size below 1, an axis that occurs twice, a split along an
// unknown axis or dimension, or a split of an unknown tensor.
Layout choose(ModelSpec model, const Choices& choices, const Machine& machine);

// The sharding that choose() would use for `choices` on that machine. Needs no model.
Sharding sharding_of(const Choices& choices, const Machine& machine);

}  // namespace reigen::layout
