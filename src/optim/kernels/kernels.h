// The loops of the optimizers: each makes one pass over a block of one parameter, without LibTorch.
//
// They are written once as plain loops (rules.inl, kernels.inl) and compiled for several instruction sets. One set is
// chosen at run time for the processor. All sets give the same bits: every element is computed alone with correctly
// rounded operations, sums have a fixed number of lanes, and -ffp-contract=off forbids fused multiply-add. The kernels
// for a GPU (cuda/optimize.cu) are made of the same rules, and give the same bits, except that they add the squares of
// a block in another order.
//
// They compute in fp64 for fp64 values, else in fp32. Coefficients are given in fp64 and rounded once. In the formulas
// below p is a parameter's value, g its gradient (with Block::gradient_factor and gradient_limit applied), and a, b, m,
// s, v are the optimizer's states. The other names are members of the structure.
#pragma once

#include <cstdint>

// Marks functions that nvcc compiles for the device.
#if defined(__CUDACC__)
#define REIGEN_ON_DEVICE __device__
#else
#define REIGEN_ON_DEVICE
#endif

namespace reigen::optim::kernels {

// Element types of values (and gradients) and of states.
enum class Layout {
  kFloat64,
  kFloat32,
  kFloat32Bfloat16,  // bfloat16 states, rounded at random to a neighbour: the nearer one is the likelier
  kBfloat16,         // values and states bfloat16, rounded to nearest
  kFloat16,          // values and states fp16, rounded to nearest
  // fp32 states and fp32 masters; the values are the rounded masters. If a value is not its rounded master, other code
  // has changed the value. The master then begins anew from the value.
  kBfloat16Master,
  kFloat16Master,
};

constexpr int kMaxStates = 3;

struct Block {
  void* values = nullptr;
  const void* gradients = nullptr;
  void* states[kMaxStates] = {};
  void* masters = nullptr;
  std::int64_t count = 0;
  // Random rounding is a function of `key`, a hash of (parameter, step), and of `first`, the block's place in the
  // parameter.
  std::uint32_t key = 0;
  std::uint32_t first = 0;
  // g = clamp(gradient_factor · gradient, -gradient_limit, gradient_limit); NaN stays NaN.
  double gradient_factor = 1;
  double gradient_limit = 0;
};

// g += l2·p; then (has_momentum) b = momentum·b + share·g and g = nesterov ? g + momentum·b : b; then p -= lr·g.
struct SgdStep {
  double lr = 0;
  double l2 = 0;
  double momentum = 0;
  double share = 1;
  bool has_momentum = false;
  bool nesterov = false;
};

// g += l2·p; p *= keep; m, v as in Adam; p -= rate·m / (root·sqrt(v or its largest so far) + eps)
struct AdamStep {
  double rate = 0;
  double l2 = 0;
  double keep = 1;
  double beta1 = 0;
  double beta2 = 0;
  double root = 1;
  double eps = 0;
  bool amsgrad = false;
};

// g += l2·p; s += g²; p -= rate·g / (sqrt(s) + eps)
struct AdagradStep {
  double rate = 0;
  double l2 = 0;
  double eps = 0;
};

// g += l2·p; v = alpha·v + (1 - alpha)·g²; a = alpha·a + (1 - alpha)·g (centered); d = g / (sqrt(v - a²) + eps); b =
// momentum·b + d (has_momentum); p -= lr·(b or d). States: v, then a, then b, as far as they exist.
struct RmspropStep {
  double lr = 0;
  double l2 = 0;
  double alpha = 0;
  double eps = 0;
  double momentum = 0;
  bool centered = false;
  bool has_momentum = false;
};

// p -= lr·(sign(beta1·m + (1 - beta1)·g) + weight_decay·p); m = beta2·m + (1 - beta2)·g
struct LionStep {
  double lr = 0;
  double weight_decay = 0;
  double beta1 = 0;
  double beta2 = 0;
};

// b = momentum·b + rate·(g + weight_decay·p); p -= b
struct LarsStep {
  double rate = 0;
  double weight_decay = 0;
  double momentum = 0;
};

// u = scale·m / (root·sqrt(v) + eps) + weight_decay·p. lamb_moments updates m and v, then lamb_apply does p -= rate·u.
struct LambStep {
  double rate = 0;
  double weight_decay = 0;
  double beta1 = 0;
  double beta2 = 0;
  double scale = 1;
  double root = 1;
  double eps = 0;
};

// Two sums of squares in fp64, added in a fixed order of lanes.
struct Squares {
  double first = 0;
  double second = 0;
};

// average += share·(value - average)
struct AverageStep {
  double share = 0;
};

// For kernels that need no coefficients.
struct NoStep {};

// The loops by number, as a GPU's kernels are asked for.
enum class Rule {
  kSgd,
  kAdam,
  kAdagrad,
  kRmsprop,
  kLion,
  kLars,
  kLambMoments,
  kLambApply,
  kValueSquares,
  kSquares,          // Squares::first: of the gradients, without factor and limit
  kFinite,           // Squares::first: 0 if all gradients are finite, else NaN
  kChangeGradients,  // of the block's values
  kAverage,          // the average is states[0]
};

// What the norm of the gradients decides about a step, in the memory of a GPU. The kernels of the step read it there,
// so the host does not wait for the norm.
struct StepControl {
  double sum_of_squares = 0;  // of all gradients
  double factor = 1;          // the gradients of the step are multiplied by it
  double stopped = 0;         // not 0: a sum was not finite; from then on steps change nothing
};

// What a GPU is told of one parameter. Its kernels cut the parameter into chunks: the launch has chunk numbers from 0
// on, and the parameter's are `first_chunk` and those that follow.
template <typename Step>
struct Item {
  Block block;
  Step step;
  std::int64_t first_chunk;
  std::int64_t first_sum;  // the place of the first chunk's sums; those of the other chunks follow
};

struct Sizes {
  std::int64_t value = 4;  // bytes of a value, and of a gradient
  std::int64_t state = 4;
};

REIGEN_ON_DEVICE constexpr Sizes sizes_of(Layout layout) {
  switch (layout) {
    case Layout::kFloat64: return {8, 8};
    case Layout::kFloat32: return {4, 4};
    case Layout::kFloat32Bfloat16: return {4, 2};
    case Layout::kBfloat16:
    case Layout::kFloat16: return {2, 2};
    case Layout::kBfloat16Master:
    case Layout::kFloat16Master: return {2, 4};
  }
  return {};
}

// Elements `first` to `first + count - 1` of the block.
REIGEN_ON_DEVICE inline Block slice(const Sizes& sizes, const Block& block, std::int64_t first, std::int64_t count) {
  Block part = block;
  const auto move = [first](void* data, std::int64_t size) -> void* {
    return data == nullptr ? nullptr : static_cast<char*>(data) + first * size;
  };
  part.values = move(block.values, sizes.value);
  part.gradients = move(const_cast<void*>(block.gradients), sizes.value);
  // Not a loop: a GPU's compiler might keep the array in memory.
  static_assert(kMaxStates == 3);
  part.states[0] = move(block.states[0], sizes.state);
  part.states[1] = move(block.states[1], sizes.state);
  part.states[2] = move(block.states[2], sizes.state);
  part.masters = move(block.masters, sizeof(float));
  part.count = count;
  part.first = block.first + static_cast<std::uint32_t>(first);
  return part;
}

struct Kernels {
  const char* instruction_set;
  void (*sgd)(Layout, const Block&, const SgdStep&);
  void (*adam)(Layout, const Block&, const AdamStep&);
  void (*adagrad)(Layout, const Block&, const AdagradStep&);
  void (*rmsprop)(Layout, const Block&, const RmspropStep&);
  void (*lion)(Layout, const Block&, const LionStep&);
  void (*lars)(Layout, const Block&, const LarsStep&);
  Squares (*lamb_moments)(Layout, const Block&, const LambStep&);  // sums of the squares of the values and of u
  void (*lamb_apply)(Layout, const Block&, const LambStep&);
  Squares (*value_squares)(Layout, const Block&);  // sums of the squares of the values and of g
  double (*squares)(Layout, const void* values, std::int64_t count);
  bool (*finite)(Layout, const void* values, std::int64_t count);  // no NaN and no infinity
  // gradients = g
  void (*change_gradients)(Layout, const Block&);
  // average += share·(value - average); the average is fp64 for fp64 values, else fp32.
  void (*average)(Layout, void* average, const void* values, std::int64_t count, double share);
};

// The kernels for this processor's best instruction set: "avx512", "avx2", "portable".
const Kernels& kernels();

// For tests: the kernels for one instruction set, by name; nullptr if this processor lacks it.
const Kernels* kernels_for_test(const char* instruction_set);

namespace portable {
const Kernels& kernels();
}
namespace avx2 {
const Kernels& kernels();
}
namespace avx512 {
const Kernels& kernels();
}

}  // namespace reigen::optim::kernels
