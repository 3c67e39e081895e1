// One pass over P inputs: outputs[q][i] = op(inputs[0][i], ..., inputs[P-1][i]) for every q. The inputs are combined in
// the order of the ranks.
//
// The kernels are written once, as plain loops (kernels.inl), and compiled for several instruction sets. At run time
// the fastest instruction set that the processor has is chosen. All instruction sets give the same bits: the order of
// the additions is fixed, and -ffp-contract=off forbids fused multiply-add. The kernels of a GPU
// (device/kernel_calls.h) use the same elements and operations, and so give the same bits.
// An input may be an output as well (in place), because element i is read from all inputs before it is written to any
// output.
#pragma once

#include <cstddef>

#include "reigen/comm/types.h"

namespace reigen::comm::reduce {

struct Pass {
  const std::byte* const* inputs = nullptr;  // one for each rank
  std::byte* const* outputs = nullptr;       // each output gets the whole result
  int input_count = 0;
  int output_count = 0;
  std::size_t count = 0;  // elements
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  const double* factors = nullptr;  // null, or a factor for each input; for sums of floats only
  // Write with non-temporal stores. This is faster if inputs and outputs lie in different memory and are together
  // larger than the caches.
  bool streaming = false;
  int divisor = 0;  // an average divides by this number; 0 means the number of inputs
};

void run(const Pass& pass);

// A copy with non-temporal stores.
void copy_streaming(std::byte* to, const std::byte* from, std::size_t bytes);

// The instruction set that run() uses: "avx512", "avx2", "neon" or "portable".
const char* instruction_set();

// For tests: the functions of one instruction set, by its name.
using Kernel = void (*)(const Pass& pass);
using Copy = void (*)(std::byte* to, const std::byte* from, std::size_t bytes);
Kernel kernel_for_test(const char* instruction_set);  // null if this processor does not have it
Copy streaming_copy_for_test(const char* instruction_set);

namespace portable {
void run(const Pass& pass);
void copy_streaming(std::byte* to, const std::byte* from, std::size_t bytes);
}  // namespace portable
namespace neon {
void run(const Pass& pass);
void copy_streaming(std::byte* to, const std::byte* from, std::size_t bytes);
}  // namespace neon
namespace avx2 {
void run(const Pass& pass);
void copy_streaming(std::byte* to, const std::byte* from, std::size_t bytes);
}  // namespace avx2
namespace avx512 {
void run(const Pass& pass);
void copy_streaming(std::byte* to, const std::byte* from, std::size_t bytes);
}  // namespace avx512

}  // namespace reigen::comm::reduce
