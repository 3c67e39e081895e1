#include "fakes/cuda/model_kernels.h"

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "fakes/cuda/device.h"
#include "fakes/cuda/stand_in.h"
#include "nn/kernels/host.h"

namespace reigen::testing::stand_in {

namespace {

using device::ModelTypes;

// Bytes of an element.
struct Sizes {
  long long wide = 4;
  long long narrow = 4;
  long long computed = 4;
};
Sizes sizes_of(int types) {
  switch (static_cast<ModelTypes>(types)) {
    case ModelTypes::kFloat64: return {8, 8, 8};
    case ModelTypes::kFloat32: return {4, 4, 4};
    case ModelTypes::kBfloat16:
    case ModelTypes::kFloat16: return {2, 2, 4};
    case ModelTypes::kFloat32Bfloat16:
    case ModelTypes::kFloat32Float16: return {4, 2, 4};
  }
  die("a call of a layer has no such types");
}

// Each function calls use(address, bytes) for every address of a call.
template <class Use>
void each_address(device::NormCall& c, const Use& use) {
  const Sizes s = sizes_of(c.types);
  const long long count = c.rows * c.columns;
  use(c.input, count * s.wide);
  use(c.added, count * s.narrow);
  use(c.sum, count * s.wide);
  use(c.weight, c.columns * s.wide);
  use(c.bias, c.columns * s.wide);
  use(c.output, count * s.narrow);
  use(c.mean, c.rows * s.computed);
  use(c.rstd, c.rows * s.computed);
}
template <class Use>
void each_address(device::NormBackwardCall& c, const Use& use) {
  const Sizes s = sizes_of(c.types);
  const long long count = c.rows * c.columns;
  use(c.of_output, count * s.narrow);
  use(c.of_sum, count * s.wide);
  use(c.sum, count * s.wide);
  use(c.weight, c.columns * s.wide);
  use(c.mean, c.rows * s.computed);
  use(c.rstd, c.rows * s.computed);
  use(c.of_input, count * s.wide);
  use(c.of_added, count * s.narrow);
}
template <class Use>
void each_address(device::NormSumsCall& c, const Use& use) {
  const Sizes s = sizes_of(c.types);
  const long long count = c.rows * c.columns;
  use(c.of_output, count * s.narrow);
  use(c.sum, count * s.wide);
  use(c.mean, c.rows * s.computed);
  use(c.rstd, c.rows * s.computed);
  use(c.parts, (c.of_bias != nullptr ? 2 : 1) * device::sums_of(c.rows) * c.columns * s.computed);
  use(c.of_weight, c.columns * s.wide);
  use(c.of_bias, c.columns * s.wide);
}
template <class Use>
void each_address(device::BatchStatisticsCall& c, const Use& use) {
  const Sizes s = sizes_of(c.types);
  use(c.input, c.rows * c.columns * s.narrow);
  use(c.parts, 2 * device::batch_sums_of(c.rows) * c.columns * s.computed);
  use(c.mean, c.columns * s.computed);
  use(c.rstd, c.columns * s.computed);
  use(c.running_mean, c.columns * s.wide);
  use(c.running_var, c.columns * s.wide);
}
// The addresses that the three other calls of a batch normalisation have.
template <class Call, class Use>
void each_batch_address(Call& c, const Use& use) {
  const Sizes s = sizes_of(c.types);
  use(c.input, c.rows * c.columns * s.narrow);
  use(c.weight, c.columns * s.wide);
  use(c.bias, c.columns * s.wide);
  use(c.mean, c.columns * s.computed);
  use(c.rstd, c.columns * s.computed);
}
template <class Use>
void each_address(device::BatchNormCall& c, const Use& use) {
  each_batch_address(c, use);
  const long long bytes = c.rows * c.columns * sizes_of(c.types).narrow;
  use(c.residual, bytes);
  use(c.output, bytes);
}
template <class Use>
void each_address(device::BatchNormSumsCall& c, const Use& use) {
  each_batch_address(c, use);
  const Sizes s = sizes_of(c.types);
  const long long bytes = c.rows * c.columns * s.narrow;
  use(c.of_output, bytes);
  use(c.output, bytes);
  use(c.of_residual, bytes);
  use(c.parts, 2 * device::batch_sums_of(c.rows) * c.columns * s.computed);
  use(c.of_weight, c.columns * s.computed);
  use(c.of_bias, c.columns * s.computed);
}
template <class Use>
void each_address(device::BatchNormBackwardCall& c, const Use& use) {
  each_batch_address(c, use);
  const Sizes s = sizes_of(c.types);
  use(c.of_output, c.rows * c.columns * s.narrow);
  use(c.of_weight, c.columns * s.computed);
  use(c.of_bias, c.columns * s.computed);
  use(c.of_input, c.rows * c.columns * s.narrow);
}
template <class Use>
void each_address(device::CrossEntropyCall& c, const Use& use) {
  const Sizes s = sizes_of(c.types);
  const long long count = c.rows * c.columns;
  use(c.logits, count * s.wide);
  use(c.gradients, count * s.wide);
  use(c.targets, c.rows * static_cast<long long>(sizeof(long long)));
  use(c.losses, c.rows * s.computed);
  use(c.counted, sizeof(double));
  use(c.loss, s.computed);
}
template <class Use>
void each_address(device::MultiplyCall& c, const Use& use) {
  const Sizes s = sizes_of(c.types);
  use(c.values, c.count * s.wide);
  use(c.factor, s.computed);
  use(c.divisor, sizeof(double));
}
template <class Use>
void each_address(device::GeluCall& c, const Use& use) {
  const Sizes s = sizes_of(c.types);
  use(c.input, c.rows * c.columns * s.narrow);
  use(c.bias, c.columns * s.wide);
  use(c.output, c.rows * c.columns * s.narrow);
}
template <class Use>
void each_address(device::GeluBackwardCall& c, const Use& use) {
  const Sizes s = sizes_of(c.types);
  use(c.of_output, c.rows * c.columns * s.narrow);
  use(c.input, c.rows * c.columns * s.narrow);
  use(c.bias, c.columns * s.wide);
  use(c.of_input, c.rows * c.columns * s.narrow);
  use(c.parts, device::sums_of(c.rows) * c.columns * s.computed);
  use(c.of_bias, c.columns * s.wide);
}
// The bytes from the first element of the first row to the last element of the last row.
long long extent(long long rows, long long stride, long long columns, long long size) {
  return rows == 0 ? 0 : ((rows - 1) * stride + columns) * size;
}
template <class Use>
void each_address(device::SwigluCall& c, const Use& use) {
  const Sizes s = sizes_of(c.types);
  use(c.gate, extent(c.rows, c.gate_stride, c.columns, s.wide));
  use(c.up, extent(c.rows, c.up_stride, c.columns, s.wide));
  use(c.output, c.rows * c.columns * s.wide);
}
template <class Use>
void each_address(device::SwigluBackwardCall& c, const Use& use) {
  const Sizes s = sizes_of(c.types);
  use(c.of_output, c.rows * c.columns * s.wide);
  use(c.gate, extent(c.rows, c.gate_stride, c.columns, s.wide));
  use(c.up, extent(c.rows, c.up_stride, c.columns, s.wide));
  use(c.of_gate, extent(c.rows, c.of_gate_stride, c.columns, s.wide));
  use(c.of_up, extent(c.rows, c.of_up_stride, c.columns, s.wide));
}
template <class Use>
void each_address(device::RotaryCall& c, const Use& use) {
  const Sizes s = sizes_of(c.types);
  const auto bytes = [&](const device::RotaryStrides& strides) {
    if (c.rows == 0) return 0LL;
    const long long last = (c.rows / c.positions - 1) * strides.batch + (c.positions - 1) * strides.position +
                           (c.heads - 1) * strides.head;
    return (last + 2 * c.half) * s.wide;
  };
  use(c.input, bytes(c.input_strides));
  use(c.output, bytes(c.output_strides));
  use(c.cosines, c.positions * c.half * s.computed);
  use(c.sines, c.positions * c.half * s.computed);
}
template <class Use>
void each_address(device::EmbeddingSumsCall& c, const Use& use) {
  const Sizes s = sizes_of(c.types);
  use(c.of_output, c.rows * c.columns * s.wide);
  use(c.sorted, c.rows * static_cast<long long>(sizeof(long long)));
  use(c.order, c.rows * static_cast<long long>(sizeof(long long)));
  use(c.of_weight, c.tokens * c.columns * s.wide);
}

template <class Call>
int enqueue(const Call* call, void* stream) {
  Queue& queue = queue_of(static_cast<cudaStream_t>(stream));
  counts(queue.device()).layers += 1;
  queue.push([copy = *call, device = queue.device()] {
    Call here = copy;
    each_address(here, [&]<typename T>(T*& address, long long bytes) {
      if (address == nullptr || bytes == 0) return;
      require_memory(address, static_cast<std::size_t>(bytes), device, "a tensor of a layer");
      address = reinterpret_cast<T*>(reach(address));
    });
    nn::kernels::run(here, [](std::int64_t count, std::int64_t, const nn::kernels::Part& part) { part(0, count); });
  });
  return cudaSuccess;
}

}  // namespace

void add_model_kernels(device::Kernels& table) {
  table.norm = &enqueue;
  table.norm_backward = &enqueue;
  table.norm_sums = &enqueue;
  table.batch_statistics = &enqueue;
  table.batch_norm = &enqueue;
  table.batch_norm_sums = &enqueue;
  table.batch_norm_backward = &enqueue;
  table.cross_entropy = &enqueue;
  table.multiply = &enqueue;
  table.gelu = &enqueue;
  table.gelu_backward = &enqueue;
  table.swiglu = &enqueue;
  table.swiglu_backward = &enqueue;
  table.rotary = &enqueue;
  table.embedding_sums = &enqueue;
}

}  // namespace reigen::testing::stand_in
