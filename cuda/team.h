// What the kernels for the layers of models share: teams of threads and access to packs of elements. launch.h includes
// this file. Thread rule: any thread.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "device/model_calls.h"
#include "last_error.h"

#define REIGEN_UNROLL _Pragma("unroll")
#define REIGEN_UNROLL_ROWS _Pragma("unroll 4")

namespace reigen::nn::kernels {
namespace {

using device::forgotten;

#include "comm/reduce/elements.inl"

constexpr int kWarp = 32;
constexpr int kLargestBlock = 1024;
constexpr long long kMostBlocks = 0x7fffffff;
constexpr unsigned kAllLanes = 0xffffffffu;

template <int kWidth>
struct Width {
  static constexpr int value = kWidth;
};

template <typename T, int kWidth>
struct Pack {
  T at[kWidth];
};

struct TwoVectors {
  uint4 first;
  uint4 second;
};

// kWidth elements as accesses of 16 bytes, or one of 8 bytes. A single element needs no such address.
template <typename Storage, int kWidth>
__device__ __forceinline__ Pack<Storage, kWidth> read(const Storage* from) {
  constexpr int kBytes = kWidth * static_cast<int>(sizeof(Storage));
  if constexpr (kWidth == 1) {
    return {{*from}};
  } else if constexpr (kBytes == 8) {
    return __builtin_bit_cast(Pack<Storage, kWidth>, *reinterpret_cast<const uint2*>(from));
  } else if constexpr (kBytes == 16) {
    return __builtin_bit_cast(Pack<Storage, kWidth>, *reinterpret_cast<const uint4*>(from));
  } else {
    const auto* const vectors = reinterpret_cast<const uint4*>(from);
    return __builtin_bit_cast(Pack<Storage, kWidth>, TwoVectors{vectors[0], vectors[1]});
  }
}

template <typename Storage, int kWidth>
__device__ __forceinline__ void write(Storage* to, const Pack<Storage, kWidth>& values) {
  constexpr int kBytes = kWidth * static_cast<int>(sizeof(Storage));
  if constexpr (kWidth == 1) {
    *to = values.at[0];
  } else if constexpr (kBytes == 8) {
    *reinterpret_cast<uint2*>(to) = __builtin_bit_cast(uint2, values);
  } else if constexpr (kBytes == 16) {
    *reinterpret_cast<uint4*>(to) = __builtin_bit_cast(uint4, values);
  } else {
    const auto both = __builtin_bit_cast(TwoVectors, values);
    reinterpret_cast<uint4*>(to)[0] = both.first;
    reinterpret_cast<uint4*>(to)[1] = both.second;
  }
}

template <typename C>
__device__ __forceinline__ C exp_of(C x) {
  if constexpr (sizeof(C) == sizeof(float)) {
    return expf(x);
  } else {
    return exp(x);
  }
}
template <typename C>
__device__ __forceinline__ C log_of(C x) {
  if constexpr (sizeof(C) == sizeof(float)) {
    return logf(x);
  } else {
    return log(x);
  }
}
template <typename C>
__device__ __forceinline__ C erf_of(C x) {
  if constexpr (sizeof(C) == sizeof(float)) {
    return erff(x);
  } else {
    return erf(x);
  }
}
template <typename C>
__device__ __forceinline__ C root_of(C x) {
  if constexpr (sizeof(C) == sizeof(float)) {
    return sqrtf(x);
  } else {
    return sqrt(x);
  }
}

struct Add {
  template <typename C>
  __device__ __forceinline__ C operator()(C a, C b) const {
    return a + b;
  }
};
struct Largest {
  template <typename C>
  __device__ __forceinline__ C operator()(C a, C b) const {
    return a < b ? b : a;
  }
};

// A warp, or a block of kThreads threads.
template <int kThreads>
struct Team {
  static __device__ __forceinline__ int rank() { return static_cast<int>(threadIdx.x) % kThreads; }

  template <int kWidth, typename Action>
  __device__ __forceinline__ void each(std::int64_t count, const Action& action) const {
    // Two packs at a time, so that a thread waits for both reads together.
#pragma unroll 2
    for (std::int64_t i = rank() * kWidth; i < count; i += kThreads * kWidth) action(Width<kWidth>(), i);
  }
  template <int kWidth, typename Action>
  __device__ __forceinline__ void each_from_end(std::int64_t count, const Action& action) const {
    constexpr std::int64_t kStep = kThreads * kWidth;
    const std::int64_t first = rank() * kWidth;
    if (first >= count) return;
    for (std::int64_t i = first + (count - 1 - first) / kStep * kStep; i >= 0; i -= kStep) action(Width<kWidth>(), i);
  }
  // The packs of `parts` arrays of `count` elements each.
  template <int kWidth, typename Action>
  __device__ __forceinline__ void each_part(std::int64_t parts, std::int64_t count, const Action& action) const {
    const unsigned packs = static_cast<unsigned>(count / kWidth);
    const unsigned all = static_cast<unsigned>(parts) * packs;
    for (unsigned at = static_cast<unsigned>(rank()); at < all; at += kThreads) {
      const unsigned part = at / packs;
      action(Width<kWidth>(), static_cast<std::int64_t>(part), static_cast<std::int64_t>(at - part * packs) * kWidth);
    }
  }

  template <typename C>
  __device__ __forceinline__ C sum(C own) const {
    return combined(own, Add());
  }
  template <typename C>
  __device__ __forceinline__ C largest(C own) const {
    return combined(own, Largest());
  }
  __device__ __forceinline__ bool leads() const { return rank() == 0; }

 private:
  // Each thread of a warp gets the same bits, because a + b = b + a. Then each thread combines the warps in their
  // order. The calls of a thread are in the order of its accesses to memory.
  template <typename C, typename Combine>
  __device__ __forceinline__ C combined(C own, const Combine& combine) const {
    __syncwarp();
    for (int apart = kWarp / 2; apart > 0; apart /= 2) own = combine(own, __shfl_xor_sync(kAllLanes, own, apart));
    if constexpr (kThreads > kWarp) {
      constexpr int kWarps = kThreads / kWarp;
      __shared__ C of_warps[kWarps];
      __syncthreads();  // waits until an earlier result has been read
      if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = own;
      __syncthreads();
      own = of_warps[0];
      for (int warp = 1; warp < kWarps; ++warp) own = combine(own, of_warps[warp]);
    }
    return own;
  }
};

#include "nn/kernels/packs.inl"

}  // namespace
}  // namespace reigen::nn::kernels
