#include "train/model/memory_use.h"

#include <fmt/format.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <set>
#include <string>

#include "reigen/base/bytes.h"
#include "tensor/memory/memory_resource.h"

namespace reigen::train {
namespace {

constexpr std::int64_t MemoryUse::*kParts[] = {
    &MemoryUse::parameters,  &MemoryUse::gradients, &MemoryUse::optimizer,  &MemoryUse::buffers,
    &MemoryUse::activations, &MemoryUse::step,      &MemoryUse::batches,    &MemoryUse::in_steps,
    &MemoryUse::allocated,   &MemoryUse::reserved,  &MemoryUse::fragmented, &MemoryUse::of_the_group};

std::int64_t bytes_of(const at::Tensor& tensor) { return static_cast<std::int64_t>(tensor.nbytes()); }

}  // namespace

MemoryUse count_memory(const torch::nn::Module& module, const parallel::DataParallelBase& parallel) {
  // All ranges of a data_parallel wrapper take their memory from one MemoryResource.
  const tensor::MemoryResource& taken = parallel.parameters().front().resource();
  MemoryUse use{.parameters = taken.bytes(layout::Role::kValue),
                .gradients = taken.bytes(layout::Role::kGradient),
                .optimizer = taken.bytes(layout::Role::kState),
                .of_the_group = taken.bytes_of_the_group()};
  std::set<const at::TensorImpl*> in_ranges;
  for (const ParameterRange& range : parallel.weights()) {
    for (const tensor::Segment& segment : range.segments()) in_ranges.insert(segment.parameter.unsafeGetTensorImpl());
  }
  for (const at::Tensor& parameter : module.parameters()) {
    if (!in_ranges.contains(parameter.unsafeGetTensorImpl())) use.parameters += bytes_of(parameter);
  }
  for (const at::Tensor& buffer : module.buffers()) use.buffers += bytes_of(buffer);
  return use;
}

MemoryUse formula(const layout::Layout& layout, const layout::Coordinates& at) {
  return {.parameters = layout.bytes(layout::Role::kValue, at),
          .gradients = layout.bytes(layout::Role::kGradient, at),
          .optimizer = layout.bytes(layout::Role::kState, at)};
}

MemoryReport gather_memory(const MemoryUse& own, const MemoryUse& formula, const Communicator& world) {
  constexpr std::size_t kCount = std::size(kParts);
  const auto ranks = static_cast<std::size_t>(world.size());
  std::vector<std::int64_t> mine, all(2 * kCount * ranks);
  for (const MemoryUse* use : {&own, &formula}) {
    for (const auto part : kParts) mine.push_back(use->*part);
  }
  world.all_gather(mine.data(), all.data(), mine.size(), DataType::kInt64, {.tag = "memory"});
  MemoryReport report{.ranks = std::vector<MemoryUse>(ranks), .formulas = std::vector<MemoryUse>(ranks)};
  for (std::size_t i = 0; i < all.size(); ++i) {
    auto& uses = i / kCount % 2 == 0 ? report.ranks : report.formulas;
    uses[i / (2 * kCount)].*kParts[i % kCount] = all[i];
  }
  return report;
}

std::int64_t peak_memory_bytes() {
  std::ifstream in("/proc/self/status");
  for (std::string word; in >> word;) {
    if (word != "VmHWM:") continue;
    std::int64_t kib = 0;
    in >> kib;
    return kib * static_cast<std::int64_t>(kKiB);
  }
  return 0;
}

bool is_on_gpu(const MemoryReport& report) {
  return std::any_of(report.ranks.begin(), report.ranks.end(), [](const MemoryUse& use) { return use.allocated > 0; });
}

std::string to_text(const MemoryReport& report) {
  const auto most_of = [](const std::vector<MemoryUse>& uses, std::int64_t MemoryUse::*part) {
    std::int64_t bytes = 0;
    for (const MemoryUse& use : uses) bytes = std::max(bytes, use.*part);
    return format_bytes(static_cast<std::uint64_t>(std::max<std::int64_t>(bytes, 0)));
  };
  const auto most = [&](std::int64_t MemoryUse::*part) { return most_of(report.ranks, part); };
  const auto told = [&](std::int64_t MemoryUse::*part) {
    return fmt::format("{} (formula {})", most(part), most_of(report.formulas, part));
  };
  std::string text = fmt::format("parameters {}, gradients {}, optimizer {}, buffers {}, activations {}, step {}",
                                 told(&MemoryUse::parameters), told(&MemoryUse::gradients), told(&MemoryUse::optimizer),
                                 most(&MemoryUse::buffers), most(&MemoryUse::activations), most(&MemoryUse::step));
  if (is_on_gpu(report)) {
    text += fmt::format(
        "; of the GPU LibTorch gave out at most {} and reserved at most {}; at the end {} lay between tensors",
        most(&MemoryUse::allocated), most(&MemoryUse::reserved), most(&MemoryUse::fragmented));
  }
  return text;
}

}  // namespace reigen::train
