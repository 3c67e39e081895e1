// The loops of kernels.h. This file is included once for each instruction set, inside its namespace. It must include
// only rules.inl, and instantiate nothing from the standard library. Otherwise library code would be compiled for this
// instruction set, and all other code would share it.

#if defined(__clang__)
#define REIGEN_ELEMENTWISE _Pragma("clang loop vectorize(assume_safety)")
#else
#define REIGEN_ELEMENTWISE _Pragma("GCC ivdep")
#endif
#define REIGEN_EACH(i, count) REIGEN_ELEMENTWISE for (std::int64_t i = 0; i < (count); ++i)

namespace {

// Four vectors of four numbers at a time are enough to hide the latency of an addition. The order of additions is the
// same for every instruction set. Vectors are never passed by value, because how they are passed depends on the
// instruction set.
constexpr int kLanes = 4;
constexpr int kVectors = 4;
using Doubles = double __attribute__((vector_size(kLanes * sizeof(double))));
using Floats = float __attribute__((vector_size(kLanes * sizeof(float))));

inline void load_lanes(const double* from, Doubles& to) { __builtin_memcpy(&to, from, sizeof(to)); }
inline void load_lanes(const float* from, Doubles& to) {
  Floats single;
  __builtin_memcpy(&single, from, sizeof(single));
  to = __builtin_convertvector(single, Doubles);
}

template <typename C>
inline double sum_squares(const C* from, std::int64_t count) {
  Doubles sums[kVectors] = {};
  std::int64_t i = 0;
  for (; i + kVectors * kLanes <= count; i += kVectors * kLanes) {
    for (int v = 0; v < kVectors; ++v) {
      Doubles x;
      load_lanes(from + i + v * kLanes, x);
      sums[v] += x * x;
    }
  }
  double tail = 0;
  for (; i < count; ++i) tail += static_cast<double>(from[i]) * static_cast<double>(from[i]);
  const Doubles sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + tail;
}

// Sums the squares of fill(i). Elements go through a buffer that fits into the first-level cache, so that the compiler
// can vectorise the loop that computes them.
template <typename C, typename Fill>
inline double sum_squares_of(std::int64_t count, const Fill& fill) {
  constexpr std::int64_t kBuffer = 512;
  C buffer[kBuffer];
  double sum = 0;
  for (std::int64_t begin = 0; begin < count; begin += kBuffer) {
    const std::int64_t size = count - begin < kBuffer ? count - begin : kBuffer;
    REIGEN_ELEMENTWISE
    for (std::int64_t i = 0; i < size; ++i) buffer[i] = fill(begin + i);
    sum += sum_squares(static_cast<const C*>(buffer), size);
  }
  return sum;
}

#include "optim/kernels/rules.inl"

// x·0 is NaN if x is not finite, and a NaN stays in any sum.
struct FiniteOf {
  const void* data;
  std::int64_t count;
  bool& result;
  template <typename Values, typename States>
  void run() const {
    using C = typename Values::Computed;
    const auto* from = static_cast<const typename Values::Storage*>(data);
    constexpr int kSums = 64;
    C sums[kSums] = {};
    std::int64_t i = 0;
    for (; i + kSums <= count; i += kSums) {
      REIGEN_ELEMENTWISE
      for (int k = 0; k < kSums; ++k) sums[k] += Values::load(from[i + k]) * C(0);
    }
    for (; i < count; ++i) sums[0] += Values::load(from[i]) * C(0);
    C sum = 0;
    for (int k = 0; k < kSums; ++k) sum += sums[k];
    result = sum == C(0);
  }
};

void sgd(Layout layout, const Block& block, const SgdStep& step) { with_types(layout, Sgd{block, step}); }
void adam(Layout layout, const Block& block, const AdamStep& step) { with_types(layout, Adam{block, step}); }
void adagrad(Layout layout, const Block& block, const AdagradStep& step) { with_types(layout, Adagrad{block, step}); }
void rmsprop(Layout layout, const Block& block, const RmspropStep& step) { with_types(layout, Rmsprop{block, step}); }
void lion(Layout layout, const Block& block, const LionStep& step) { with_types(layout, Lion{block, step}); }
void lars(Layout layout, const Block& block, const LarsStep& step) { with_types(layout, Lars{block, step}); }
Squares lamb_moments(Layout layout, const Block& block, const LambStep& step) {
  Squares result;
  with_types(layout, LambMoments{block, step, result});
  return result;
}
void lamb_apply(Layout layout, const Block& block, const LambStep& step) { with_types(layout, LambApply{block, step}); }
Squares value_squares(Layout layout, const Block& block) {
  Squares result;
  with_types(layout, ValueSquares{block, result});
  return result;
}
double squares(Layout layout, const void* values, std::int64_t count) {
  double result = 0;
  with_types(layout, SquaresOf{values, count, result});
  return result;
}
bool finite(Layout layout, const void* values, std::int64_t count) {
  bool result = true;
  with_types(layout, FiniteOf{values, count, result});
  return result;
}
void change_gradients(Layout layout, const Block& block) { with_types(layout, ChangeGradients{block}); }
void average(Layout layout, void* averages, const void* values, std::int64_t count, double share) {
  with_types(layout, Average{averages, values, count, share});
}

constexpr Kernels table(const char* name) {
  return {name,          &sgd,        &adam,          &adagrad, &rmsprop,          &lion,   &lars,
          &lamb_moments, &lamb_apply, &value_squares, &squares, &finite, &change_gradients, &average};
}

}  // namespace
