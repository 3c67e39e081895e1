#include "reigen/data/dataset.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstddef>
#include <cstring>
#include <sstream>
#include <utility>

#include "base/check.h"
#include "data/complete.h"
#include "data/fingerprint.h"
#include "reigen/base/error.h"

namespace reigen::data {
namespace {

using Tensors = std::vector<at::Tensor>;

class InMemory : public Dataset {
 public:
  InMemory(Tensors inputs, Tensors targets, std::string name)
      : inputs_(std::move(inputs)), targets_(std::move(targets)), name_(std::move(name)) {}

  std::int64_t size() const override { return inputs_.front().size(0); }
  const std::string& name() const override { return name_; }
  Samples gather(std::span<const std::int64_t> indices) const override {
    Samples samples;
    for (const at::Tensor& input : inputs_) samples.inputs.push_back(rows(input, indices));
    for (const at::Tensor& target : targets_) samples.targets.push_back(rows(target, indices));
    return complete(std::move(samples), *this, static_cast<std::int64_t>(indices.size()));
  }
  Meaning meaning() const override {
    std::vector<std::string> forms;
    format::Hash64 exact;
    format::Hash64 computed;
    bool has_exact = false;
    bool has_computed = false;
    for (const Tensors* tensors : {&inputs_, &targets_}) {
      for (const at::Tensor& tensor : *tensors) {
        forms.push_back(fmt::format("{} [{}]", c10::toString(tensor.scalar_type()), fmt::join(tensor.sizes(), ", ")));
        const bool is_exact = !tensor.is_floating_point() && !tensor.is_complex();
        (is_exact ? has_exact : has_computed) = true;
        add_rows(is_exact ? exact : computed, tensor);
      }
    }
    Meaning facts = {{.name = "form", .values = {fmt::format("{}", fmt::join(forms, "; "))}}};
    if (has_exact) facts.push_back({.name = "content", .values = {fingerprint(exact)}});
    // A computed number, such as a sine, can differ in its last bit between CPUs, although the data mean the same.
    if (has_computed)
      facts.push_back({.name = "floating_content", .values = {fingerprint(computed)}, .is_told_only = true});
    return facts;
  }

 private:
  // Hashing reads memory at about 4 GB/s. Of a tensor with more than kMost bytes only every stride-th row is hashed, so
  // that a run starts quickly.
  static void add_rows(format::Hash64& hash, const at::Tensor& from) {
    constexpr std::size_t kMost = std::size_t{1} << 30;
    const auto* bytes = static_cast<const std::byte*>(from.const_data_ptr());
    const auto count = static_cast<std::size_t>(from.size(0));
    const std::size_t row = from.nbytes() / count;
    const std::size_t stride = from.nbytes() / kMost + 1;
    if (stride == 1) return hash.update(bytes, from.nbytes());
    for (std::size_t i = 0; i < count; i += stride) hash.update(bytes + i * row, row);
  }

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

  Tensors inputs_;
  Tensors targets_;
  std::string name_;
};

std::string number(const char* what, std::size_t index, std::size_t of) {
  return of == 1 ? what : fmt::format("{}s[{}]", what, index);
}

// Checks that all tensors have `samples` rows in CPU memory, and makes them contiguous.
Tensors checked(const Tensors& tensors, const char* what, std::int64_t samples) {
  Tensors result;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor& tensor = tensors[i];
    const std::string name = number(what, i, tensors.size());
    REIGEN_CHECK(tensor.defined() && tensor.dim() >= 1, "{} must be a tensor with a first dimension, the samples",
                 name);
    REIGEN_CHECK(tensor.device().is_cpu(), "{} must lie in the CPU's memory", name);
    REIGEN_CHECK(tensor.size(0) == samples, "input has {} samples, {} {}", samples, name, tensor.size(0));
    result.push_back(tensor.detach().contiguous());
  }
  return result;
}

void require_rows(const Tensors& tensors, const char* what, const Dataset& from, std::int64_t count) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor& tensor = tensors[i];
    if (tensor.defined() && tensor.dim() >= 1 && tensor.size(0) == count) continue;
    std::ostringstream shape;
    if (tensor.defined()) shape << tensor.sizes();
    throw InvalidArgument(Report{.what = fmt::format("the dataset '{}' gave {} samples' {} without a row for each",
                                                     from.name(), count, number(what, i, tensors.size())),
                                 .got = tensor.defined() ? "shape " + shape.str() : "an undefined tensor",
                                 .expected = fmt::format("a first dimension of {}", count),
                                 .fix = "gather() gives one row for each index, in every tensor"});
  }
}

void complete(at::Tensor& first, Tensors& all) {
  if (all.empty() && first.defined()) all = {first};
  if (!all.empty()) first = all.front();
}

}  // namespace

Samples Dataset::gather_in(const Pass&, std::span<const std::int64_t> indices) const { return gather(indices); }

Meaning Dataset::meaning() const { return {}; }

std::int64_t Dataset::terms(std::int64_t) const { return 1; }

const char* to_string(Split split) { return split == Split::kTrain ? "train" : "test"; }

Samples complete(Samples samples, const Dataset& from, std::int64_t count) {
  complete(samples.input, samples.inputs);
  complete(samples.target, samples.targets);
  REIGEN_CHECK(!samples.inputs.empty(), "the dataset '{}' gave no input\n  fix: set Samples::input or ::inputs",
               from.name());
  require_rows(samples.inputs, "input", from, count);
  require_rows(samples.targets, "target", from, count);
  return samples;
}

DatasetPtr in_memory(const at::Tensor& input, const at::Tensor& target, std::string name) {
  return in_memory(Tensors{input}, Tensors{target}, std::move(name));
}

DatasetPtr in_memory(const Tensors& inputs, const Tensors& targets, std::string name) {
  REIGEN_CHECK(!inputs.empty(), "a dataset in memory needs an input");
  const at::Tensor& first = inputs.front();
  const std::int64_t samples = first.defined() && first.dim() >= 1 ? first.size(0) : 0;
  Tensors own_inputs = checked(inputs, "input", samples);
  Tensors own_targets = checked(targets, "target", samples);
  REIGEN_CHECK(samples > 0, "input and target have no samples");
  return std::make_shared<InMemory>(std::move(own_inputs), std::move(own_targets), std::move(name));
}

}  // namespace reigen::data
