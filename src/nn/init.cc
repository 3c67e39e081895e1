#include "reigen/nn/init.h"

#include <fmt/format.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <string>

#include "base/check.h"
#include "base/hash.h"
#include "base/philox.h"
#include "nn/init_rules.h"
#include "nn/normal_quantile.h"
#include "nn/skip_writes.h"
#include "tensor/memory/away_memory.h"

namespace reigen::nn {

namespace {

template <typename T>
T rounded(double value) {
  return static_cast<T>(value);
}
// Rounds to fp32 first, so a model that is converted to bf16 later has the same values.
template <>
at::BFloat16 rounded<at::BFloat16>(double value) {
  return at::BFloat16(static_cast<float>(value));
}

// Sets values[i] = value(u). The number u in [0, 1) depends only on `name` (a hash), `seed` and the index first + i.
template <typename T, typename Value>
void fill(T* values, std::int64_t count, std::uint64_t name, std::uint64_t seed, std::int64_t first,
          const Value& value) {
  for (std::int64_t i = 0; i < count;) {
    const auto index = static_cast<std::uint64_t>(first + i);
    const auto words = base::philox(seed, index / 4, name);
    for (std::size_t lane = index % 4; lane < 4 && i < count; ++lane, ++i) {
      values[i] = rounded<T>(value(base::unit_interval(words[lane])));
    }
  }
}

template <typename Value>
void fill_tensor(const at::Tensor& tensor, std::string_view name, std::uint64_t seed, double scale, std::int64_t first,
                 const Value& value) {
  if (skips_writes() && tensor::is_away(tensor)) return;
  REIGEN_CHECK(!tensor::is_away(tensor),
               "initial values of {}: it has no memory\n  fix: name what sets them as DataParallelOptions::initialize",
               name);
  REIGEN_CHECK(tensor.device().is_cpu() && tensor.is_contiguous(),
               "initial values of {}: the tensor must be contiguous on the CPU", name);
  REIGEN_CHECK(first >= 0 && std::isfinite(scale) && scale >= 0,
               "initial values of {}: first = {} and the scale {} must not be negative", name, first, scale);
  const std::uint64_t hash = base::fnv1a(name);
  if (tensor.scalar_type() == at::kFloat) {
    fill(tensor.data_ptr<float>(), tensor.numel(), hash, seed, first, value);
  } else if (tensor.scalar_type() == at::kDouble) {
    fill(tensor.data_ptr<double>(), tensor.numel(), hash, seed, first, value);
  } else if (tensor.scalar_type() == at::kBFloat16) {
    fill(tensor.data_ptr<at::BFloat16>(), tensor.numel(), hash, seed, first, value);
  } else {
    throw InvalidArgument(Report{.what = fmt::format("initial values of {}", name),
                                 .got = at::toString(tensor.scalar_type()),
                                 .expected = "a tensor of float, double or bf16"});
  }
}

}  // namespace

void fill_uniform(const at::Tensor& tensor, std::string_view name, std::uint64_t seed, double bound,
                  std::int64_t first) {
  fill_tensor(tensor, name, seed, bound, first, [bound](double u) { return -bound + 2 * bound * u; });
}

void fill_normal(const at::Tensor& tensor, std::string_view name, std::uint64_t seed, double deviation,
                 std::int64_t first) {
  // u is a multiple of 2^-32 and may be 0, for which the quantile is infinite. So half of 2^-32 is added.
  fill_tensor(tensor, name, seed, deviation, first,
              [deviation](double u) { return deviation * normal_quantile(u + 0x1p-33); });
}

namespace {

std::string shape_text(const at::Tensor& tensor) {
  std::ostringstream shape;
  shape << tensor.sizes();
  return shape.str();
}

// Sets the parameters `weight` and `bias` of a module whose type has no rule of its own. If the weight has one
// dimension, they get the values of a normalisation, otherwise those of a linear layer or a convolution.
void initialize_by_names(const torch::nn::Module& module, const std::string& prefix, std::uint64_t seed) {
  const auto parameters = module.named_parameters(false);
  for (const auto& item : parameters) {
    const std::string& name = item.key();
    const at::Tensor& parameter = item.value();
    const at::Tensor* weight = parameters.find("weight");
    const bool known = weight != nullptr && weight->dim() >= 1 && (name == "weight" || name == "bias");
    if (!known) {
      throw InvalidArgument(
          Report{.what = fmt::format("no rule for the initial values of {}", prefix + name),
                 .got = fmt::format("shape {}, in a module of type {}", shape_text(parameter), module.name()),
                 .expected = "a parameter of LibTorch's own modules, or one called weight, or the "
                             "bias beside one",
                 .fix = "set the model's values yourself with fill_uniform or fill_normal (in a task: "
                        "override initialize)"});
    }
    if (weight->dim() == 1) {
      parameter.detach().fill_(name == "weight" ? 1.0 : 0.0);
      continue;
    }
    const auto fan_in =
        static_cast<double>(weight->numel()) / static_cast<double>(std::max<std::int64_t>(1, weight->size(0)));
    fill_uniform(parameter.detach(), prefix + name, seed, fan_in > 0 ? 1.0 / std::sqrt(fan_in) : 0.0);
  }
}

void initialize_tree(torch::nn::Module& module, const std::string& prefix, std::uint64_t seed) {
  for (const auto& child : module.named_children()) initialize_tree(*child.value(), prefix + child.key() + '.', seed);
  if (!initialize_by_type(module, prefix, seed)) initialize_by_names(module, prefix, seed);
}

}  // namespace

void initialize(torch::nn::Module& module, std::uint64_t seed) { initialize_tree(module, "", seed); }

}  // namespace reigen::nn
