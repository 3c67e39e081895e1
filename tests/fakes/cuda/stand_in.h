// A stand-in for the CUDA runtime, for tests of code that uses devices, on machines without a GPU. It defines the
// functions of device/cuda_runtime.h, over ordinary memory (see hide_memory) and threads. It has eight devices. Ranks
// are threads of one process, or processes that map each other's memory.
//
// Where CUDA leaves a choice, the stand-in is strict:
// - A call that frees memory, cudaFree or the end of a communicator, waits for all work of the device. Copies from and
//   to memory of the host that is not pinned are refused, and so is the use of freed memory.
// If it is used in a way that has no meaning, it ends the process with a message on stderr. It cannot show how fast a
// GPU is.
// Thread rule: any thread.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace reigen::testing::stand_in {

inline constexpr int kDevices = 8;

// Gives the calling thread the device of rank `rank`.
void use_device_of(int rank);

// Enqueues a kernel of the test. The kernel may wait, and then all later work on the stream waits too.
void enqueue(cudaStream_t stream, std::function<void()> kernel);

// From now on the host cannot access new device memory, as on a GPU: an access is SIGSEGV.
void hide_memory();

// From now on each device has this compute capability, 90 for 9.0 (as at first).
void set_capability(int ten_times);
// From now on each device is in this compute mode: 0, shared by processes (as at first); 2, prohibited; 3, for one
// process at a time. In mode 3 another process has each device.
void set_compute_mode(int mode);
// From now on each device can give so many bytes more than it has given now. At first it can give kMemory.
inline constexpr std::size_t kMemory = std::size_t{16} << 30;
void leave_memory(std::size_t bytes);

// From now on other processes can open new device memory by its handle.
void share_memory();

// From now on a stream begins a piece of its work only when somebody needs the piece: the host waits for it, looks at
// an event after it, or another stream that is needed waits for such an event or for a word that the piece writes. So
// code that does not wait uses numbers that are not there yet, in nearly every run. Some needs cannot be seen: those of
// other processes, of NCCL's other ranks, and of a host that looks at a word in its memory. So a stream begins each
// piece by itself after 5 ms, and after 0.2 ms if this piece or a later one of the stream writes a word. The replay of
// a graph runs at once.
void be_lazy();

// From now on half of the pieces of work begin at once, and the others up to four times `time` late, on a stream on
// which the program computes (those that LibTorch makes) 50 times as late: streams overtake each other in an order that
// the seed decides. Zero: all begin at once.
void delay_streams(std::chrono::microseconds time, std::uint64_t seed);

// How often the program has made calls that a steady step should not make, and has started kernels of Reigen, with a
// device. What the stand-in does for itself does not count.
struct Counts {
  std::atomic<std::int64_t> waits{0};        // the host waited for a stream, or could have: a copy of pageable memory
  std::atomic<std::int64_t> allocations{0};  // memory of the device was allocated or freed
  std::atomic<std::int64_t> pinned{0};       // pinned memory was allocated or freed
  // Calls of the plug-in:
  std::atomic<std::int64_t> sums{0};     // reductions between ranks
  std::atomic<std::int64_t> updates{0};  // of weights by an optimizer
  std::atomic<std::int64_t> norms{0};    // parts of a norm
  std::atomic<std::int64_t> layers{0};   // layers of models
};
Counts& counts(int device);

// The objects that are not freed, as text: "communicators 0, streams 0, events 0, blocks 0".
std::string what_lives();

}  // namespace reigen::testing::stand_in
