// A stand-in for the CUDA runtime, for tests of what uses devices where there is no GPU: it defines the functions that
// device/cuda_runtime.h names, over ordinary memory (see hide_memory) and threads. Eight devices; ranks are threads of
// one process.
//
// Where CUDA leaves a choice it takes the one that forgives least:
// - What frees memory, cudaFree or the end of a communicator, waits for all that the device has to do. Copies from and
//   to memory of the host that is not pinned are refused, and so is memory that was freed.
// It ends the process with a word on stderr when it is used in a way that has no meaning. It cannot show how fast a GPU
// is.
// Thread rule: any thread.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <string>

namespace reigen::testing::stand_in {

inline constexpr int kDevices = 8;

// The device of the thread of rank r.
void use_device_of(int rank);

// A kernel of the test's own. It may wait; so may then what comes after it.
void enqueue(cudaStream_t stream, std::function<void()> kernel);

// From now on new memory of a device is out of the host's reach, as a GPU's is: touching it is SIGSEGV.
void hide_memory();

// What is not freed: "communicators 0, streams 0, events 0, blocks 0".
std::string what_lives();

}  // namespace reigen::testing::stand_in
