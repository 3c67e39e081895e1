// The options of the strategies (strategies.h says what each strategy does). This header does not need LibTorch.
#pragma once

#include <cstdint>

#include "reigen/base/fields.h"
#include "reigen/base/one_of.h"

namespace reigen::parallel {

// Each of these functions adds a row (the description of an option, fields.h) that several strategies have.
inline void add_every(Fields& fields, std::int64_t& every) {
  fields.add("every", every, at_least(1), "steps between two averages of the weights");
}
inline void add_start_step(Fields& fields, std::int64_t& start_step) {
  fields.add("start_step", start_step, at_least(0), "steps with plain averages at first");
}
inline void add_staleness(Fields& fields, std::int64_t& staleness) {
  fields.add("staleness", staleness, at_least(0).up_to(1000), "steps that a rank may be ahead of what it has heard");
}

// The constant kOfWeights in a struct means that the strategy combines weights, not gradients, so the weights of the
// ranks may differ. The constant kKeepsErrors in a struct means that a rank keeps the part of a gradient that it did
// not send, and adds this part to a later gradient. If the loss scale changes between these two gradients, the part has
// the wrong scale. The constant kHolds in a struct is the memory that a rank keeps for the strategy between steps, as a
// multiple of the memory of all trainable weights (16-bit weights count as fp32). Without kHolds it is nothing.
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

// Vogels et al., https://arxiv.org/abs/1905.13727. A parameter of two or more dimensions is treated as a matrix of
// shape[0] rows. Other parameters, and matrices that would not shrink, are sent unchanged. The result is exact if
// `rank` equals the smaller side of the matrix.
struct PowerSgdOptions {
  static constexpr const char* kName = "power_sgd";
  static constexpr int kHolds = 1;  // the parts of gradients that were not sent
  static constexpr bool kKeepsErrors = true;

  std::int64_t rank = 2;         // rank of the matrix product that is sent for a gradient; 1 to 63
  std::int64_t start_step = 10;  // plain averages before this step, because gradients change fast at first
  std::uint64_t seed = 0;        // seed of the random matrix with which the first step begins
};
inline void describe(Fields& fields, PowerSgdOptions& o) {
  fields.add("matrix_rank", o.rank, at_least(1).up_to(63), "rank of what a gradient is sent as");
  add_start_step(fields, o.start_step);
  fields.add("seed", o.seed, at_least(0), "of the first factor");
}

// Sends the elements of each parameter that have the largest magnitudes, at least one element of each parameter. Lin et
// al., https://arxiv.org/abs/1712.01887
struct TopKOptions {
  static constexpr const char* kName = "top_k";
  static constexpr int kHolds = 1;  // the parts of gradients that were not sent
  static constexpr bool kKeepsErrors = true;

  double share = 0.01;  // share of a parameter's elements that is sent, in (0, 1]
};
inline void describe(Fields& fields, TopKOptions& o) {
  fields.add("share", o.share, above(0).up_to(1), "of a parameter's elements that travel");
}

// Sends the signs, and one mean magnitude for every 256 elements. Seide et al., 1-Bit Stochastic Gradient Descent,
// Interspeech 2014; Karimireddy et al., https://arxiv.org/abs/1901.09847
struct OneBitOptions {
  static constexpr const char* kName = "one_bit";
  static constexpr int kHolds = 1;  // the parts of gradients that were not sent
  static constexpr bool kKeepsErrors = true;

  std::int64_t start_step = 50;  // plain averages before this step: adaptive optimizers must see magnitudes first
};
inline void describe(Fields& fields, OneBitOptions& o) { add_start_step(fields, o.start_step); }

// Maleki et al., https://arxiv.org/abs/2006.02924. Two ranks combine their vectors (gradients, or changes of the
// weights) for each parameter: parts in the same direction are averaged, and orthogonal parts are added. Use the
// learning rates of a training on one rank. P is the number of ranks, and N the number of weights. Let Q be the largest
// power of 2 up to P. If P is greater than Q, each rank from Q on first sends its vectors to one of the ranks below Q.
// The receiving rank returns the result at the end, and so sends 4·N bytes more.
enum class AdasumOf {
  // The optimizer of each rank steps with the rank's own gradients and its own state. After every step the changes of
  // the weights are combined, as in the paper and in Horovod. After the strategy's after_step() the weights are equal
  // on all ranks, bit by bit. If all ranks loaded the same weights since the last step, the load counts as part of each
  // rank's change; it is kept, because equal changes are averaged.
  kSteps,
  // The gradients are combined before the optimizer's step. Then an optimizer that scales gradients (AdamW) makes
  // nearly the same step with the combined gradient as with the mean. Use it where all ranks must share one optimizer
  // state: Join, Shard::kOptimizer, closures.
  kGradients,
};
struct AdasumOptions {
  static constexpr const char* kName = "adasum";
  static constexpr int kHolds = 3;  // the changes of two ranks, and the weights before the step

  AdasumOf of = AdasumOf::kSteps;
};
inline void describe(Fields& fields, AdasumOptions& o) {
  fields.add("adasum_of", o.of, {"steps", "gradients"}, "what is brought together").none = "steps";
}

// Stich, https://arxiv.org/abs/1805.09767. With start_step it is post-local SGD: Lin et al.,
// https://arxiv.org/abs/1808.07217
struct LocalSgdOptions {
  static constexpr const char* kName = "local_sgd";
  static constexpr bool kOfWeights = true;

  std::int64_t every = 8;       // steps between two averages of the weights; at least 1
  std::int64_t start_step = 0;  // the steps before this one average gradients, not weights
};
inline void describe(Fields& fields, LocalSgdOptions& o) {
  add_every(fields, o.every);
  add_start_step(fields, o.start_step);
}

// Ranks r with equal r / group_size form a group, for example the ranks of one machine.
struct HierarchicalSgdOptions {
  static constexpr const char* kName = "hierarchical_sgd";
  static constexpr bool kOfWeights = true;

  std::int64_t group_size = 2;    // at least 1
  std::int64_t every = 2;         // steps between two averages of the weights within a group; at least 1
  std::int64_t global_every = 4;  // group averages between two averages of all ranks; at least 1
};
inline void describe(Fields& fields, HierarchicalSgdOptions& o) {
  fields.add("group_size", o.group_size, at_least(1).up_to(1e9), "ranks that average among themselves");
  add_every(fields, o.every);
  fields.add("global_every", o.global_every, at_least(1), "averages of a group between two of all ranks");
}

// DiLoCo: each rank steps with its own gradients. Every `every` steps, an outer step is made with the mean of the
// ranks' changes. Douillard et al., https://arxiv.org/abs/2311.08105
struct DilocoOptions {
  static constexpr const char* kName = "diloco";
  static constexpr int kHolds = 2;  // the weights of the last outer step, and their momentum
  static constexpr bool kOfWeights = true;

  std::int64_t every = 50;      // steps between two outer steps; at least 1
  double outer_lr = 0.7;        // above 0
  double outer_momentum = 0.9;  // in [0, 1)
};
inline void describe(Fields& fields, DilocoOptions& o) {
  add_every(fields, o.every);
  fields.add("outer_lr", o.outer_lr, above(0).up_to(1e6), "learning rate of the outer step");
  fields.add("outer_momentum", o.outer_momentum, at_least(0).below(1), "momentum of the outer step");
}

// Gossip: after each step, a rank averages its weights with those of one or two other ranks. Lian et al.,
// https://arxiv.org/abs/1705.09056; Assran et al., https://arxiv.org/abs/1811.10792
enum class Topology {
  // In every step a rank averages its weights with those of both of its neighbours.
  kRing,
  // In step t, rank r of P averages its weights with those of rank (r - 2^(t mod L)) mod P. L is log2 P, rounded up.
  // After L steps the weights of every rank contain a share of the weights of all ranks.
  kExponential,
};
struct GossipOptions {
  static constexpr const char* kName = "gossip";
  static constexpr int kHolds = 2;  // the weights of two neighbours
  static constexpr bool kOfWeights = true;

  Topology topology = Topology::kRing;
};
inline void describe(Fields& fields, GossipOptions& o) {
  fields.add("topology", o.topology, {"ring", "exponential"}, "with whom a rank averages").none = "ring";
}

// Gossip on a ring. A rank sends its neighbours the change of its weights since its last message, in 8 bits; the
// rounding error is added to the next change. A rank uses the changes that have arrived. It waits only for changes that
// were made `staleness` or more steps ago. Lian et al., https://arxiv.org/abs/1710.06952; Koloskova et al.,
// https://arxiv.org/abs/1902.00340
struct AsyncGossipOptions {
  static constexpr const char* kName = "async_gossip";
  static constexpr int kHolds = 3;  // the public copy, and its differences from those of two neighbours
  static constexpr bool kOfWeights = true;

  std::int64_t staleness = 4;  // at least 0
};
inline void describe(Fields& fields, AsyncGossipOptions& o) { add_staleness(fields, o.staleness); }

// A parameter server with bounded staleness, in which every rank is its own server. Each rank sends its changes,
// divided by P, to all ranks, and each rank adds them when they arrive. Ho et al., More Effective Distributed ML via a
// Stale Synchronous Parallel Parameter Server, NIPS 2013
struct StaleSynchronousOptions {
  static constexpr const char* kName = "stale_synchronous";
  static constexpr int kHolds = 1;  // the weights before the step
  static constexpr bool kOfWeights = true;

  std::int64_t staleness = 2;  // a rank waits only for changes from this many steps ago or more; at least 0
};
inline void describe(Fields& fields, StaleSynchronousOptions& o) { add_staleness(fields, o.staleness); }

using AnyStrategy = OneOf<PlainOptions, Bf16Options, Fp16Options, PowerSgdOptions, TopKOptions, OneBitOptions,
                          AdasumOptions, LocalSgdOptions, HierarchicalSgdOptions, DilocoOptions, GossipOptions,
                          AsyncGossipOptions, StaleSynchronousOptions>;

}  // namespace reigen::parallel
