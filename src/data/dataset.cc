#include "reigen/data/dataset.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <sstream>
#include <utility>

#include "base/check.h"
#include "data/checked.h"
#include "data/fingerprint.h"
#include "reigen/base/error.h"

namespace reigen::data {
namespace {

bool is_usual(std::string_view name) { return name == "input" || name == "target"; }

class InMemory : public Dataset {
 public:
  InMemory(Samples all, std::int64_t size, std::string name)
      : all_(std::move(all)), size_(size), name_(std::move(name)) {}

  std::int64_t size() const override { return size_; }
  const std::string& name() const override { return name_; }
  Samples gather(std::span<const std::int64_t> indices) const override {
    Samples samples = all_;
    samples.transform([&](const at::Tensor& whole) { return rows(whole, indices); });
    return samples;
  }
  Meaning meaning() const override {
    std::vector<std::string> forms;
    format::Hash64 exact;
    format::Hash64 computed;
    bool has_exact = false;
    bool has_computed = false;
    all_.for_each([&](std::string_view name, const at::Tensor& tensor) {
      forms.push_back(fmt::format("{}{}{} [{}]", is_usual(name) ? "" : name, is_usual(name) ? "" : " ",
                                  c10::toString(tensor.scalar_type()), fmt::join(tensor.sizes(), ", ")));
      const bool is_exact = !tensor.is_floating_point() && !tensor.is_complex();
      (is_exact ? has_exact : has_computed) = true;
      add_rows(is_exact ? exact : computed, tensor);
    });
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

  Samples all_;
  std::int64_t size_;
  std::string name_;
};

std::string names_of(const Samples& samples) {
  std::vector<std::string_view> names;
  samples.for_each([&](std::string_view name, const at::Tensor&) { names.push_back(name); });
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

Samples Dataset::gather_in(const Pass&, std::span<const std::int64_t> indices) const { return gather(indices); }

std::unique_ptr<BatchMaker> Dataset::batch_in(BatchRows) const { return nullptr; }

Meaning Dataset::meaning() const { return {}; }

std::int64_t Dataset::terms(std::int64_t) const { return 1; }

const at::Tensor& Samples::at(std::string_view name) const {
  const at::Tensor* found = nullptr;
  for_each([&](std::string_view one, const at::Tensor& tensor) {
    if (one == name) found = &tensor;
  });
  if (found != nullptr) return *found;
  throw InvalidArgument(Report{.what = "the samples have no tensor of this name",
                               .got = std::string(name),
                               .expected = names_of(*this),
                               .fix = "use one of these names, or let the dataset give this tensor"});
}

Samples checked(Samples samples, const Dataset& from, std::int64_t count) {
  bool is_empty = true;
  samples.for_each([&](std::string_view name, const at::Tensor& tensor) {
    is_empty = false;
    if (tensor.defined() && tensor.dim() >= 1 && tensor.size(0) == count) return;
    std::ostringstream shape;
    if (tensor.defined()) shape << tensor.sizes();
    throw InvalidArgument(Report{
        .what = fmt::format("the dataset '{}' gave {} samples' {} without a row for each", from.name(), count, name),
        .got = tensor.defined() ? "shape " + shape.str() : "an undefined tensor",
        .expected = fmt::format("a first dimension of {}", count),
        .fix = "gather() gives one row for each index, in every tensor"});
  });
  REIGEN_CHECK(!is_empty, "the dataset '{}' gave no tensor\n  fix: set Samples::input, or name one in Samples::more",
               from.name());
  return samples;
}

DatasetPtr in_memory(const at::Tensor& input, const at::Tensor& target, std::string name) {
  REIGEN_CHECK(input.defined(), "input must be a tensor with a first dimension, the samples");
  REIGEN_CHECK(target.defined(), "target must be a tensor with a first dimension, the samples");
  return in_memory({{"input", input}, {"target", target}}, std::move(name));
}

DatasetPtr in_memory(const std::vector<NamedTensor>& tensors, std::string name) {
  REIGEN_CHECK(!tensors.empty(), "a dataset in memory needs a tensor");
  Samples all;
  std::int64_t samples = 0;
  std::vector<std::string> names;
  for (const auto& [its_name, tensor] : tensors) {
    REIGEN_CHECK(!its_name.empty(), "a tensor of samples needs a name");
    REIGEN_CHECK(std::find(names.begin(), names.end(), its_name) == names.end(), "two tensors have the name {}",
                 its_name);
    REIGEN_CHECK(tensor.defined() && tensor.dim() >= 1, "{} must be a tensor with a first dimension, the samples",
                 its_name);
    REIGEN_CHECK(tensor.device().is_cpu(), "{} must lie in the CPU's memory", its_name);
    if (names.empty()) samples = tensor.size(0);
    REIGEN_CHECK(tensor.size(0) == samples, "{} has {} samples, {} {}", tensors.front().first, samples, its_name,
                 tensor.size(0));
    names.push_back(its_name);
    at::Tensor own = tensor.detach().contiguous();
    if (its_name == "input")
      all.input = std::move(own);
    else if (its_name == "target")
      all.target = std::move(own);
    else
      all.more.emplace_back(its_name, std::move(own));
  }
  REIGEN_CHECK(samples > 0, "{} has no samples", fmt::join(names, ", "));
  return std::make_shared<InMemory>(std::move(all), samples, std::move(name));
}

}  // namespace reigen::data
