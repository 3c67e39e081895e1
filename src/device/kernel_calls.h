// What a program calls in the plug-in libreigen_cuda.so, which holds the kernels for devices of CUDA: its whole C ABI,
// without a header of CUDA.
//
// A program opens the plug-in (dlopen) when a device is first used, so that it starts where there is no CUDA. The types
// of the functions are those declared here: `decltype(&reigen_cuda_reduce)` for what dlsym finds. A program compares
// reigen_cuda_version() with its own kPluginVersion before anything else.
//
// Calls may come from any thread. They work on the device that is current in the calling thread (cudaSetDevice),
// enqueue on the stream, and return without waiting. Every error is a cudaError_t as its number, 0 is success. The
// error that a call returns is not left behind for cudaGetLastError().
#pragma once

#include <cstddef>

namespace reigen::device {

// A change of any function or struct here changes this number.
inline constexpr int kPluginVersion = 1;

// The most inputs and the most outputs of a reduction: their addresses travel as parameters of the kernel.
inline constexpr int kReduceRanks = 64;

// outputs[q][i] = op(inputs[0][i], ..., inputs[input_count - 1][i]) for every q, in the order of the inputs: the bits
// of comm::reduce::run of the same Pass, but for which NaN it is where one is due (comm/types.h).
struct ReduceCall {
  const void* const* inputs = nullptr;  // memory that the device reads
  void* const* outputs = nullptr;       // memory that the device writes; may be inputs, but overlap none otherwise
  int input_count = 0;                  // 1 to kReduceRanks
  int output_count = 0;                 // 1 to kReduceRanks
  std::size_t count = 0;                // elements
  int type = 0;                         // a comm::DataType
  int op = 0;                           // a comm::ReduceOp
  const double* factors = nullptr;      // null, or one for each input, which is multiplied by it; sums of floats only
  int divisor = 0;                      // of an average whose inputs are sums already; 0: input_count
};

}  // namespace reigen::device

extern "C" {

[[gnu::visibility("default")]] int reigen_cuda_version();

// Reads every input once and writes every output once, in one kernel, or none if count is 0. What `call` points to is
// read before the return. Fast where all addresses have the same remainder by 16: else elements travel one by one.
// cudaErrorInvalidValue: the reduction is not defined for the type, a number is out of its range, an address is null or
// no multiple of the element's size. Else what the launch returned.
[[gnu::visibility("default")]] int reigen_cuda_reduce(const reigen::device::ReduceCall* call, void* stream);

}  // extern "C"
