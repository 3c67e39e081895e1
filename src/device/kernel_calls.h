// The functions of the plug-in libreigen_cuda.so, which holds the kernels for CUDA devices. This file and
// model_calls.h are the whole C ABI of the plug-in. They need no CUDA header.
//
// A program opens the plug-in (dlopen) when a device is first used, so that the program also starts on machines without
// CUDA. The functions that dlsym finds have the types declared here, for example `decltype(&reigen_cuda_reduce)`. A
// program compares reigen_cuda_version() with its own kPluginVersion before it calls any other function.
//
// Calls may come from any thread. They use the device that is current in the calling thread (cudaSetDevice), enqueue
// work on the stream, and return without waiting. An error is returned as the number of a cudaError_t; 0 is success.
// After an error, cudaGetLastError() does not return this error again.
#pragma once

#include <cstddef>

#include "device/model_calls.h"

namespace reigen::device {

// This number changes with every change of a function or struct here.
inline constexpr int kPluginVersion = 6;

// The most inputs and the most outputs of a reduction. The number is limited because the addresses are kernel
// parameters.
inline constexpr int kReduceRanks = 64;

// outputs[q][i] = op(inputs[0][i], ..., inputs[input_count - 1][i]) for every q, in the order of the inputs. The
// results have the bits of comm::reduce::run() with the same Pass, except that a NaN may have different bits
// (comm/types.h).
struct ReduceCall {
  const void* const* inputs = nullptr;  // memory that the device reads
  void* const* outputs = nullptr;       // memory that the device writes; each is an input or overlaps no input
  int input_count = 0;                  // 1 to kReduceRanks
  int output_count = 0;                 // 1 to kReduceRanks
  std::size_t count = 0;                // elements
  int type = 0;                         // a comm::DataType
  int op = 0;                           // a comm::ReduceOp
  const double* factors = nullptr;      // null, or a factor for each input; for sums of floats only
  int divisor = 0;                      // divisor of an average whose inputs are sums already; 0 means input_count
};

// A rule of an optimizer, or some other pass over its parameters, as optim/kernels/kernels.h describes it.
struct OptimizeCall {
  int rule = 0;                  // an optim::kernels::Rule
  int layout = 0;                // an optim::kernels::Layout
  const void* items = nullptr;   // `count` items of the rule's optim::kernels::Item, in memory of the device
  int count = 0;                 // at least 1
  long long chunks = 0;          // number of chunks of all items together
  long long chunk_elements = 0;  // the kernel cuts each parameter into chunks of this many elements
  // For rules that add squares: memory of the device, to which the kernel writes two sums for each chunk. An item's
  // `first_sum` is the index of the sums of its first chunk. The order of additions is fixed. For all other rules:
  // null.
  double* squares = nullptr;
  // Null, or an optim::kernels::StepControl in memory of the device. The kernel multiplies gradients by `factor` of
  // this StepControl, and changes nothing if its `stopped` is set.
  const void* control = nullptr;
};

// The last step of a gradient norm: sets an optim::kernels::StepControl from the sums of all chunks.
struct FinishNormCall {
  const double* squares = nullptr;  // memory of the device: two sums for each chunk; only the first of them is used
  long long count = 0;              // chunks
  double max_norm = 0;              // limit of the norm; 0 means no limit
  void* control = nullptr;          // memory of the device
};

}  // namespace reigen::device

extern "C" {

[[gnu::visibility("default")]] int reigen_cuda_version();

// One kernel reads every input once and writes every output once; if count is 0, no kernel runs. `call` and its arrays
// of addresses and factors are read before the function returns. The kernel is fast if all addresses have the same
// remainder modulo 16. Otherwise it reads and writes elements one by one. Returns cudaErrorInvalidValue if the
// reduction is not defined for the type, a number is out of its range, or an address is null or no multiple of the
// element's size. Otherwise it returns the result of the kernel launch.
[[gnu::visibility("default")]] int reigen_cuda_reduce(const reigen::device::ReduceCall* call, void* stream);

// Runs one kernel, or none if `chunks` is 0. The items are read when the stream reaches the kernel. Returns
// cudaErrorInvalidValue if a number is out of its range, or a pointer is missing. Otherwise it returns the result of
// the kernel launch.
[[gnu::visibility("default")]] int reigen_cuda_optimize(const reigen::device::OptimizeCall* call, void* stream);

// Runs one kernel that sets `control`: control.sum_of_squares = the sum of the chunks' numbers, in a fixed order;
// control.factor = min(1, max_norm / (sqrt(sum) + 1e-6)), or 1 without a limit; control.stopped = 1 if the sum is not
// finite, else control.stopped does not change. Returns cudaErrorInvalidValue if a number is out of its range, or a
// pointer is missing. Otherwise it returns the result of the kernel launch.
[[gnu::visibility("default")]] int reigen_cuda_finish_norm(const reigen::device::FinishNormCall* call, void* stream);

}  // extern "C"
