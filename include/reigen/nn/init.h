// Initial values that depend only on a parameter's name, the seed and the element's index. They are the same for every
// layout, machine and number of threads. They depend neither on other parts of the module nor on the order in which the
// module's parts were created.
// Thread rule: the functions have no shared state.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace reigen::nn {

// tensor[i] = -bound + 2·bound·u(name, seed, first + i), where u is uniform in [0, 1). Elements are numbered in
// row-major order; values are computed in double and rounded to the tensor's type. If the tensor is only a part of a
// parameter, `first` is the index of the tensor's first element in the whole parameter. Throws InvalidArgument unless
// the tensor is a contiguous fp32, fp64 or bf16 tensor on the CPU.
void fill_uniform(const at::Tensor& tensor, std::string_view name, std::uint64_t seed, double bound,
                  std::int64_t first = 0);

// As fill_uniform(), but normal with mean 0 and standard deviation `deviation`: tensor[i] = deviation · q(u + 2^-33),
// where q is the inverse of the normal distribution function; |tensor[i]| < 6.4 · deviation.
void fill_normal(const at::Tensor& tensor, std::string_view name, std::uint64_t seed, double deviation,
                 std::int64_t first = 0);

// Sets the initial values of all parameters of `module`. Every module of torch::nn gets the distributions of its
// reset_parameters(), as in LibTorch.
// - Convolutions and linear layers: uniform in ±1/sqrt(fan_in), where fan_in is the number of weights per output.
// - Normalisation layers: weight 1, bias 0.
// - RNN, LSTM, GRU and their cells: uniform in ±1/sqrt(hidden size).
// - Embeddings: normal, but the row of the padding index is 0. Embeddings that were created from given weights keep
//   these weights.
// - MultiheadAttention and Transformer: after Glorot and Bengio.
// - Classes of your own: if a module has a parameter "weight", this parameter and the parameter "bias" get the values
//   of a linear layer. If "weight" has one dimension, they get the values of a normalisation layer. For every other
//   parameter initialize() throws InvalidArgument with its name.
void initialize(torch::nn::Module& module, std::uint64_t seed);

}  // namespace reigen::nn
