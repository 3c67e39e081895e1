// Makes a layout from the user's options and the abilities of the machine. One pure function makes all of these
// decisions: what "auto" means, which memory is common to the ranks, which data are sent, and which are stored on a
// disk.
// Thread rule: values, freely copied between threads.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "reigen/layout/layout.h"

namespace reigen::layout {

// The data that the ranks along axis dp_shard shard (ZeRO, https://arxiv.org/abs/1910.02054).
enum class Sharding {
  kNone,
  kOptimizer,   // states of the optimizer
  kGradients,   // states and gradients
  kParameters,  // states, gradients and weights
};
const char* to_text(Sharding sharding);  // "none", "optimizer", "gradients", "parameters"

// Tensor parallelism: the ranks along `axis` shard one dimension of a tensor.
struct Split {
  std::string axis;
  std::size_t dimension = 0;
};

struct Choices {
  // No value: kGradients if gradients then need not be sent at all, otherwise kNone.
  std::optional<Sharding> sharding = Sharding::kNone;
  // From outer to inner; the sizes multiply to the number of ranks. The ranks along "dp_shard" shard flat buffers. "pp"
  // has a stage of a pipeline at each coordinate. The ranks along the axis of a split shard the tensors that `splits`
  // gives this axis. All other axes replicate.
  std::vector<Axis> axes = {};
  std::map<std::string, Split> splits = {};  // key: name of the tensor
  std::vector<StateSpec> states = {};        // states that the optimizer keeps
  // Gradients must be sent in buckets, because a strategy or a bucket size was set.
  bool buckets = false;
  bool offload = false;  // states, and values that ranks shard, are stored on a disk
  bool reshard_after_forward = true;
  std::size_t group_bytes = std::size_t{25} << 20;  // tensors that are in no unit are gathered in groups of this size
  // The types in which fp32 values and gradients are sent; not set: fp32.
  std::optional<format::TensorType> gather_type = {};
  std::optional<format::TensorType> reduce_type = {};
};

struct Machine {
  bool shares_memory = false;  // the ranks along dp_shard can read each other's memory
};

// Throws InvalidArgument naming the axis or tensor: a size below 1, an axis that occurs twice, a split along an
// unknown axis or dimension, or a split of an unknown tensor.
Layout choose(ModelSpec model, const Choices& choices, const Machine& machine);

// The sharding that choose() uses for these choices on this machine if dp_shard has more than one rank. Needs no model.
Sharding sharding_of(const Choices& choices, const Machine& machine);

}  // namespace reigen::layout
