// Rotary position embedding: turns pairs of the values of a query or key by angles that grow with the position. The
// pairs are (x[i], x[half + i]), as in Llama; half is half of the width of a head.
// Su et al., RoFormer, https://arxiv.org/abs/2104.09864
// Thread rule: any thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>

namespace reigen::nn {

// Cosine and sine of the angle position·theta^(-2·i / width), each of shape [positions, width / 2].
struct RotaryTable {
  at::Tensor cosines;
  at::Tensor sines;
};

// The table is computed in fp64 on the host and then rounded to `type`, which is kFloat, or kDouble for models in fp64.
// Throws InvalidArgument unless `width` is even and at least 2, `positions` is at least 1 and `theta` is above 0.
RotaryTable rotary_table(std::int64_t positions, std::int64_t width, double theta = 10000,
                         c10::ScalarType type = c10::ScalarType::Float, c10::Device device = c10::DeviceType::CPU);

// Returns x turned. `x` has the shape [B,T,heads,width] and the type fp64, fp32, bf16 or fp16. Its first position is
// row `first` of the table. On a thread that computes a part of each sequence (sequence_part.h), x has the positions of
// this part. If x has gaps only between its heads, as a part of a joint projection of query, key and
// value has, it is read without a copy. The result can be differentiated once: a second derivative throws
// InvalidArgument. Throws InvalidArgument for shapes, types and devices that do not fit.
at::Tensor rotary(const at::Tensor& x, const RotaryTable& table, std::int64_t first = 0);

// The same in the memory of x, which is returned. If x needs a gradient, it must be neither a parameter nor a part of
// another tensor; otherwise this throws InvalidArgument. LibTorch reports an error if another operation needs the old
// values in its backward.
at::Tensor rotary_(const at::Tensor& x, const RotaryTable& table, std::int64_t first = 0);

}  // namespace reigen::nn
