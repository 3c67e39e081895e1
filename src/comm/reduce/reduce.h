// One pass over P inputs: outputs[q][i] = op(inputs[0][i], ..., inputs[P-1][i]) for every q, added in the order of the
// ranks.
//
// The kernels exist once as plain loops (kernels.inl) and are compiled for several instruction sets; the processor
// picks at run time. All give the same bits: the order of additions is fixed and -ffp-contract=off forbids fused
// multiply-add. The kernels of a device (device/kernel_calls.h) share elements and operations with them, and the bits.
// Inputs may be outputs (in place): element i is read from everywhere before it is written.
#pragma once

#include <cstddef>

#include "reigen/comm/types.h"

namespace reigen::comm::reduce {

struct Pass {
  const std::byte* const* inputs = nullptr;  // one for each rank
  std::byte* const* outputs = nullptr;       // where the result goes
  int input_count = 0;
  int output_count = 0;
  std::size_t count = 0;  // elements
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  const double* factors = nullptr;  // one for each input, which is multiplied by it; for sums of floats only
  // Writes past the caches: better when inputs and outputs are other memory and more than the caches hold together.
  bool streaming = false;
  int divisor = 0;  // of an average whose inputs are sums already; 0: the number of inputs
};

void run(const Pass& pass);

// A copy that is written past the caches.
void copy_streaming(std::byte* to, const std::byte* from, std::size_t bytes);

// The instruction set that run() uses: "avx512", "avx2", "neon" or "portable".
const char* instruction_set();

// For tests: what this processor can run, portable first; and one of them by name.
using Kernel = void (*)(const Pass& pass);
using Copy = void (*)(std::byte* to, const std::byte* from, std::size_t bytes);
Kernel kernel_for_test(const char* instruction_set);  // nullptr: not on this processor
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
