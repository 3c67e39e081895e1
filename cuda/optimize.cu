// The steps of the optimizers on the device: one kernel for all parameters of one element layout. The results have the
// same bits as on the host. The rules come from the host's source (optim/kernels/rules.inl). nvcc must round every
// operation on its own, as -ffp-contract=off does on the host: cuda/CMakeLists.txt has the flags.
//
// A block of threads takes one chunk of a parameter. Sums of squares of a chunk are added in a fixed order.
#include <cstdint>

#include "device/kernel_calls.h"
#include "last_error.h"
#include "optim/kernels/kernels.h"

namespace reigen::optim::kernels {
namespace {

using device::forgotten;
using device::OptimizeCall;

constexpr int kThreads = 256;
constexpr int kResidentBlocks = 2;             // an SM has enough registers for so many blocks
constexpr long long kMostChunks = 0x7fffffff;  // the most blocks that a grid can have

// The threads of a block share the loop. A thread takes the same elements in every loop, so it need not wait for the
// others between two loops.
#define REIGEN_EACH(i, count) for (std::int64_t i = threadIdx.x; i < (count); i += kThreads)

// Returns the sum over the block of threads to thread 0. All threads of the block must call it.
__device__ __forceinline__ double sum_of_block(double own) {
  __shared__ double sums[kThreads];
  __syncthreads();  // waits until an earlier sum has been read
  sums[threadIdx.x] = own;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  return sums[0];
}

template <typename C, typename Fill>
__device__ __forceinline__ double sum_squares_of(std::int64_t count, const Fill& fill) {
  double sum = 0;
  REIGEN_EACH(i, count) {
    const C x = fill(i);
    sum += static_cast<double>(x) * static_cast<double>(x);
  }
  return sum_of_block(sum);
}

#include "optim/kernels/rules.inl"

// Maps the number of each rule to the rule's loop in rules.inl.
template <Rule kRule>
struct Loop;

#define REIGEN_LOOP(rule, step_type, loop)                                               \
  template <>                                                                            \
  struct Loop<Rule::rule> {                                                              \
    using Step = step_type;                                                              \
    template <typename Values, typename States>                                          \
    __device__ static void run(const Block& block, const Step& step, Squares& squares) { \
      loop.template run<Values, States>();                                               \
    }                                                                                    \
  }

struct Finite {
  const Block& block;
  double& result;
  template <typename Values, typename States>
  __device__ void run() const {
    using C = typename Values::Computed;
    const auto* from = static_cast<const typename Values::Storage*>(block.gradients);
    // x·0 is NaN if x is not finite.
    result = sum_squares_of<C>(block.count, [from](std::int64_t i) { return Values::load(from[i]) * C(0); });
  }
};

REIGEN_LOOP(kSgd, SgdStep, (Sgd{block, step}));
REIGEN_LOOP(kAdam, AdamStep, (Adam{block, step}));
REIGEN_LOOP(kAdagrad, AdagradStep, (Adagrad{block, step}));
REIGEN_LOOP(kRmsprop, RmspropStep, (Rmsprop{block, step}));
REIGEN_LOOP(kLion, LionStep, (Lion{block, step}));
REIGEN_LOOP(kLars, LarsStep, (Lars{block, step}));
REIGEN_LOOP(kLambMoments, LambStep, (LambMoments{block, step, squares}));
REIGEN_LOOP(kLambApply, LambStep, (LambApply{block, step}));
REIGEN_LOOP(kValueSquares, NoStep, (ValueSquares{block, squares}));
REIGEN_LOOP(kSquares, NoStep, (SquaresOf{block.gradients, block.count, squares.first}));
REIGEN_LOOP(kFinite, NoStep, (Finite{block, squares.first}));
REIGEN_LOOP(kChangeGradients, NoStep, (ChangeGradients{block}));
REIGEN_LOOP(kAverage, AverageStep, (Average{block.states[0], block.values, block.count, step.share}));

template <Rule kRule, typename Values, typename States>
__global__ void __launch_bounds__(kThreads, kResidentBlocks)
    optimize(const Item<typename Loop<kRule>::Step>* items, const int count, const std::int64_t chunk_elements,
             double* const squares, const StepControl* const control) {
  if (control != nullptr && control->stopped != 0) return;
  const std::int64_t chunk = blockIdx.x;
  int item = 0;  // the last item whose first chunk is not after `chunk`
  for (int end = count; end - item > 1;) {
    const int middle = item + (end - item) / 2;
    (items[middle].first_chunk <= chunk ? item : end) = middle;
  }
  const auto& own = items[item];
  const std::int64_t first = (chunk - own.first_chunk) * chunk_elements;
  const std::int64_t left = own.block.count - first;
  constexpr Sizes sizes{sizeof(typename Values::Storage), sizeof(typename States::Storage)};
  Block block = slice(sizes, own.block, first, left < chunk_elements ? left : chunk_elements);
  if (control != nullptr) block.gradient_factor *= control->factor;
  Squares sums;
  Loop<kRule>::template run<Values, States>(block, own.step, sums);
  if (squares != nullptr && threadIdx.x == 0) {
    const std::int64_t place = own.first_sum + chunk - own.first_chunk;
    squares[2 * place] = sums.first;
    squares[2 * place + 1] = sums.second;
  }
}

template <Rule kRule>
struct Launch {
  const OptimizeCall& call;
  cudaStream_t stream;
  cudaError_t& result;

  template <typename Values, typename States>
  void run() const {
    const auto* items = static_cast<const Item<typename Loop<kRule>::Step>*>(call.items);
    int count = call.count;
    std::int64_t elements = call.chunk_elements;
    double* squares = call.squares;
    const auto* control = static_cast<const StepControl*>(call.control);
    void* parameters[] = {&items, &count, &elements, &squares, &control};
    // Takes the launch's own error, because cudaGetLastError() could return an error of other code.
    result = cudaLaunchKernel(reinterpret_cast<const void*>(&optimize<kRule, Values, States>),
                              dim3(static_cast<unsigned>(call.chunks)), dim3(kThreads), parameters, 0, stream);
  }
};

template <Rule kRule>
void launch(const OptimizeCall& call, cudaStream_t stream, cudaError_t& result) {
  with_types(static_cast<Layout>(call.layout), Launch<kRule>{call, stream, result});
}

__global__ void __launch_bounds__(kThreads) finish_norm(const Squares* const chunks, const std::int64_t count,
                                                        const double max_norm, StepControl* const control) {
  double own = 0;
  REIGEN_EACH(i, count) own += chunks[i].first;
  const double sum = sum_of_block(own);
  if (threadIdx.x != 0) return;
  const double factor = max_norm > 0 ? max_norm / (sqrt(sum) + 1e-6) : 1;
  control->sum_of_squares = sum;
  control->factor = factor > 1 ? 1 : factor;
  if (!isfinite(sum)) control->stopped = 1;
}

bool adds_squares(Rule rule) {
  return rule == Rule::kLambMoments || rule == Rule::kValueSquares || rule == Rule::kSquares || rule == Rule::kFinite;
}

bool is_defined(const OptimizeCall& call) {
  if (call.rule < 0 || call.rule > static_cast<int>(Rule::kAverage)) return false;
  if (call.layout < 0 || call.layout > static_cast<int>(Layout::kFloat16Master)) return false;
  return call.items != nullptr && call.count >= 1 && call.chunks >= 0 && call.chunks <= kMostChunks &&
         call.chunk_elements >= 1 && (call.squares != nullptr) == adds_squares(static_cast<Rule>(call.rule));
}

void run_rule(const OptimizeCall& call, cudaStream_t stream, cudaError_t& result) {
  switch (static_cast<Rule>(call.rule)) {
    case Rule::kSgd: return launch<Rule::kSgd>(call, stream, result);
    case Rule::kAdam: return launch<Rule::kAdam>(call, stream, result);
    case Rule::kAdagrad: return launch<Rule::kAdagrad>(call, stream, result);
    case Rule::kRmsprop: return launch<Rule::kRmsprop>(call, stream, result);
    case Rule::kLion: return launch<Rule::kLion>(call, stream, result);
    case Rule::kLars: return launch<Rule::kLars>(call, stream, result);
    case Rule::kLambMoments: return launch<Rule::kLambMoments>(call, stream, result);
    case Rule::kLambApply: return launch<Rule::kLambApply>(call, stream, result);
    case Rule::kValueSquares: return launch<Rule::kValueSquares>(call, stream, result);
    case Rule::kSquares: return launch<Rule::kSquares>(call, stream, result);
    case Rule::kFinite: return launch<Rule::kFinite>(call, stream, result);
    case Rule::kChangeGradients: return launch<Rule::kChangeGradients>(call, stream, result);
    case Rule::kAverage: return launch<Rule::kAverage>(call, stream, result);
  }
}

}  // namespace

int enqueue(const OptimizeCall& call, cudaStream_t stream) {
  if (!is_defined(call)) return cudaErrorInvalidValue;
  if (call.chunks == 0) return cudaSuccess;
  cudaError_t result = cudaErrorInvalidValue;
  run_rule(call, stream, result);
  return forgotten(result);
}

int enqueue(const device::FinishNormCall& call, cudaStream_t stream) {
  if (call.squares == nullptr || call.control == nullptr || call.count < 1 || !(call.max_norm >= 0)) {
    return cudaErrorInvalidValue;
  }
  const auto* chunks = reinterpret_cast<const Squares*>(call.squares);
  std::int64_t count = call.count;
  double max_norm = call.max_norm;
  auto* control = static_cast<StepControl*>(call.control);
  void* parameters[] = {&chunks, &count, &max_norm, &control};
  return forgotten(
      cudaLaunchKernel(reinterpret_cast<const void*>(&finish_norm), dim3(1), dim3(kThreads), parameters, 0, stream));
}

}  // namespace reigen::optim::kernels

extern "C" int reigen_cuda_optimize(const reigen::device::OptimizeCall* call, void* stream) {
  if (call == nullptr) return cudaErrorInvalidValue;
  return reigen::optim::kernels::enqueue(*call, static_cast<cudaStream_t>(stream));
}

extern "C" int reigen_cuda_finish_norm(const reigen::device::FinishNormCall* call, void* stream) {
  if (call == nullptr) return cudaErrorInvalidValue;
  return reigen::optim::kernels::enqueue(*call, static_cast<cudaStream_t>(stream));
}
