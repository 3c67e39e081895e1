// The loops of the optimizers. Each loop makes one pass over a block of one parameter, without LibTorch.
//
// The loops are written once (rules.inl, kernels.inl) and compiled for several instruction sets. One instruction set is
// chosen at run time for the processor. All instruction sets give the same bits: every element is computed alone with
// correctly rounded operations, every sum is made of a fixed number of partial sums (lanes), and -ffp-contract=off
// forbids fused multiply-add. The kernels for a GPU (cuda/optimize.cu) use the same rules and give the same bits,
// except that they add the squares of a block in a different order.
//
// The loops compute in fp64 for fp64 values, else in fp32. Coefficients are given in fp64, and a loop rounds them once.
// In the formulas below p is a parameter's value, g its gradient (with Block::gradient_factor and gradient_limit
// applied), and a, b, m, s, v are the optimizer's states. The other names are members of the structure.
#pragma once

#include <cstdint>

// Marks functions that nvcc compiles for the device.
#if defined(__CUDACC__)
#define REIGEN_ON_DEVICE __device__
#else
#define REIGEN_ON_DEVICE
#endif

namespace reigen::optim::kernels {

// The element types of a parameter's values and gradients, and of its optimizer states.
enum class Layout {
  kFloat64,
  kFloat32,
  kFloat32Bfloat16,  // fp32 values; bfloat16 states with stochastic rounding
  kBfloat16,         // values and states bfloat16, rounded to nearest
  kFloat16,          // values and states fp16, rounded to nearest
  // 16-bit values with fp32 states and fp32 master weights. The values are the rounded masters. If a value differs from
  // its rounded master, other code has changed the value. The step then starts from the value and not from the master.
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
  // Stochastic rounding depends only on `key`, a hash of (parameter, step), and on the element's index in the
  // parameter. `first` is the index of the block's first element.
  std::uint32_t key = 0;
  std::uint32_t first = 0;
  // g = clamp(gradient_factor · gradient, -gradient_limit, gradient_limit); NaN stays NaN.
  double gradient_factor = 1;
  double gradient_limit = 0;
};

// g += l2·p; if has_momentum: b = momentum·b + share·g and g = nesterov ? g + momentum·b : b; then p -= lr·g.
struct SgdStep {
  double lr = 0;
  double l2 = 0;
  double momentum = 0;
  double share = 1;
  bool has_momentum = false;
  bool nesterov = false;
};

// g += l2·p; p *= keep; m and v become the moving averages of g and g²; p -= rate·m / (root·sqrt(v) + eps). With
// amsgrad, the largest v so far takes the place of v.
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

// g += l2·p; v = alpha·v + (1 - alpha)·g²; if centered: a = alpha·a + (1 - alpha)·g, else a = 0; d = g / (sqrt(v - a²)
// + eps); if has_momentum: b = momentum·b + d and p -= lr·b, else p -= lr·d. The states are v, then a if centered, then
// b if has_momentum.
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

// Two sums of squares in fp64. Their terms are added in a fixed order, so that the bits are always the same.
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

// The numbers of the rules. The host passes such a number to choose a kernel of a GPU.
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
  kSquares,          // Squares::first is the sum of the squares of the gradients, without factor and limit
  kFinite,           // Squares::first is 0 if all gradients are finite, else NaN
  kChangeGradients,  // changes the block's `values`, which are gradients
  kAverage,          // the average is states[0]
};

// The result of a gradient norm (DeviceNorm), in the memory of a GPU. The kernels of the step read it from there, so
// the host does not wait for the norm.
struct StepControl {
  double sum_of_squares = 0;  // of all gradients
  double factor = 1;          // the step multiplies the gradients by this factor
  double stopped = 0;         // if not 0, a sum of squares was not finite, and from then on steps change nothing
};

// The arguments of a GPU kernel for one parameter. The kernel cuts every parameter into chunks. The chunks of all
// parameters of a launch are numbered from 0 on. The chunks of this parameter have consecutive numbers, from
// `first_chunk` on.
template <typename Step>
struct Item {
  Block block;
  Step step;
  std::int64_t first_chunk;
  std::int64_t first_sum;  // index of the sums of this parameter's first chunk; the sums of its other chunks follow
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

// Returns elements `first` to `first + count - 1` of the block.
REIGEN_ON_DEVICE inline Block slice(const Sizes& sizes, const Block& block, std::int64_t first, std::int64_t count) {
  Block part = block;
  const auto move = [first](void* data, std::int64_t size) -> void* {
    return data == nullptr ? nullptr : static_cast<char*>(data) + first * size;
  };
  part.values = move(block.values, sizes.value);
  part.gradients = move(const_cast<void*>(block.gradients), sizes.value);
  // These lines are no loop, because nvcc might keep the array of a loop in memory and not in registers.
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
  Squares (*lamb_moments)(Layout, const Block&, const LambStep&);  // squares of the values (first) and of u (second)
  void (*lamb_apply)(Layout, const Block&, const LambStep&);
  Squares (*value_squares)(Layout, const Block&);  // squares of the values (first) and of g (second)
  double (*squares)(Layout, const void* values, std::int64_t count);
  bool (*finite)(Layout, const void* values, std::int64_t count);  // true if there is no NaN and no infinity
  // Replaces the block's `values`, which are gradients, by g.
  void (*change_gradients)(Layout, const Block&);
  // average += share·(value - average); the average is fp64 for fp64 values, else fp32.
  void (*average)(Layout, void* average, const void* values, std::int64_t count, double share);
};

// The kernels for this processor's best instruction set: "avx512", "avx2", "portable".
const Kernels& kernels();

// For tests: returns the kernels for the instruction set of this name, or nullptr if this processor lacks it.
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
