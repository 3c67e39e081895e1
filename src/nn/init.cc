#include "reigen/nn/init.h"

#include <fmt/format.h>
#include <torch/nn/module.h>

#include <cmath>
#include <sstream>
#include <string>

#include "base/check.h"
#include "base/philox.h"
#include "nn/normal_quantile.h"
#include "nn/skip_writes.h"
#include "tensor/away_memory.h"

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

// values[i] = value(u(name, seed, first + i))
template <typename T, typename Value>
void fill(T* values, std::int64_t count, std::uint64_t name, std::uint64_t seed, std::int64_t first,
          const Value& value) {
  for (std::int64_t i = 0; i < count;) {
    const auto index = static_cast<std::uint64_t>(first + i);
    const auto words = base::philox(seed, index / 4, name);
    for (std::size_t lane = index % 4; lane < 4 && i < count; ++lane, ++i) {
      values[i] = static_cast<T>(value(base::unit_interval(words[lane])));
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
  const std::uint64_t hash = hash_name(name);
  if (tensor.scalar_type() == at::kFloat) {
    fill(tensor.data_ptr<float>(), tensor.numel(), hash, seed, first, value);
  } else if (tensor.scalar_type() == at::kDouble) {
    fill(tensor.data_ptr<double>(), tensor.numel(), hash, seed, first, value);
  } else {
    throw InvalidArgument(Report{.what = fmt::format("initial values of {}", name),
                                 .got = at::toString(tensor.scalar_type()),
                                 .expected = "a tensor of float or double"});
  }
}

}  // namespace

void fill_uniform(const at::Tensor& tensor, std::string_view name, std::uint64_t seed, double bound,
                  std::int64_t first) {
  fill_tensor(tensor, name, seed, bound, first, [bound](double u) { return -bound + 2 * bound * u; });
}

void fill_normal(const at::Tensor& tensor, std::string_view name, std::uint64_t seed, double deviation,
                 std::int64_t first) {
  // Half a step up: u itself may be 0.
  fill_tensor(tensor, name, seed, deviation, first,
              [deviation](double u) { return deviation * normal_quantile(u + 0x1p-33); });
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
        weight != nullptr && weight->dim() >= 1 && (name == parent + "weight" || name == parent + "bias");
    if (!known) {
      std::ostringstream shape;
      shape << parameter.sizes();
      throw InvalidArgument(Report{.what = fmt::format("no rule for the initial values of {}", name),
                                   .got = fmt::format("shape {}", shape.str()),
                                   .expected = "a parameter called weight, or the bias beside one",
                                   .fix = "set it yourself with fill_uniform or fill_normal"});
    }
    if (weight->dim() == 1) {
      parameter.detach().fill_(name == parent + "weight" ? 1.0 : 0.0);
      continue;
    }
    const auto fan_in =
        static_cast<double>(weight->numel()) / static_cast<double>(std::max<std::int64_t>(1, weight->size(0)));
    fill_uniform(parameter.detach(), name, seed, fan_in > 0 ? 1.0 / std::sqrt(fan_in) : 0.0);
  }
}

}  // namespace reigen::nn
