// What a strategy can be told (strategies.h says what each does). LibTorch is not needed to read it.
#pragma once

#include <cstdint>

#include "reigen/base/fields.h"
#include "reigen/base/one_of.h"

namespace reigen::parallel {

// kOfWeights: ranks' weights differ between its steps. kKeepsErrors: what a rank could not give is part of a later
// gradient, which a changing loss scale would spoil.
struct PlainOptions {
  static constexpr const char* kName = "plain";
};
inline void describe(Fields&, PlainOptions&) {}
struct Bf16Options {
  static constexpr const char* kName = "bf16";
};
inline void describe(Fields&, Bf16Options&) {}
struct Fp16Options {
  static constexpr const char* kName = "fp16";
};
inline void describe(Fields&, Fp16Options&) {}

// Vogels et al., https://arxiv.org/abs/1905.13727. A parameter of two or more dimensions is a matrix of shape[0] rows;
// others, and those that would not shrink, travel as they are. Exact where `rank` is the smaller side.
struct PowerSgdOptions {
  static constexpr const char* kName = "power_sgd";
  static constexpr bool kKeepsErrors = true;

  std::int64_t rank = 2;         // 1 to 63
  std::int64_t start_step = 10;  // plain before: gradients change fast at first
  std::uint64_t seed = 0;        // of the first Q
};
inline void describe(Fields& fields, PowerSgdOptions& o) {
  fields.add("matrix_rank", o.rank, at_least(1).up_to(63), "rank of what a gradient is sent as");
  fields.add("start_step", o.start_step, at_least(0), "steps with plain averages at first");
  fields.add("seed", o.seed, at_least(0), "of the first factor");
}

// The largest by magnitude, parameter by parameter, at least one of each. Lin et al., https://arxiv.org/abs/1712.01887
struct TopKOptions {
  static constexpr const char* kName = "top_k";
  static constexpr bool kKeepsErrors = true;

  double share = 0.01;  // of a parameter's elements, in (0, 1]
};
inline void describe(Fields& fields, TopKOptions& o) {
  fields.add("share", o.share, above(0).up_to(1), "of a parameter's elements that travel");
}

// Signs, and the mean magnitude of 256 elements at a time. Seide et al., 1-Bit Stochastic Gradient Descent, Interspeech
// 2014; Karimireddy et al., https://arxiv.org/abs/1901.09847
struct OneBitOptions {
  static constexpr const char* kName = "one_bit";
  static constexpr bool kKeepsErrors = true;

  std::int64_t start_step = 50;  // plain before: optimizers that adapt need to see magnitudes first
};
inline void describe(Fields& fields, OneBitOptions& o) {
  fields.add("start_step", o.start_step, at_least(0), "steps with plain averages at first");
}

// Maleki et al., https://arxiv.org/abs/2006.02924: parameter by parameter, what agrees is averaged, what is orthogonal
// added. Rates as for one rank. P ranks that are no power of 2: those above the largest one below P give theirs to one
// rank each before, which tells them the result behind and gives 4·N more.
enum class AdasumOf {
  // Each rank's optimizer steps alone, with a state of its own, and the changes are brought together behind every step:
  // as in the paper and in Horovod. Behind after_step() weights are equal, bit by bit. Weights that were loaded since
  // the step before, the same on all ranks, count as part of the change, which is averaged then.
  kSteps,
  // Before the optimizer, which then makes of a sum and of a mean nearly the same step where it scales gradients
  // (AdamW). For what asks for one state of the optimizer on all ranks: Join, Shard::kOptimizer, closures.
  kGradients,
};
struct AdasumOptions {
  static constexpr const char* kName = "adasum";
  static constexpr bool kOfWeights = true;

  AdasumOf of = AdasumOf::kSteps;
};
inline void describe(Fields&, AdasumOptions&) {}

// Stich, https://arxiv.org/abs/1805.09767; with start_step, Lin et al., https://arxiv.org/abs/1808.07217 (post-local).
struct LocalSgdOptions {
  static constexpr const char* kName = "local_sgd";
  static constexpr bool kOfWeights = true;

  std::int64_t every = 8;       // steps between two averages; at least 1
  std::int64_t start_step = 0;  // gradients are averaged before
};
inline void describe(Fields& fields, LocalSgdOptions& o) {
  fields.add("every", o.every, at_least(1), "steps between two averages of the weights");
  fields.add("start_step", o.start_step, at_least(0), "steps with plain averages at first");
}

// Ranks r with equal r / group_size are a group: a machine's, say.
struct HierarchicalSgdOptions {
  static constexpr const char* kName = "hierarchical_sgd";
  static constexpr bool kOfWeights = true;

  std::int64_t group_size = 2;    // at least 1
  std::int64_t every = 2;         // steps between two averages of a group; at least 1
  std::int64_t global_every = 4;  // of those between two of all; at least 1
};
inline void describe(Fields& fields, HierarchicalSgdOptions& o) {
  fields.add("group_size", o.group_size, at_least(1).up_to(1e9), "ranks that average among themselves");
  fields.add("every", o.every, at_least(1), "steps between two averages of the weights");
  fields.add("global_every", o.global_every, at_least(1), "averages of a group between two of all ranks");
}

// Douillard et al., https://arxiv.org/abs/2311.08105
struct DilocoOptions {
  static constexpr const char* kName = "diloco";
  static constexpr bool kOfWeights = true;

  std::int64_t every = 50;      // steps between two outer steps; at least 1
  double outer_lr = 0.7;        // above 0
  double outer_momentum = 0.9;  // in [0, 1)
};
inline void describe(Fields& fields, DilocoOptions& o) {
  fields.add("every", o.every, at_least(1), "steps between two averages of the weights");
  fields.add("outer_lr", o.outer_lr, above(0).up_to(1e6), "learning rate of the outer step");
  fields.add("outer_momentum", o.outer_momentum, at_least(0).below(1), "momentum of the outer step");
}

// Lian et al., https://arxiv.org/abs/1705.09056; Assran et al., https://arxiv.org/abs/1811.10792
enum class Topology {
  kRing,         // both neighbours in every step
  kExponential,  // one rank in step t: r + 2^(t mod log2 P); after log2 P steps every rank has heard of every other
};
struct GossipOptions {
  static constexpr const char* kName = "gossip";
  static constexpr bool kOfWeights = true;

  Topology topology = Topology::kRing;
};
inline void describe(Fields& fields, GossipOptions& o) {
  fields.add("topology", o.topology, {"ring", "exponential"}, "with whom a rank averages").none = "ring";
}

// On a ring. A rank tells its neighbours how its weights changed since it last did, in 8 bits, and what rounding left
// is part of the next change; it uses what has come and never waits for what is less than `staleness` steps behind.
// Lian et al., https://arxiv.org/abs/1710.06952; Koloskova et al., https://arxiv.org/abs/1902.00340
struct AsyncGossipOptions {
  static constexpr const char* kName = "async_gossip";
  static constexpr bool kOfWeights = true;

  std::int64_t staleness = 4;  // at least 0
};
inline void describe(Fields& fields, AsyncGossipOptions& o) {
  fields.add("staleness", o.staleness, at_least(0).up_to(1000), "steps that a rank may be ahead of what it has heard");
}

// A parameter server with bounded staleness whose part every rank plays for itself: changes, divided by P, go to all
// ranks, and each adds them when they come. Ho et al., More Effective Distributed ML via a Stale Synchronous Parallel
// Parameter Server, NIPS 2013
struct StaleSynchronousOptions {
  static constexpr const char* kName = "stale_synchronous";
  static constexpr bool kOfWeights = true;

  std::int64_t staleness = 2;  // no rank waits for changes of less than so many steps ago; at least 0
};
inline void describe(Fields& fields, StaleSynchronousOptions& o) {
  fields.add("staleness", o.staleness, at_least(0).up_to(1000), "steps that a rank may be ahead of what it has heard");
}

using AnyStrategy = OneOf<PlainOptions, Bf16Options, Fp16Options, PowerSgdOptions, TopKOptions, OneBitOptions,
                          AdasumOptions, LocalSgdOptions, HierarchicalSgdOptions, DilocoOptions, GossipOptions,
                          AsyncGossipOptions, StaleSynchronousOptions>;

}  // namespace reigen::parallel
