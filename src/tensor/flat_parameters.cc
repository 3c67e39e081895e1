#include "reigen/tensor/flat_parameters.h"

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "reigen/tensor/data_type.h"
#include "tensor/away_memory.h"
#include "tensor/disk_tensor.h"
#include "tensor/shared_tensor.h"
#include "tensor/spare_blocks.h"
#include "tensor/transient_flat.h"

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
  std::vector<std::int64_t> bounds{0};
  for (int rank = 1; rank < ranks.size(); ++rank) {
    const std::int64_t found = begin_of_share(segments, elements, rank, ranks.size());
    bounds.push_back(found < 0 ? size : found);
  }
  bounds.push_back(size);
  const auto rank = static_cast<std::size_t>(ranks.rank());
  return {.begin = bounds[rank], .end = bounds[rank + 1], .ranks = ranks, .bounds = bounds};
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

// Rows of all ranks, each with its spare blocks behind its gradients. Returns this rank's gradients.
at::Tensor make_rows(Share& share, const std::vector<Segment>& segments, std::int64_t end, std::int64_t unit,
                     at::ScalarType type, Communicator& memory) {
  const std::vector<std::int64_t> spares = spare_sizes(segments, static_cast<std::int64_t>(c10::elementSize(type)));
  std::int64_t row = end;
  for (const std::int64_t size : spares) row += (size + unit - 1) / unit * unit;
  share.gradients = common_tensor(memory, row * memory.size(), type).view({memory.size(), row});
  const at::Tensor mine = share.gradients.select(0, memory.rank());
  std::vector<at::Tensor> spare_blocks;
  std::int64_t at = end;
  for (const std::int64_t size : spares) {
    spare_blocks.push_back(mine.narrow(0, at, size));
    at += (size + unit - 1) / unit * unit;
  }
  if (!spare_blocks.empty()) share.spares = std::make_shared<SpareBlocks>(spare_blocks);
  return mine.narrow(0, 0, end);
}

at::Tensor make_values(const Share& share, std::int64_t end, at::ScalarType type, Communicator& memory) {
  switch (share.values) {
    case Values::kCommon:
      return share.offload.empty() ? common_tensor(memory, end, type)
                                   : common_disk_tensor(memory, end, type, share.offload);
    case Values::kGathered:
      return share.offload.empty() ? lazy_tensor(end, type)
                                   : disk_tensor(end, type, share.offload, share.begin, share.end);
    case Values::kOwn:
    case Values::kExchanged: break;
  }
  return shared_tensor(memory, end, type);
}

// A copy of its values; without memory: on rank 0, where `fill` sets them, others have room for them.
at::Tensor values_of(const Segment& segment, const Division& division, const Communicator& ranks) {
  const at::Tensor parameter = segment.parameter.detach();
  if (!is_away(parameter)) return parameter.contiguous().clone().view({-1});
  at::Tensor all = at::empty(segment.shape, parameter.options());
  if (ranks.rank() == 0) {
    segment.parameter.set_data(all);
    division.fill(segment.parameter);
    segment.parameter.set_data(away_tensor(segment.shape, parameter.scalar_type()));
  }
  return all.view({-1});
}

// Divided values begin as rank 0's: all of them, or the share alone, out of parts that pass by.
void begin_as_rank_0(const std::vector<Segment>& segments, const Share& share, const at::Tensor& values,
                     const Division& division, Communicator& ranks) {
  for (const Segment& segment : segments) {
    const bool away = is_away(segment.parameter);
    if (away && share.values != Values::kGathered) continue;
    const at::Tensor place = values.narrow(0, segment.offset, segment.numel);
    if (share.values == Values::kCommon) {
      if (ranks.rank() == 0) place.copy_(segment.parameter.reshape({-1}));
      continue;
    }
    const at::Tensor all = values_of(segment, division, ranks);
    ranks.broadcast(all.mutable_data_ptr(), static_cast<std::size_t>(all.numel()), to_data_type(all.scalar_type()), 0,
                    {.tag = "parameters of rank 0"});
    const bool whole = share.values == Values::kExchanged;
    const std::int64_t first = whole ? 0 : std::clamp(share.begin - segment.offset, std::int64_t{0}, segment.numel);
    const std::int64_t last =
        whole ? segment.numel : std::clamp(share.end - segment.offset, std::int64_t{0}, segment.numel);
    if (first < last) place.narrow(0, first, last - first).copy_(all.narrow(0, first, last - first));
  }
}

ParameterRange pack(const std::vector<const NamedParameter*>& parameters, Communicator& memory,
                    const Division& division) {
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
  const bool divided = division.values != Values::kOwn && memory.size() > 1;
  Share share = divided ? share_of(segments, end, memory) : Share{};
  if (divided) share.values = division.values;
  share.offload = division.offload;
  const at::Tensor values = make_values(share, end, type, memory);
  at::Tensor gradients;
  if (divided && division.averages == Averages::kRows) {
    gradients = make_rows(share, segments, end, unit, type, memory);
  } else if (divided && division.averages == Averages::kShare) {
    share.made = std::make_shared<TransientFlat>(end, type);
    gradients = lazy_tensor(end, type);
  } else {
    gradients = shared_tensor(memory, end, type);
  }
  if (divided) begin_as_rank_0(segments, share, values, division, memory);
  if (share.values == Values::kGathered) share.whole = std::make_shared<TransientFlat>(end, type);
  for (Segment& segment : segments) {
    const at::Tensor& flat = share.whole ? share.whole->tensor() : values;
    const at::Tensor place = flat.narrow(0, segment.offset, segment.numel).view(segment.shape);
    if (!divided && !is_away(segment.parameter)) place.copy_(segment.parameter);
    segment.parameter.set_data(place);
  }
  ParameterRange range(values, std::move(gradients), std::move(segments), std::move(share));
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

FlatParameters::FlatParameters(const std::vector<std::vector<NamedParameter>>& groups, Communicator memory,
                               const Division& division) {
  std::vector<NamedParameter> all;
  for (const auto& group : groups) all.insert(all.end(), group.begin(), group.end());
  for (const NamedParameter& entry : all) check_parameter(entry);
  check_overlaps(all);
  for (std::size_t i = 0; i < groups.size(); ++i) {
    std::vector<std::vector<const NamedParameter*>> of_types;
    for (const NamedParameter& entry : groups[i]) {
      const at::ScalarType type = entry.parameter.scalar_type();
      auto same = std::find_if(of_types.begin(), of_types.end(),
                               [&](const auto& one) { return one.front()->parameter.scalar_type() == type; });
      if (same == of_types.end()) same = of_types.insert(of_types.end(), std::vector<const NamedParameter*>());
      same->push_back(&entry);
    }
    for (const auto& parameters : of_types) {
      ranges_.push_back(pack(parameters, memory, division));
      groups_of_ranges_.push_back(i);
    }
  }
}

}  // namespace reigen::tensor
