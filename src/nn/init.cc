#include "reigen/nn/init.h"

#include <fmt/format.h>
#include <torch/nn/module.h>

#include <cmath>
#include <sstream>
#include <string>

#include "base/check.h"
#include "base/philox.h"

namespace reigen::nn {

namespace {

std::uint64_t hash_name(std::string_view name) {
  std::uint64_t hash = 14695981039346656037ULL;  // FNV-1a
  for (const char c : name) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 1099511628211ULL;
  }
  return hash;
}

template <typename T>
void fill(T* values, std::int64_t count, std::uint64_t name, std::uint64_t seed, double bound, std::int64_t first) {
  for (std::int64_t i = 0; i < count;) {
    const auto index = static_cast<std::uint64_t>(first + i);
    const auto words = base::philox(seed, index / 4, name);
    for (std::size_t lane = index % 4; lane < 4 && i < count; ++lane, ++i) {
      values[i] = static_cast<T>(-bound + 2 * bound * base::unit_interval(words[lane]));
    }
  }
}

}  // namespace

void fill_uniform(const at::Tensor& tensor, std::string_view name, std::uint64_t seed, double bound,
                  std::int64_t first) {
  REIGEN_CHECK(tensor.device().is_cpu() && tensor.is_contiguous(),
               "initial values of {}: the tensor must be contiguous on the CPU", name);
  REIGEN_CHECK(first >= 0 && std::isfinite(bound) && bound >= 0,
               "initial values of {}: first = {} and bound = {} must not be negative", name, first, bound);
  const std::uint64_t hash = hash_name(name);
  if (tensor.scalar_type() == at::kFloat) {
    fill(tensor.data_ptr<float>(), tensor.numel(), hash, seed, bound, first);
  } else if (tensor.scalar_type() == at::kDouble) {
    fill(tensor.data_ptr<double>(), tensor.numel(), hash, seed, bound, first);
  } else {
    throw InvalidArgument(Report{.what = fmt::format("initial values of {}", name),
                                 .got = at::toString(tensor.scalar_type()),
                                 .expected = "a tensor of float or double"});
  }
}

void initialize(torch::nn::Module& module, std::uint64_t seed) {
  const auto parameters = module.named_parameters();
  for (const auto& item : parameters) {
    const std::string& name = item.key();
    const at::Tensor& parameter = item.value();
    const auto dot = name.rfind('.');
    const std::string parent = dot == std::string::npos ? "" : name.substr(0, dot + 1);
    const at::Tensor* weight = parameters.find(parent + "weight");
    const bool known =
        weight != nullptr && weight->dim() >= 2 && (name == parent + "weight" || name == parent + "bias");
    if (!known) {
      std::ostringstream shape;
      shape << parameter.sizes();
      throw InvalidArgument(Report{.what = fmt::format("no rule for the initial values of {}", name),
                                   .got = fmt::format("shape {}", shape.str()),
                                   .expected = "the weight of a convolution or linear layer, or the bias beside one",
                                   .fix = "set it yourself with fill_uniform"});
    }
    const auto fan_in =
        static_cast<double>(weight->numel()) / static_cast<double>(std::max<std::int64_t>(1, weight->size(0)));
    fill_uniform(parameter.detach(), name, seed, fan_in > 0 ? 1.0 / std::sqrt(fan_in) : 0.0);
  }
}

}  // namespace reigen::nn
