#include "reigen/data/dataset.h"

#include <ATen/ops/empty.h>

#include <cstring>
#include <utility>

#include "base/check.h"

namespace reigen::data {
namespace {

class InMemory : public Dataset {
 public:
  InMemory(const at::Tensor& input, const at::Tensor& target, std::string name)
      : input_(input.contiguous()), target_(target.contiguous()), name_(std::move(name)) {}

  std::int64_t size() const override { return input_.size(0); }
  const std::string& name() const override { return name_; }
  Samples gather(std::span<const std::int64_t> indices) const override {
    return {rows(input_, indices), rows(target_, indices)};
  }

 private:
  static at::Tensor rows(const at::Tensor& from, std::span<const std::int64_t> indices) {
    auto sizes = from.sizes().vec();
    sizes[0] = static_cast<std::int64_t>(indices.size());
    auto result = at::empty(sizes, from.options());
    const std::size_t row = from.nbytes() / static_cast<std::size_t>(from.size(0));
    const auto* source = static_cast<const std::byte*>(from.const_data_ptr());
    auto* out = static_cast<std::byte*>(result.mutable_data_ptr());
    for (const std::int64_t index : indices) {
      std::memcpy(out, source + row * static_cast<std::size_t>(index), row);
      out += row;
    }
    return result;
  }

  at::Tensor input_;
  at::Tensor target_;
  std::string name_;
};

}  // namespace

Samples Dataset::gather_in(const Pass&, std::span<const std::int64_t> indices) const { return gather(indices); }

std::int64_t Dataset::terms(std::int64_t) const { return 1; }

const char* to_string(Split split) { return split == Split::kTrain ? "train" : "test"; }

DatasetPtr in_memory(const at::Tensor& input, const at::Tensor& target, std::string name) {
  REIGEN_CHECK(input.defined() && target.defined() && input.dim() >= 1 && target.dim() >= 1,
               "input and target must be tensors with a first dimension, the samples");
  REIGEN_CHECK(input.device().is_cpu() && target.device().is_cpu(), "input and target must lie in the CPU's memory");
  REIGEN_CHECK(input.size(0) == target.size(0), "input has {} samples, target {}", input.size(0), target.size(0));
  REIGEN_CHECK(input.size(0) > 0, "input and target have no samples");
  return std::make_shared<InMemory>(input.detach(), target.detach(), std::move(name));
}

}  // namespace reigen::data
