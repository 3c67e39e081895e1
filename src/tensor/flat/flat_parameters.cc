#include "reigen/tensor/flat_parameters.h"

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "layout/packing.h"
#include "reigen/layout/choose.h"
#include "reigen/tensor/data_type.h"
#include "tensor/calls.h"
#include "tensor/flat/gradient_rows.h"
#include "tensor/flat/gradient_share.h"
#include "tensor/flat/make_range_values.h"
#include "tensor/hooks/spare_blocks.h"
#include "tensor/memory/away_memory.h"
#include "tensor/memory/memory_resource.h"
#include "tensor/stored_type.h"

namespace reigen::tensor {
namespace {

[[noreturn]] void refuse(const std::string& name, const std::string& got, const std::string& expected,
                         const std::string& fix) {
  throw InvalidArgument(Report{.what = fmt::format("[flat_parameters] parameter {} cannot be packed", name),
                               .got = got,
                               .expected = expected,
                               .fix = fix});
}

bool is_packable(const at::Device& device) { return device.is_cpu() || device.is_cuda(); }

void check_parameter(const NamedParameter& entry) {
  const at::Tensor& tensor = entry.parameter;
  if (!tensor.defined()) refuse(entry.name, "an undefined tensor", "a tensor", "register it after it was made");
  if (tensor.layout() != at::kStrided) {
    refuse(entry.name, "a sparse tensor", "a dense one", "call to_dense() before registering it");
  }
  if (!is_packable(tensor.device())) {
    refuse(entry.name, "device " + tensor.device().str(), "device cpu or cuda",
           "move the model to the CPU or to a GPU: module.to(at::kCUDA)");
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

void check_one_device(const std::vector<NamedParameter>& parameters) {
  for (const NamedParameter& entry : parameters) {
    const at::Device& first = parameters.front().parameter.device();
    if (entry.parameter.device() == first) continue;
    refuse(entry.name, "device " + entry.parameter.device().str(),
           "device " + first.str() + ", as " + parameters.front().name, "move the whole model to one device");
  }
}

// Packing would silently separate two tensors over the same memory, so such tensors are refused.
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
    if (tensor.is_cuda() && is_away(tensor)) {  // it has no address, so its storage stands for it
      const auto* storage = reinterpret_cast<const char*>(tensor.storage().unsafeGetStorageImpl());
      extents.push_back({storage, storage + 1, &entry.name});
      continue;
    }
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

// The inputs that all ranges of one packing share.
struct Packing {
  const layout::Layout& layout;
  const layout::Coordinates& at;
  FlatOptions options;
  std::shared_ptr<MemoryResource> resource;

  Communicator& ranks() { return options.sharers; }
};

// Describes a buffer of the range. If the buffer is common (one memory of all ranks), or if this rank has only its
// share of the buffer, only the bytes of its share are counted for this rank.
FlatBuffer buffer_of(const layout::Range& range, const layout::Placement& placement,
                     const std::optional<Shares>& shares) {
  const bool has_share = shares && (placement.residence.is_common || placement.whole != layout::Whole::kAlways);
  return {.count = range.elements,
          .type = scalar_type_of("a flat buffer", range.type),
          .residence = placement.residence,
          .first = has_share ? shares->begin() : 0,
          .last = has_share ? shares->end() : range.elements,
          .travels = !has_share};
}

// Makes the memory in which all ranks' gradients lie, with one row for each rank (gradient_rows.h). In a row the spare
// blocks come after the gradients. Sets `gradients` to the gradients in this rank's row.
std::shared_ptr<GradientRows> make_rows(const layout::Range& range, Packing& packing, at::Tensor& gradients) {
  const std::int64_t row = layout::elements_with_spares(range);
  const int rank = packing.ranks().rank();
  const at::Tensor rows = packing.resource
                              ->take(layout::Role::kGradient, {.count = row * packing.ranks().size(),
                                                               .type = scalar_type_of("a flat buffer", range.type),
                                                               .residence = {.is_common = true},
                                                               .first = row * rank,
                                                               .last = row * (rank + 1)})
                              .view({packing.ranks().size(), row});
  const at::Tensor mine = rows.select(0, rank);
  std::vector<at::Tensor> blocks_of_row;
  std::int64_t at = range.elements;
  for (const std::int64_t size : range.spares) {
    blocks_of_row.push_back(mine.narrow(0, at, size));
    at += layout::aligned(size, range.type);
  }
  gradients = mine.narrow(0, 0, range.elements);
  auto spares = blocks_of_row.empty() ? nullptr : std::make_shared<SpareBlocks>(blocks_of_row);
  return std::make_shared<GradientRows>(rows, Shares{packing.ranks(), range.bounds}, std::move(spares), range.offsets);
}

// Returns a copy of the segment's values. If the parameter has no memory, rank 0 sets the values with `fill`, and the
// other ranks return memory that can receive them.
at::Tensor values_of(const Segment& segment, Packing& packing) {
  const at::Tensor parameter = segment.parameter.detach();
  if (!is_away(parameter)) return parameter.contiguous().clone().view({-1});
  at::Tensor all = at::empty(segment.shape, parameter.options());
  if (packing.ranks().rank() == 0) {
    segment.parameter.set_data(all);
    packing.options.fill(segment.parameter);
    segment.parameter.set_data(away_tensor(segment.shape, parameter.scalar_type(), parameter.device()));
  }
  return all.view({-1});
}

// Sets values that are divided among ranks to those of rank 0. If the values are common (one memory of all ranks), rank
// 0 writes them. Otherwise parameters are broadcast one by one, and each rank keeps all of their values, or only its
// share.
void begin_as_rank_0(const std::vector<Segment>& segments, const RangeValues& sharing, const at::Tensor& values,
                     Packing& packing) {
  const Shares& shares = *sharing.shares();
  const bool whole = sharing.whole() == nullptr;
  for (const Segment& segment : segments) {
    const bool away = is_away(segment.parameter);
    if (away && whole) continue;
    const at::Tensor place = values.narrow(0, segment.offset, segment.numel);
    if (sharing.is_common()) {
      if (shares.ranks.rank() == 0) place.copy_(segment.parameter.reshape({-1}));
      continue;
    }
    const at::Tensor all = values_of(segment, packing);
    CallList calls;
    calls.broadcast(all.mutable_data_ptr(), static_cast<std::size_t>(all.numel()), to_data_type(all.scalar_type()), 0,
                    {.tag = "parameters of rank 0", .after = stream_of(all)});
    run_calls(packing.ranks(), calls, all);
    const auto within = [&](std::int64_t element) {
      return std::clamp(element - segment.offset, std::int64_t{0}, segment.numel);
    };
    const std::int64_t first = whole ? 0 : within(shares.begin());
    const std::int64_t last = whole ? segment.numel : within(shares.end());
    if (first < last) place.narrow(0, first, last - first).copy_(all.narrow(0, first, last - first));
  }
}

std::optional<Box> box_in(const Packing& packing, std::size_t tensor) {
  if (!packing.layout.placement(tensor, layout::Role::kValue).has(layout::AlongKind::kShard)) return std::nullopt;
  return Box{packing.layout.box_of(tensor, packing.at), packing.layout.model().tensors[tensor].shape};
}

ParameterRange make_range(const layout::Range& range, const std::vector<NamedParameter>& parameters, Packing& packing) {
  const std::size_t first = range.tensors.front();
  const layout::Placement& value = packing.layout.placement(first, layout::Role::kValue);
  const layout::Placement& gradient = packing.layout.placement(first, layout::Role::kGradient);
  std::vector<Segment> segments;
  std::vector<Extent> extents;
  for (std::size_t i = 0; i < range.tensors.size(); ++i) {
    const NamedParameter& entry = parameters[range.tensors[i]];
    segments.push_back({.name = entry.name,
                        .aliases = packing.layout.model().tensors[range.tensors[i]].aliases,
                        .box = box_in(packing, range.tensors[i]),
                        .shape = entry.parameter.sizes().vec(),
                        .offset = range.offsets[i],
                        .numel = entry.parameter.numel(),
                        .counts = packing.layout.is_first_stage(range.tensors[i], packing.at),
                        .parameter = entry.parameter});
    extents.push_back({range.offsets[i], entry.parameter.numel()});
  }
  at::NoGradGuard no_grad;
  std::optional<Shares> shares;
  if (value.has(layout::AlongKind::kFlat)) {
    REIGEN_CHECK(range.bounds.size() == static_cast<std::size_t>(packing.ranks().size()) + 1,
                 "[flat_parameters] {} ranks divide, and the layout has {} shares", packing.ranks().size(),
                 range.bounds.size() - 1);
    shares = Shares{packing.ranks(), range.bounds};
  }
  ParameterRange::Memory memory{.box_owners = packing.options.box_owners,
                                .stages = packing.options.stages,
                                .resource = packing.resource,
                                .states = packing.layout.placement(first, layout::Role::kState).residence};
  memory.values = packing.resource->take(layout::Role::kValue, buffer_of(range, value, shares));
  if (gradient.has(layout::AlongKind::kPartial)) {
    memory.rows = make_rows(range, packing, memory.gradients);
  } else {
    FlatBuffer buffer = buffer_of(range, gradient, shares);
    if (!range.trainable) buffer.first = buffer.last = 0;  // a frozen range gets no gradients
    memory.gradients = packing.resource->take(layout::Role::kGradient, buffer);
    if (!buffer.travels)
      memory.share = std::make_shared<GradientShare>(range.elements, buffer.type, memory.values.device());
  }
  memory.sharing = make_range_values(value, std::move(shares), memory.values, std::move(extents));
  const bool divided = memory.sharing->shares().has_value();
  if (divided) begin_as_rank_0(segments, *memory.sharing, memory.values, packing);
  const at::Tensor flat = memory.sharing->whole() != nullptr ? memory.sharing->whole()->tensor() : memory.values;
  for (Segment& segment : segments) {
    const at::Tensor place = flat.narrow(0, segment.offset, segment.numel).view(segment.shape);
    if (!divided && !is_away(segment.parameter)) place.copy_(segment.parameter);
    segment.parameter.set_data(place);
  }
  ParameterRange made(std::move(memory), std::move(segments));
  made.sharing().meet("parameters of rank 0");
  made.note_change();
  return made;
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

layout::TensorSpec spec_of(const NamedParameter& entry) {
  const at::Tensor& tensor = entry.parameter;
  const bool fits = tensor.layout() == at::kStrided && at::isFloatingType(tensor.scalar_type());
  layout::TensorSpec spec{.name = entry.name,
                          .aliases = entry.aliases,
                          .shape = tensor.sizes().vec(),
                          .trainable = tensor.requires_grad(),
                          .packs = fits && is_packable(tensor.device()) && tensor.is_leaf()};
  if (fits || spec.trainable) {
    spec.type = at::isFloatingType(tensor.scalar_type()) ? stored_type(entry.name, tensor.scalar_type())
                                                         : format::TensorType::kF32;  // packing refuses this type
  } else {
    // For integers, complex and quantized numbers a layout needs only the size in bytes.
    spec.type = format::TensorType::kU8;
    spec.shape = {tensor.numel() * static_cast<std::int64_t>(tensor.element_size())};
  }
  return spec;
}

FlatParameters::FlatParameters(const std::vector<NamedParameter>& parameters, Communicator memory) {
  layout::ModelSpec model;
  for (const NamedParameter& entry : parameters) {
    check_parameter(entry);
    model.tensors.push_back(spec_of(entry));
    model.tensors.back().trainable = true;  // all parameters are packed, also frozen ones
  }
  const bool is_on_gpu = !parameters.empty() && parameters.front().parameter.is_cuda();
  pack(parameters, layout::choose(std::move(model), {}, {.has_model_on_gpu = is_on_gpu}), {},
       {.sharers = std::move(memory)});
}

FlatParameters::FlatParameters(const std::vector<NamedParameter>& parameters, const layout::Layout& layout,
                               const layout::Coordinates& at, FlatOptions options) {
  pack(parameters, layout, at, std::move(options));
}

void FlatParameters::pack(const std::vector<NamedParameter>& parameters, const layout::Layout& layout,
                          const layout::Coordinates& at, FlatOptions options) {
  REIGEN_CHECK(parameters.size() == layout.model().tensors.size(), "[flat_parameters] {} parameters for a layout of {}",
               parameters.size(), layout.model().tensors.size());
  std::vector<NamedParameter> packed;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (!layout.is_packed(i) || !layout.is_of_stage(i, at)) continue;
    check_parameter(parameters[i]);
    const layout::TensorSpec own = spec_of(parameters[i]);
    const layout::TensorSpec& said = layout.model().tensors[i];
    const layout::Shape box = layout::local_shape(said.shape, layout.box_of(i, at));
    if (own.name != said.name || own.shape != box || own.type != said.type) {
      refuse(parameters[i].name, format::describe(own.type, own.shape),
             said.name + ", " + format::describe(said.type, box), "pass the parameters that the layout is of");
    }
    packed.push_back(parameters[i]);
  }
  check_one_device(packed);
  check_overlaps(packed);
  const at::Device device = packed.empty() ? at::Device(at::kCPU) : packed.front().parameter.device();
  auto resource = std::make_shared<MemoryResource>(options.sharers, options.offload, device);
  Packing packing{layout, at, std::move(options), std::move(resource)};
  std::vector<std::size_t> units_of_frozen;
  for (const layout::Range& range : layout.ranges(at)) {
    (range.trainable ? ranges_ : frozen_).push_back(make_range(range, parameters, packing));
    (range.trainable ? units_ : units_of_frozen).push_back(range.unit);
  }
  // Optimizers keep the resource alive, and the resource keeps the group of ranks alive. If no range is divided,
  // optimizers need no group, so the resource drops it.
  const auto divided = [](const ParameterRange& range) { return range.is_divided(); };
  if (std::none_of(ranges_.begin(), ranges_.end(), divided)) packing.resource->leave();
  units_.insert(units_.end(), units_of_frozen.begin(), units_of_frozen.end());
}

}  // namespace reigen::tensor
