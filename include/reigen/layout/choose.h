// choose() is a pure function that makes a layout from the user's options and from the abilities of the machine. A
// layout says which rank holds which part of each tensor (layout.h). choose() makes all of these decisions: which
// sharding "auto" means, which memory is common to the ranks, which data are sent, and which data are stored on a disk.
// Thread rule: these types are values; every thread may have its own copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "reigen/layout/layout.h"

namespace reigen::layout {

// Says which data are divided among the ranks along the axis "dp_shard", so that each of these ranks holds only its
// share (ZeRO, https://arxiv.org/abs/1910.02054).
enum class Sharding {
  kNone,
  kOptimizer,   // optimizer states
  kGradients,   // optimizer states and gradients
  kParameters,  // optimizer states, gradients and weights
};
const char* to_text(Sharding sharding);  // "none", "optimizer", "gradients", "parameters"

// Tensor parallelism: one dimension of a tensor is divided among the ranks along `axis`.
struct Split {
  std::string axis;
  std::size_t dimension = 0;
  std::int64_t block = 1;  // elements of the dimension that stay together, for example the width of a head
  // The dimension consists of so many sections of the same size, and each rank has its part of each section. Only
  // dimension 0 may have more than one.
  std::int64_t sections = 1;
};

struct Choices {
  // No value means "auto". choose() then uses kGradients if three conditions hold: the ranks share memory, `buckets` is
  // false, and axis dp_replicate has size 1. Under these conditions kGradients sends no gradients, because each rank
  // reads the other ranks' gradients in the shared memory. If a condition does not hold, choose() uses kNone.
  std::optional<Sharding> sharding = Sharding::kNone;
  // The axes of the grid of ranks, from outer to inner. The product of their sizes is the number of ranks. Flat
  // buffers, which hold several tensors one after the other, are divided among the ranks along axis "dp_shard". The
  // ranks of each coordinate on axis "pp" hold their stages of a pipeline. If `splits` names an axis for a tensor, the
  // tensor is divided among the ranks along this axis. Along all other axes the ranks hold the same data; along
  // "dp_replicate" and "cp" they average their gradients.
  std::vector<Axis> axes = {};
  std::map<std::string, Split> splits = {};  // key: name of the tensor
  std::vector<StateSpec> states = {};        // states that the optimizer keeps
  // True if gradients must be sent in buckets, because the user has set a strategy or the size of a bucket.
  bool buckets = false;
  // If true, optimizer states and sharded weights are stored on a disk. If the model is on a GPU, optimizer states are
  // stored in pinned memory of the host instead, and weights remain on the GPU.
  bool offload = false;
  // If true, the weights of a unit (part of the model) are freed after its forward and gathered again for its backward.
  bool reshard_after_forward = true;
  std::size_t group_bytes = std::size_t{25} << 20;  // tensors that are in no unit are gathered in groups of this size
  // The types in which fp32 weights (gather_type) and fp32 gradients (reduce_type) are sent. A type that is not set
  // means fp32.
  std::optional<format::TensorType> gather_type = {};
  std::optional<format::TensorType> reduce_type = {};
};

struct Machine {
  bool shares_memory = false;     // the ranks along dp_shard can read each other's memory
  bool has_model_on_gpu = false;  // the tensors of the model are in the memory of a GPU
};

// Throws InvalidArgument, naming the axis or tensor, for an axis whose size is below 1 or that occurs twice; for a
// Split of an unknown tensor or along an unknown dimension; and for a Split along an axis that is unknown, dp_shard or
// pp.
Layout choose(ModelSpec model, const Choices& choices, const Machine& machine);

// The sharding that choose() uses for these choices on this machine if dp_shard has more than one rank. Needs no model.
Sharding sharding_of(const Choices& choices, const Machine& machine);

}  // namespace reigen::layout
