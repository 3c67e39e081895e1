// The kernels into which the loops for the layers of models are put, and their launches. A source of kernels includes
// this file, and then the loops of nn/kernels/ inside its namespaces. Thread rule: any thread.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "team.h"

namespace reigen::nn::kernels {
namespace {

constexpr int kResidentThreads = 768;  // an SM has enough registers for so many threads

// A team for each row.
template <typename Row, int kThreads, int kBlock, typename Call>
__global__ void __launch_bounds__(kBlock, kBlock < kResidentThreads ? kResidentThreads / kBlock : 1)
    rows_of(const Call call) {
  constexpr int kTeams = kBlock / kThreads;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kTeams;
  for (std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kTeams + threadIdx.x / kThreads; row < call.rows;
       row += step) {
    Row::run(Team<kThreads>(), call, row);
  }
}

// A thread for each block of rows and pack of columns.
constexpr int kColumnThreads = 128;
template <typename Block, int kWidth, typename Call>
__global__ void __launch_bounds__(kColumnThreads, kResidentThreads / kColumnThreads)
    columns_of(const Call call, const std::int64_t columns, const std::int64_t tiles, const std::int64_t blocks) {
  for (std::int64_t at = blockIdx.x; at < tiles * blocks; at += gridDim.x) {
    const std::int64_t block = at / tiles;
    const std::int64_t i = ((at - block * tiles) * kColumnThreads + threadIdx.x) * kWidth;
    if (i < columns) Block::run(Width<kWidth>(), call, block, i);
  }
}

// The same for tables with few columns: a thread of a block may take another block of rows than its neighbour. The
// loops keep several numbers for each column, so fewer threads get more registers.
constexpr int kResidentPacks = 512;
template <typename Block, int kWidth, typename Call>
__global__ void __launch_bounds__(kColumnThreads, kResidentPacks / kColumnThreads)
    packs_of(const Call call, const std::int64_t packs, const std::int64_t blocks) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kColumnThreads;
  for (std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kColumnThreads + threadIdx.x; at < packs * blocks;
       at += step) {
    const std::int64_t block = at / packs;
    Block::run(Width<kWidth>(), call, block, (at - block * packs) * kWidth);
  }
}

// One block of threads.
template <typename Work, typename Call>
__global__ void __launch_bounds__(kLargestBlock, 1) once(const Call call) {
  Work::run(Team<kLargestBlock>(), call);
}

// The second step of sums over rows. A block of threads takes kWarp columns.
template <typename T>
__global__ void __launch_bounds__(kWarp* kSlices) add_blocks(const typename T::Computed* const parts, void* const to,
                                                             const std::int64_t blocks, const std::int64_t columns) {
  using C = typename T::Computed;
  __shared__ C slices[kSlices][kWarp];
  for (std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * kWarp; begin < columns;
       begin += static_cast<std::int64_t>(gridDim.x) * kWarp) {
    const std::int64_t column = begin + threadIdx.x;
    if (column < columns) {
      slices[threadIdx.y][threadIdx.x] = slice_of(parts, blocks, columns, column, static_cast<int>(threadIdx.y));
    }
    __syncthreads();
    if (threadIdx.y == 0 && column < columns) {
      C sum = 0;
      for (int slice = 0; slice < kSlices; ++slice) sum += slices[slice][threadIdx.x];
      store<typename T::Wide, 1>(to, column, {{sum}});
    }
    __syncthreads();
  }
}

// Two sums over blocks of rows for each column, the second of which needs the first.
template <typename Column, typename Call>
__global__ void __launch_bounds__(kWarp* kSlices) two_sums(const Call call) {
  using C = typename Column::C;
  __shared__ C slices[kSlices][kWarp];
  const int slice = static_cast<int>(threadIdx.y);
  const auto total = [&] {
    C sum = 0;
    for (int of = 0; of < kSlices; ++of) sum += slices[of][threadIdx.x];
    return sum;
  };
  for (std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * kWarp; begin < call.columns;
       begin += static_cast<std::int64_t>(gridDim.x) * kWarp) {
    const std::int64_t column = begin + threadIdx.x;
    const bool is_there = column < call.columns;
    if (is_there) slices[slice][threadIdx.x] = Column::first(call, column, slice);
    __syncthreads();
    const C first = total();
    __syncthreads();  // waits until all threads have read the slices
    if (is_there) slices[slice][threadIdx.x] = Column::second(call, column, slice, first);
    __syncthreads();
    if (is_there && slice == 0) Column::finish(call, column, first, total());
    __syncthreads();
  }
}

inline dim3 grid_of(long long blocks) {
  return dim3(static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks));
}

// Takes the launch's own error, because cudaGetLastError() could return an error of other code.
template <typename Kernel>
cudaError_t start(Kernel* kernel, dim3 grid, dim3 block, std::initializer_list<const void*> parameters,
                  cudaStream_t stream) {
  return cudaLaunchKernel(reinterpret_cast<const void*>(kernel), grid, block, const_cast<void**>(parameters.begin()), 0,
                          stream);
}

template <typename Row, int kThreads, int kBlock, typename Call>
cudaError_t start_rows(const Call& call, cudaStream_t stream) {
  constexpr long long kTeams = kBlock / kThreads;
  return start(&rows_of<Row, kThreads, kBlock, Call>, grid_of((call.rows + kTeams - 1) / kTeams), dim3(kBlock), {&call},
               stream);
}

// `most`: a kernel that may have nothing to do starts few blocks of threads, each of which then takes several tiles.
template <typename Block, int kWidth, typename Call>
cudaError_t start_columns(const Call& call, std::int64_t columns, std::int64_t blocks, cudaStream_t stream,
                          long long most = kMostBlocks) {
  const std::int64_t tiles = (columns + kColumnThreads * kWidth - 1) / (kColumnThreads * kWidth);
  const long long all = tiles * blocks;
  return start(&columns_of<Block, kWidth, Call>, grid_of(all < most ? all : most), dim3(kColumnThreads),
               {&call, &columns, &tiles, &blocks}, stream);
}

template <typename Block, int kWidth, typename Call>
cudaError_t start_packs(const Call& call, std::int64_t columns, std::int64_t blocks, cudaStream_t stream) {
  const std::int64_t packs = columns / kWidth;
  return start(&packs_of<Block, kWidth, Call>, grid_of((packs * blocks + kColumnThreads - 1) / kColumnThreads),
               dim3(kColumnThreads), {&call, &packs, &blocks}, stream);
}

template <typename Column, typename Call>
cudaError_t start_two_sums(const Call& call, cudaStream_t stream) {
  return start(&two_sums<Column, Call>, grid_of((call.columns + kWarp - 1) / kWarp), dim3(kWarp, kSlices), {&call},
               stream);
}

template <typename Work, typename Call>
cudaError_t start_once(const Call& call, cudaStream_t stream) {
  return start(&once<Work, Call>, dim3(1), dim3(kLargestBlock), {&call}, stream);
}

template <typename T>
cudaError_t start_add_blocks(const typename T::Computed* parts, void* to, std::int64_t blocks, std::int64_t columns,
                             cudaStream_t stream) {
  return start(&add_blocks<T>, grid_of((columns + kWarp - 1) / kWarp), dim3(kWarp, kSlices),
               {&parts, &to, &blocks, &columns}, stream);
}

// Whether all addresses are multiples of 16 bytes and all sizes are multiples of `width`.
inline bool fit_packs(int width, std::initializer_list<const void*> addresses, std::initializer_list<long long> sizes) {
  constexpr std::uintptr_t kVector = 16;
  for (const void* const address : addresses) {
    if (reinterpret_cast<std::uintptr_t>(address) % kVector != 0) return false;
  }
  for (const long long size : sizes) {
    if (size % width != 0) return false;
  }
  return true;
}

inline bool are_there(std::initializer_list<const void*> addresses) {
  for (const void* const address : addresses) {
    if (address == nullptr) return false;
  }
  return true;
}

}  // namespace
}  // namespace reigen::nn::kernels
