#include "reigen/tensor/flat_parameters.h"

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "reigen/tensor/data_type.h"
#include "tensor/shared_tensor.h"
#include "tensor/spare_blocks.h"

namespace reigen::tensor {
namespace {

constexpr std::int64_t kAlignment = 64;  // bytes: a cache line, and the widest vector register
constexpr std::int64_t kLeastMade = std::int64_t{256}
                                    << 10;  // bytes that are worth a block: less is copied in the caches
constexpr std::int64_t kMostSpare = std::int64_t{25} << 20;

[[noreturn]] void refuse(const std::string& name, const std::string& got, const std::string& expected,
                         const std::string& fix) {
  throw InvalidArgument(Report{.what = fmt::format("[flat_parameters] parameter {} cannot be packed", name),
                               .got = got,
                               .expected = expected,
                               .fix = fix});
}

void check_parameter(const NamedParameter& entry) {
  const at::Tensor& tensor = entry.parameter;
  if (!tensor.defined()) refuse(entry.name, "an undefined tensor", "a tensor", "register it after it was made");
  if (tensor.layout() != at::kStrided) {
    refuse(entry.name, "a sparse tensor", "a dense one", "call to_dense() before registering it");
  }
  if (!tensor.device().is_cpu()) {
    refuse(entry.name, "device " + tensor.device().str(), "device cpu",
           "move the model to the CPU: no backend for other devices is built in");
  }
  if (!at::isFloatingType(tensor.scalar_type())) {
    refuse(entry.name, c10::toString(tensor.scalar_type()), "float16, bfloat16, float32 or float64",
           "register it as a buffer, or split a complex parameter into its two parts");
  }
  to_data_type(tensor.scalar_type());
  if (!tensor.is_leaf()) {
    refuse(entry.name, "the result of an operation", "a leaf of the autograd graph",
           "register tensor.detach() instead");
  }
}

// Two tensors over the same memory would be torn apart without a word.
void check_overlaps(const std::vector<NamedParameter>& parameters) {
  struct Extent {
    const char* begin;
    const char* end;
    const std::string* name;
  };
  std::vector<Extent> extents;
  for (const NamedParameter& entry : parameters) {
    const at::Tensor& tensor = entry.parameter;
    if (tensor.numel() == 0) continue;
    std::int64_t last = 0;
    for (std::int64_t d = 0; d < tensor.dim(); ++d) last += (tensor.size(d) - 1) * tensor.stride(d);
    const auto* begin = static_cast<const char*>(tensor.const_data_ptr());
    extents.push_back({begin, begin + (last + 1) * static_cast<std::int64_t>(tensor.element_size()), &entry.name});
  }
  std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
  for (std::size_t i = 1; i < extents.size(); ++i) {
    if (extents[i].begin >= extents[i - 1].end) continue;
    refuse(*extents[i].name, "memory shared with " + *extents[i - 1].name, "memory of its own",
           "tie parameters by registering the same tensor under both names");
  }
}

// Where the share of `rank` begins: with the first block most of which lies behind its part of the elements. -1: none.
std::int64_t begin_of_share(const std::vector<Segment>& segments, std::int64_t elements, int rank, int ranks) {
  std::int64_t before = 0;
  for (const Segment& segment : segments) {
    for (std::int64_t first = 0; first < segment.numel; first += kBlockElements) {
      const std::int64_t block = std::min(kBlockElements, segment.numel - first);
      if ((2 * before + block) * ranks > 2 * elements * rank) return rank == 0 ? 0 : segment.offset + first;
      before += block;
    }
  }
  return -1;
}

Share share_of(const std::vector<Segment>& segments, std::int64_t size, const Communicator& ranks) {
  std::int64_t elements = 0;
  for (const Segment& segment : segments) elements += segment.numel;
  const auto begin = [&](int rank) {
    const std::int64_t found = rank < ranks.size() ? begin_of_share(segments, elements, rank, ranks.size()) : -1;
    return found < 0 ? size : found;
  };
  return {.begin = begin(ranks.rank()), .end = begin(ranks.rank() + 1), .ranks = ranks};
}

// Of blocks in which backward makes gradients: one for each size, those first that save most, as much as a bucket in
// all.
std::vector<std::int64_t> spare_sizes(const std::vector<Segment>& segments, std::int64_t element_size) {
  std::map<std::int64_t, std::int64_t> saved;
  for (const Segment& segment : segments) {
    if (segment.numel * element_size >= kLeastMade) saved[segment.numel] += segment.numel;
  }
  std::vector<std::pair<std::int64_t, std::int64_t>> order(saved.begin(), saved.end());
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  std::vector<std::int64_t> result;
  std::int64_t left = kMostSpare;
  for (const auto& [size, ignored] : order) {
    if (size * element_size > left) continue;
    left -= size * element_size;
    result.push_back(size);
  }
  return result;
}

ParameterRange pack(const std::vector<const NamedParameter*>& parameters, Communicator& memory, Common common) {
  const at::ScalarType type = parameters.front()->parameter.scalar_type();
  const std::int64_t unit = kAlignment / static_cast<std::int64_t>(c10::elementSize(type));
  std::vector<Segment> segments;
  std::int64_t end = 0;
  for (const NamedParameter* entry : parameters) {
    const at::Tensor& parameter = entry->parameter;
    segments.push_back({.name = entry->name,
                        .aliases = entry->aliases,
                        .shape = parameter.sizes().vec(),
                        .offset = end,
                        .numel = parameter.numel(),
                        .parameter = parameter});
    end = (end + parameter.numel()) / unit * unit + unit;  // at least one spare element
  }
  at::NoGradGuard no_grad;
  const bool shared = common != Common::kNothing && memory.size() > 1;
  Share share = shared ? share_of(segments, end, memory) : Share{};
  at::Tensor values = shared ? common_tensor(memory, end, type) : shared_tensor(memory, end, type);
  at::Tensor gradients;
  if (shared && common == Common::kValuesAndGradients) {
    const std::vector<std::int64_t> spares = spare_sizes(segments, static_cast<std::int64_t>(c10::elementSize(type)));
    std::int64_t row = end;
    for (const std::int64_t size : spares) row += (size + unit - 1) / unit * unit;
    share.gradients = common_tensor(memory, row * memory.size(), type).view({memory.size(), row});
    const at::Tensor mine = share.gradients.select(0, memory.rank());
    gradients = mine.narrow(0, 0, end);
    std::vector<at::Tensor> blocks;
    std::int64_t at = end;
    for (const std::int64_t size : spares) {
      blocks.push_back(mine.narrow(0, at, size));
      at += (size + unit - 1) / unit * unit;
    }
    if (!blocks.empty()) share.spares = std::make_shared<SpareBlocks>(blocks);
  } else {
    gradients = shared_tensor(memory, end, type);
  }
  for (Segment& segment : segments) {
    const at::Tensor place = values.narrow(0, segment.offset, segment.numel).view(segment.shape);
    if (!shared || memory.rank() == 0) place.copy_(segment.parameter);
    segment.parameter.set_data(place);
  }
  ParameterRange range(std::move(values), std::move(gradients), std::move(segments), std::move(share));
  range.meet("parameters of rank 0");
  range.note_change();
  return range;
}

}  // namespace

std::vector<NamedParameter> named_parameters(const torch::nn::Module& module) {
  std::vector<NamedParameter> result;
  std::unordered_map<const at::TensorImpl*, std::size_t> seen;
  const auto entries = module.named_parameters();
  for (const auto& entry : entries) {
    const auto [place, is_new] = seen.emplace(entry.value().unsafeGetTensorImpl(), result.size());
    if (is_new) {
      result.push_back({.name = entry.key(), .parameter = entry.value()});
    } else {
      result[place->second].aliases.push_back(entry.key());
    }
  }
  return result;
}

FlatParameters::FlatParameters(const std::vector<NamedParameter>& parameters, Communicator memory, Common common) {
  std::vector<std::vector<const NamedParameter*>> groups;
  for (const NamedParameter& entry : parameters) {
    check_parameter(entry);
    const at::ScalarType type = entry.parameter.scalar_type();
    auto group = std::find_if(groups.begin(), groups.end(),
                              [&](const auto& one) { return one.front()->parameter.scalar_type() == type; });
    if (group == groups.end()) group = groups.insert(groups.end(), std::vector<const NamedParameter*>());
    group->push_back(&entry);
  }
  check_overlaps(parameters);
  for (const auto& group : groups) ranges_.push_back(pack(group, memory, common));
}

}  // namespace reigen::tensor
