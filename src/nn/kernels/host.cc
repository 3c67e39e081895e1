#include "nn/kernels/host.h"

#include <cmath>
#include <cstring>

#define REIGEN_UNROLL
#define REIGEN_UNROLL_ROWS

namespace reigen::nn::kernels {

namespace {

#include "comm/reduce/elements.inl"

template <int kWidth>
struct Width {
  static constexpr int value = kWidth;
};

template <typename T, int kWidth>
struct Pack {
  T at[static_cast<unsigned>(kWidth)];
};

template <typename Storage, int kWidth>
inline Pack<Storage, kWidth> read(const Storage* from) {
  Pack<Storage, kWidth> result;
  std::memcpy(&result, from, sizeof(result));
  return result;
}

template <typename Storage, int kWidth>
inline void write(Storage* to, const Pack<Storage, kWidth>& values) {
  std::memcpy(to, &values, sizeof(values));
}

template <typename C>
inline C exp_of(C x) {
  return std::exp(x);
}
template <typename C>
inline C log_of(C x) {
  return std::log(x);
}
template <typename C>
inline C erf_of(C x) {
  return std::erf(x);
}
template <typename C>
inline C root_of(C x) {
  return std::sqrt(x);
}

// One thread.
struct Team {
  template <int kWidth, typename Action>
  void each(std::int64_t count, const Action& action) const {
    std::int64_t i = 0;
    for (; i + kWidth <= count; i += kWidth) action(Width<kWidth>(), i);
    for (; i < count; ++i) action(Width<1>(), i);
  }
  template <int kWidth, typename Action>
  void each_from_end(std::int64_t count, const Action& action) const {
    each<kWidth>(count, action);
  }
  template <int kWidth, typename Action>
  void each_part(std::int64_t parts, std::int64_t count, const Action& action) const {
    for (std::int64_t part = 0; part < parts; ++part) {
      each<kWidth>(count, [&](auto width, std::int64_t i) { action(width, part, i); });
    }
  }
  template <typename C>
  C sum(C own) const {
    return own;
  }
  template <typename C>
  C largest(C own) const {
    return own;
  }
  bool leads() const { return true; }
};

#include "nn/kernels/packs.inl"
// The loops use what packs.inl declares.
#include "nn/kernels/activations.inl"
#include "nn/kernels/batch_norm.inl"
#include "nn/kernels/cross_entropy.inl"
#include "nn/kernels/norm.inl"
#include "nn/kernels/tokens.inl"

template <typename Row, typename Call>
void run_rows(const Call& call, std::int64_t columns, const Share& share) {
  share(call.rows, columns, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) Row::run(Team(), call, row);
  });
}

// Runs a function of blocks of rows and of columns.
template <typename Block, int kWidth, typename Call>
void run_blocks(const Call& call, std::int64_t blocks, std::int64_t columns, const Share& share) {
  if (blocks == 0) return;
  share(blocks, call.rows / blocks * columns, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; ++block) {
      Team().each<kWidth>(columns, [&](auto width, std::int64_t i) { Block::run(width, call, block, i); });
    }
  });
}

// The second step of sums over rows.
template <typename T>
void add_blocks(const void* parts, void* to, std::int64_t blocks, std::int64_t columns, const Share& share) {
  using C = typename T::Computed;
  share(columns, blocks, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t column = begin; column < end; ++column) {
      C sum = 0;
      for (int slice = 0; slice < kSlices; ++slice) {
        sum += slice_of(static_cast<const C*>(parts), blocks, columns, column, slice);
      }
      store<typename T::Wide, 1>(to, column, {{sum}});
    }
  });
}

// The second step of the statistics of columns.
template <typename Column, typename Call>
void run_columns(const Call& call, const Share& share) {
  using C = typename Column::C;
  share(call.columns, device::batch_sums_of(call.rows), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t column = begin; column < end; ++column) {
      C first = 0;
      for (int slice = 0; slice < kSlices; ++slice) first += Column::first(call, column, slice);
      C second = 0;
      for (int slice = 0; slice < kSlices; ++slice) second += Column::second(call, column, slice, first);
      Column::finish(call, column, first, second);
    }
  });
}

}  // namespace

void run(const device::BatchStatisticsCall& call, const Share& share) {
  with_types(call.types, [&]<typename T>() {
    run_blocks<BatchSums<T>, T::kWidth>(call, device::batch_sums_of(call.rows), call.columns, share);
    run_columns<BatchStatistics<T>>(call, share);
  });
}

void run(const device::BatchNormCall& call, const Share& share) {
  with_types(call.types, [&]<typename T>() {
    run_blocks<BatchNorm<T>, T::kWidth>(call, device::sums_of(call.rows), call.columns, share);
  });
}

void run(const device::BatchNormSumsCall& call, const Share& share) {
  with_types(call.types, [&]<typename T>() {
    using C = typename T::Computed;
    using Sums = TypesOf<Plain<C>, Plain<C>, 1>;
    const std::int64_t blocks = device::batch_sums_of(call.rows);
    run_blocks<BatchNormSums<T>, T::kWidth>(call, blocks, call.columns, share);
    const auto* const parts = static_cast<const C*>(call.parts);
    add_blocks<Sums>(parts, call.of_weight, blocks, call.columns, share);
    add_blocks<Sums>(parts + blocks * call.columns, call.of_bias, blocks, call.columns, share);
  });
}

void run(const device::BatchNormBackwardCall& call, const Share& share) {
  with_types(call.types, [&]<typename T>() {
    run_blocks<BatchNormBackward<T>, T::kWidth>(call, device::sums_of(call.rows), call.columns, share);
  });
}

void run(const device::NormCall& call, const Share& share) {
  with_types(call.types, [&]<typename T>() { run_rows<NormRow<T>>(call, call.columns, share); });
}

void run(const device::NormBackwardCall& call, const Share& share) {
  with_types(call.types, [&]<typename T>() { run_rows<NormBackwardRow<T>>(call, call.columns, share); });
}

void run(const device::NormSumsCall& call, const Share& share) {
  with_types(call.types, [&]<typename T>() {
    const std::int64_t blocks = device::sums_of(call.rows);
    run_blocks<NormSums<T>, T::kWidth>(call, blocks, call.columns, share);
    const auto* const parts = static_cast<const typename T::Computed*>(call.parts);
    add_blocks<T>(parts, call.of_weight, blocks, call.columns, share);
    if (call.of_bias == nullptr) return;
    add_blocks<T>(parts + blocks * call.columns, call.of_bias, blocks, call.columns, share);
  });
}

void run(const device::CrossEntropyCall& call, const Share& share) {
  with_one_type(call.types, [&]<typename T>() {
    CountTargets::run(Team(), call);
    run_rows<CrossEntropyRow<T>>(call, call.columns, share);
    MeanLoss<T>::run(Team(), call);
  });
}

void run(const device::MultiplyCall& call, const Share& share) {
  with_one_type(call.types, [&]<typename T>() {
    share(call.count, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) Multiply<T>::run(Width<1>(), call, 0, i);
    });
  });
}

void run(const device::GeluCall& call, const Share& share) {
  with_types(call.types, [&]<typename T>() {
    run_blocks<Gelu<T>, T::kWidth>(call, device::sums_of(call.rows), call.columns, share);
  });
}

void run(const device::GeluBackwardCall& call, const Share& share) {
  with_types(call.types, [&]<typename T>() {
    const std::int64_t blocks = device::sums_of(call.rows);
    run_blocks<GeluBackward<T>, T::kWidth>(call, blocks, call.columns, share);
    if (call.of_bias != nullptr) add_blocks<T>(call.parts, call.of_bias, blocks, call.columns, share);
  });
}

void run(const device::SwigluCall& call, const Share& share) {
  with_one_type(call.types, [&]<typename T>() {
    run_blocks<Swiglu<T>, T::kWidth>(call, device::sums_of(call.rows), call.columns, share);
  });
}

void run(const device::SwigluBackwardCall& call, const Share& share) {
  with_one_type(call.types, [&]<typename T>() {
    run_blocks<SwigluBackward<T>, T::kWidth>(call, device::sums_of(call.rows), call.columns, share);
  });
}

void run(const device::RotaryCall& call, const Share& share) {
  with_one_type(call.types, [&]<typename T>() { run_rows<RotaryRow<T>>(call, 2 * call.heads * call.half, share); });
}

void run(const device::EmbeddingSumsCall& call, const Share& share) {
  with_one_type(call.types, [&]<typename T>() { run_rows<EmbeddingRun<T>>(call, call.columns, share); });
}

}  // namespace reigen::nn::kernels
