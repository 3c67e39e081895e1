// From what a user asks for and what the machine can do to a layout. One pure function takes every such decision: what
// "auto" is, which memory is common, what travels, what goes to a disk.
// Thread rule: values.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "reigen/layout/layout.h"

namespace reigen::layout {

// What the ranks of axis dp_shard divide between them (ZeRO, https://arxiv.org/abs/1910.02054).
enum class Sharding {
  kNone,
  kOptimizer,   // states of the optimizer
  kGradients,   // and gradients
  kParameters,  // and weights
};
const char* to_text(Sharding sharding);  // "none", "optimizer", "gradients", "parameters"

// Tensor parallelism: one dimension of a tensor is divided along an axis.
struct Split {
  std::string axis;
  std::size_t dimension = 0;
};

struct Choices {
  // None: kGradients where nothing needs to travel for it, else kNone.
  std::optional<Sharding> sharding = Sharding::kNone;
  // Outer to inner; their sizes multiply to the number of ranks. "dp_shard" divides, "pp" has a stage of a pipeline at
  // each coordinate, axes of splits divide the tensors that name them; all others replicate.
  std::vector<Axis> axes = {};
  std::map<std::string, Split> splits = {};  // by the name of the tensor
  std::vector<StateSpec> states = {};        // what the optimizer keeps
  // Gradients travel in buckets in any case: a strategy or a size of buckets was asked for.
  bool buckets = false;
  bool offload = false;  // states, and values that ranks divide, lie on a disk
  bool reshard_after_forward = true;
  std::size_t group_bytes = std::size_t{25} << 20;  // of tensors of no unit that are gathered as one
  // Types in which fp32 values and gradients travel; none: their own.
  std::optional<format::TensorType> gather_type = {};
  std::optional<format::TensorType> reduce_type = {};
};

struct Machine {
  bool shares_memory = false;  // the ranks along dp_shard have memory in common
};

// Throws InvalidArgument naming the axis or tensor: sizes below 1, a name twice, a split of an axis, a dimension or a
// tensor that there is not.
Layout choose(ModelSpec model, const Choices& choices, const Machine& machine);

// The sharding that `choices` come to on that machine, without a model.
Sharding sharding_of(const Choices& choices, const Machine& machine);

}  // namespace reigen::layout
