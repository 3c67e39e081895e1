// Shared code of the programs that check kernels on a machine with a GPU.
// Thread rule: a check has one thread.
#pragma once

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <iostream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "device/kernel_calls.h"

namespace reigen::device {

inline constexpr int kNoDevice = 69;  // EX_UNAVAILABLE
inline constexpr std::size_t kMebibyte = 1u << 20;

inline void check(int error, const char* what) {
  if (error == cudaSuccess) return;
  throw std::runtime_error(
      fmt::format("{}: error {}, {}", what, error, cudaGetErrorString(static_cast<cudaError_t>(error))));
}

class Memory {
 public:
  explicit Memory(std::size_t bytes) { check(cudaMalloc(&begin_, bytes), "cudaMalloc"); }
  ~Memory() { cudaFree(begin_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  std::byte* at(std::size_t byte) const { return static_cast<std::byte*>(begin_) + byte; }

 private:
  void* begin_ = nullptr;
};

// Pinned host memory, because a copy from or to pinned memory takes a tenth of the time.
class HostMemory {
 public:
  explicit HostMemory(std::size_t bytes) { check(cudaMallocHost(&begin_, bytes), "cudaMallocHost"); }
  ~HostMemory() { cudaFreeHost(begin_); }
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;
  std::byte* at(std::size_t byte) const { return static_cast<std::byte*>(begin_) + byte; }

 private:
  void* begin_ = nullptr;
};

// The words of a check's command line.
struct CheckWords {
  bool speed = false;  // --speed: compares nothing, and measures once for each line of standard input
  bool small = false;  // --small: takes small sizes. Its speeds mean nothing
};

// Throws std::invalid_argument for a word that no check knows.
inline CheckWords read_words(int argc, char** argv) {
  CheckWords words;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word != "--speed" && word != "--small") {
      throw std::invalid_argument(fmt::format("unknown word {}; there are --speed and --small", word));
    }
    (word == "--speed" ? words.speed : words.small) = true;
  }
  return words;
}

// Calls measure(). With --speed, calls it once for each line of standard input, and prints a line after each call. So a
// script can measure this program and another one in turn.
template <typename Measure>
void measure_in_rounds(const CheckWords& words, const Measure& measure) {
  if (!words.speed) return measure();
  for (std::string line; std::getline(std::cin, line);) {
    measure();
    fmt::print("end of the round\n");
    std::fflush(stdout);
  }
}

// Opens the plug-in libreigen_cuda.so. The dynamic linker finds it in the folders of LD_LIBRARY_PATH, else where the
// build has written it, which is in the check's RUNPATH.
inline void* open_plugin() {
  void* const library = dlopen("libreigen_cuda.so", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error(dlerror());
  return library;
}

// Returns a function of the plug-in. Throws if the plug-in's version is not kPluginVersion.
template <typename Function>
Function function_of_plugin(const char* name) {
  void* const library = open_plugin();
  const auto version = reinterpret_cast<decltype(&reigen_cuda_version)>(dlsym(library, "reigen_cuda_version"));
  const auto function = reinterpret_cast<Function>(dlsym(library, name));
  if (version == nullptr || function == nullptr || version() != kPluginVersion) {
    throw std::runtime_error(fmt::format("libreigen_cuda.so is not version {}", kPluginVersion));
  }
  return function;
}

// Whether CUDA sees a GPU. If it sees none, prints a message to stderr.
inline bool has_gpu(const char* program) {
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error == cudaSuccess && devices > 0) return true;
  fmt::print(stderr, "{} needs a GPU, and CUDA sees none (error {}, {})\n", program, static_cast<int>(error),
             cudaGetErrorString(error));
  return false;
}

class Stopwatch {
 public:
  Stopwatch() {
    check(cudaEventCreate(&begin_), "cudaEventCreate");
    check(cudaEventCreate(&end_), "cudaEventCreate");
  }
  ~Stopwatch() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  // Milliseconds, the median of 20 runs after three that warm up.
  template <typename Work>
  float median(Work work) {
    constexpr int kWarmUps = 3;
    constexpr std::size_t kRuns = 20;
    std::vector<float> times;
    for (int run = -kWarmUps; run < static_cast<int>(kRuns); ++run) {
      check(cudaEventRecord(begin_, nullptr), "cudaEventRecord");
      work();
      check(cudaEventRecord(end_, nullptr), "cudaEventRecord");
      check(cudaEventSynchronize(end_), "cudaEventSynchronize");
      float time = 0;
      check(cudaEventElapsedTime(&time, begin_, end_), "cudaEventElapsedTime");
      if (run >= 0) times.push_back(time);
    }
    std::sort(times.begin(), times.end());
    return (times[kRuns / 2 - 1] + times[kRuns / 2]) / 2;
  }

 private:
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

inline double gigabytes_per_second(std::size_t bytes, float milliseconds) {
  return static_cast<double>(bytes) / (static_cast<double>(milliseconds) * 1e6);
}

}  // namespace reigen::device
