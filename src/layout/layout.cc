#include "reigen/layout/layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "layout/packing.h"

namespace reigen::layout {
namespace {

bool has_16_bits(format::TensorType type) { return format::bits_of(type) == 16; }

// Whether the optimizer keeps the state for the tensor.
bool keeps(const TensorSpec& tensor, const StateSpec& state) {
  if (state.of_16_bits_only && !has_16_bits(tensor.type)) return false;
  return !state.optimizer || *state.optimizer == tensor.optimizer;
}

Part nothing_of(Part part) {
  part.first = part.count = 0;
  return part;
}

}  // namespace

std::pair<std::int64_t, std::int64_t> chunk_of(std::int64_t size, std::int64_t block, int index, int count) {
  const std::int64_t each = size / block / count;
  const std::int64_t more = size / block % count;
  const std::int64_t begin = index * each + std::min<std::int64_t>(index, more);
  return {begin * block, (each + (index < more ? 1 : 0)) * block};
}

std::int64_t Range::share_elements(int q) const {
  const auto i = static_cast<std::size_t>(q);
  return bounds[i + 1] - bounds[i];
}

int Layout::ranks() const {
  int product = 1;
  for (const Axis& axis : axes_) product *= axis.size;
  return product;
}

int Layout::size(const std::string& name) const {
  const auto found = std::find_if(axes_.begin(), axes_.end(), [&](const Axis& axis) { return axis.name == name; });
  return found == axes_.end() ? 1 : found->size;
}

Coordinates Layout::coordinates_of(int rank) const {
  REIGEN_CHECK(rank >= 0 && rank < ranks(), "[layout] there is no rank {} among {}", rank, ranks());
  Coordinates at(axes_.size());
  for (std::size_t i = axes_.size(); i-- > 0;) {
    at[i] = rank % axes_[i].size;
    rank /= axes_[i].size;
  }
  return at;
}

std::size_t Layout::flat_axis() const {
  const auto found = std::find_if(axes_.begin(), axes_.end(), [](const Axis& axis) { return axis.name == "dp_shard"; });
  return static_cast<std::size_t>(found - axes_.begin());
}

const Placement& Layout::placement(std::size_t tensor, Role role) const {
  return placements_[tensor][static_cast<std::size_t>(role)];
}

// Returns the part of the tensor that the rank at these coordinates has before the flat buffers are divided along axis
// dp_shard.
Part Layout::box_of(std::size_t tensor, const Placement& placement, const Coordinates& at) const {
  const TensorSpec& spec = model_.tensors[tensor];
  Part part = whole(spec.shape);
  for (std::size_t axis = 0; axis < axes_.size(); ++axis) {
    const Along& along = placement.along[axis];
    if (along.kind != AlongKind::kShard) continue;
    std::size_t dimension = along.dimension;
    if (along.sections > 1) {
      part.shape.insert(part.shape.begin(), along.sections);
      part.shape[1] /= along.sections;
      part.offset.insert(part.offset.begin(), 0);
      part.view = part.shape;
      dimension = 1;
    }
    const auto [begin, size] = chunk_of(part.shape[dimension], along.block, at[axis], axes_[axis].size);
    part.offset[dimension] += begin;
    part.shape[dimension] = size;
  }
  part.count = numel(part.shape);
  return is_of_stage(tensor, at) ? part : nothing_of(part);
}

Part Layout::box_of(std::size_t tensor, const Coordinates& at) const {
  return box_of(tensor, placement(tensor, Role::kValue), at);
}

bool Layout::is_first_stage(std::size_t tensor, const Coordinates& at) const {
  const std::vector<Along>& along = placement(tensor, Role::kValue).along;
  for (std::size_t axis = 0; axis < axes_.size(); ++axis) {
    if (along[axis].kind == AlongKind::kStage && at[axis] != model_.tensors[tensor].stage) return false;
  }
  return true;
}

bool Layout::is_of_stage(std::size_t tensor, const Coordinates& at) const {
  if (is_first_stage(tensor, at)) return true;
  const std::vector<Along>& along = placement(tensor, Role::kValue).along;
  const std::vector<int>& copies = model_.tensors[tensor].copies;
  for (std::size_t axis = 0; axis < axes_.size(); ++axis) {
    if (along[axis].kind != AlongKind::kStage) continue;
    if (std::find(copies.begin(), copies.end(), at[axis]) != copies.end()) return true;
  }
  return false;
}

bool Layout::is_packed(std::size_t tensor) const {
  const TensorSpec& spec = model_.tensors[tensor];
  return spec.trainable || (packs_frozen_ && spec.packs);
}

std::vector<Range> Layout::packed(const Coordinates& at) const {
  std::vector<Shape> boxes(model_.tensors.size());
  std::vector<std::size_t> trainable, frozen;
  bool has_spares = false;
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    const Part box = box_of(i, placement(i, Role::kValue), at);
    boxes[i] = local_shape(model_.tensors[i].shape, box);
    if (!is_packed(i) || !is_of_stage(i, at)) continue;
    (model_.tensors[i].trainable ? trainable : frozen).push_back(i);
    has_spares = has_spares || placement(i, Role::kGradient).has(AlongKind::kPartial);
  }
  const std::size_t axis = flat_axis();
  const bool divides = std::any_of(placements_.begin(), placements_.end(), [](const auto& of_tensor) {
    return std::any_of(of_tensor.begin(), of_tensor.end(), [](const Placement& p) { return p.has(AlongKind::kFlat); });
  });
  const int shares = divides ? axes_[axis].size : 1;
  std::vector<Range> result;
  for (const std::vector<std::size_t>* tensors : {&trainable, &frozen}) {
    const std::vector<PackingGroup> groups = packs_by_unit_
                                                 ? group_by_unit(model_, *tensors, boxes, group_bytes_)
                                                 : std::vector<PackingGroup>{{.unit = kNoUnit, .tensors = *tensors}};
    for (const PackingGroup& group : groups) {
      for (Range& range : pack(model_, group, boxes, shares, has_spares)) result.push_back(std::move(range));
    }
  }
  return result;
}

const std::vector<Range>& Layout::ranges(const Coordinates& at, std::vector<Range>& own) const {
  if (packs_alike_) return ranges_;
  own = packed(at);
  return own;
}

std::vector<Range> Layout::ranges(const Coordinates& at) const { return packs_alike_ ? ranges_ : packed(at); }

Part Layout::part_of(std::size_t tensor, Role role, const Coordinates& at) const {
  std::vector<Range> own;
  return part_in(ranges(at, own), tensor, role, at);
}

Part Layout::given_by(std::size_t tensor, Role role, const Coordinates& at) const {
  std::vector<Range> own;
  return given_in(ranges(at, own), tensor, role, at);
}

Part Layout::part_in(const std::vector<Range>& ranges, std::size_t tensor, Role role, const Coordinates& at) const {
  const Placement& where = placement(tensor, role);
  Part part = box_of(tensor, where, at);
  const bool has_all = role == Role::kValue && where.whole == Whole::kAlways && !where.residence.is_common;
  if (!where.has(AlongKind::kFlat) || has_all) return part;
  const auto share = static_cast<std::size_t>(at[flat_axis()]);
  for (const Range& range : ranges) {
    const auto found = std::find(range.tensors.begin(), range.tensors.end(), tensor);
    if (found == range.tensors.end()) continue;
    const std::int64_t offset = range.offsets[static_cast<std::size_t>(found - range.tensors.begin())];
    const auto within = [&](std::int64_t element) { return std::clamp(element - offset, std::int64_t{0}, part.count); };
    part.first = within(range.bounds[share]);
    part.count = within(range.bounds[share + 1]) - part.first;
    return part;
  }
  return nothing_of(part);
}

// Returns the part that the rank at these coordinates writes to a checkpoint. If several ranks hold the same part, only
// the first of these ranks writes it. If several ranks share one copy, the first of them writes the whole copy.
Part Layout::given_in(const std::vector<Range>& ranges, std::size_t tensor, Role role, const Coordinates& at) const {
  const Placement& where = placement(tensor, role);
  const bool all_read_it = where.residence.is_common || where.whole == Whole::kAlways;
  if (!is_first_stage(tensor, at)) return nothing_of(box_of(tensor, where, at));
  for (std::size_t axis = 0; axis < axes_.size(); ++axis) {
    const AlongKind kind = where.along[axis].kind;
    const bool have_the_same =
        kind == AlongKind::kReplicate || kind == AlongKind::kPartial || (kind == AlongKind::kFlat && all_read_it);
    if (have_the_same && at[axis] != 0) return nothing_of(box_of(tensor, where, at));
  }
  return all_read_it ? box_of(tensor, where, at) : part_in(ranges, tensor, role, at);
}

format::TensorType Layout::type_of(const StateSpec& state, std::size_t tensor) const {
  const format::TensorType own = model_.tensors[tensor].type;
  if (has_16_bits(own) && state.type_of_16_bits) return *state.type_of_16_bits;
  return state.type.value_or(own);
}

// Calls visit(medium, bytes) for each flat buffer, and for each tensor that is in no flat buffer.
template <class Visit>
void Layout::visit_bytes(Role role, const Coordinates& at, const Visit& visit) const {
  const std::size_t axis = flat_axis();
  std::vector<Range> own;
  for (const Range& range : ranges(at, own)) {
    const std::size_t first = range.tensors.front();
    const Placement& where = placement(first, role);
    const bool is_divided = where.has(AlongKind::kFlat);
    const bool has_all = !is_divided || (where.whole == Whole::kAlways && !where.residence.is_common);
    const std::int64_t elements = has_all ? range.elements : range.share_elements(at[axis]);
    if (role == Role::kValue) visit(where.residence.medium, elements * element_bytes(range.type));
    if (role == Role::kGradient && range.trainable) {
      const std::int64_t made = where.has(AlongKind::kPartial) ? elements_with_spares(range) : elements;
      visit(where.residence.medium, made * element_bytes(range.type));
    }
    if (role != Role::kState || !range.trainable) continue;
    for (const StateSpec& state : states_) {
      if (!keeps(model_.tensors[first], state)) continue;
      const std::int64_t size = element_bytes(type_of(state, first));
      if (state.is_scalar) {
        visit(Medium::kHost, static_cast<std::int64_t>(range.tensors.size()) * size);
      } else {
        visit(where.residence.medium, elements * size);
      }
    }
  }
  if (role != Role::kValue) return;
  for (std::size_t i = 0; i < model_.tensors.size(); ++i) {
    if (is_packed(i)) continue;
    const Placement& where = placement(i, role);
    visit(where.residence.medium, box_of(i, where, at).count * element_bytes(model_.tensors[i].type));
  }
}

std::int64_t Layout::bytes(Role role, const Coordinates& at) const {
  std::int64_t sum = 0;
  visit_bytes(role, at, [&](Medium, std::int64_t bytes) { sum += bytes; });
  return sum;
}

std::int64_t Layout::bytes(Role role, const Coordinates& at, Medium medium) const {
  std::int64_t sum = 0;
  visit_bytes(role, at, [&](Medium where, std::int64_t bytes) { sum += where == medium ? bytes : 0; });
  return sum;
}

std::int64_t Layout::bytes_given(const Coordinates& at) const {
  std::vector<Range> own;
  const std::vector<Range>& here = ranges(at, own);
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < model_.tensors.size(); ++i) {
    const TensorSpec& spec = model_.tensors[i];
    sum += given_in(here, i, Role::kValue, at).count * element_bytes(spec.type);
    if (!spec.trainable) continue;
    const std::int64_t elements = given_in(here, i, Role::kState, at).count;
    for (const StateSpec& state : states_) {
      if (state.is_scalar || !keeps(spec, state)) continue;
      sum += elements * element_bytes(type_of(state, i));
    }
  }
  return sum;
}

std::int64_t Layout::bytes_before_averaging(const Coordinates& at) const {
  std::int64_t sum = 0;
  std::vector<Range> own;
  for (const Range& range : ranges(at, own)) {
    const bool is_divided = placement(range.tensors.front(), Role::kGradient).has(AlongKind::kFlat);
    if (range.trainable && is_divided) sum += range.elements * element_bytes(range.type);
  }
  return sum;
}

format::TensorType Layout::value_type_on_the_way(const Range& range) const {
  return range.type == format::TensorType::kF32 ? gather_type_.value_or(range.type) : range.type;
}

format::TensorType Layout::gradient_type_on_the_way(const Range& range) const {
  return range.type == format::TensorType::kF32 ? reduce_type_.value_or(range.type) : range.type;
}

Traffic Layout::traffic(const Coordinates& at, int micro_batches) const {
  const int shares = size("dp_shard");
  const int replicas = size("dp_replicate") * size("cp");
  const auto once = [](std::int64_t bytes, int ranks) { return bytes * (ranks - 1) / ranks; };
  Traffic result;
  std::vector<Range> own;
  for (const Range& range : ranges(at, own)) {
    const Placement& value = placement(range.tensors.front(), Role::kValue);
    if (value.has(AlongKind::kFlat) && !value.residence.is_common) {
      const bool is_gathered = value.whole == Whole::kWhileUnitRuns;
      const auto type = is_gathered ? value_type_on_the_way(range) : range.type;
      result.values +=
          (is_gathered ? gathers_ * micro_batches : 1) * once(range.elements * element_bytes(type), shares);
    }
    if (!range.trainable) continue;
    const Placement& gradient = placement(range.tensors.front(), Role::kGradient);
    if (gradient.has(AlongKind::kPartial)) continue;  // nothing is sent: ranks read each other's gradients in place
    if (!gradient.has(AlongKind::kFlat)) {
      result.gradients += 2 * once(range.elements * element_bytes(range.type), shares * replicas);
      continue;
    }
    const std::int64_t size = element_bytes(gradient_type_on_the_way(range));
    result.gradients += once(range.elements * size, shares);
    result.gradients += 2 * once(range.share_elements(at[flat_axis()]) * size, replicas);
  }
  return result;
}

std::string Layout::to_text() const {
  std::vector<std::string> axes;
  for (const Axis& axis : axes_) axes.push_back(fmt::format("{} {}", axis.name, axis.size));
  std::string text = axes.empty() ? "one rank" : fmt::format("{}", fmt::join(axes, " x "));
  const auto first = std::find_if(model_.tensors.begin(), model_.tensors.end(),
                                  [](const TensorSpec& tensor) { return tensor.trainable; });
  if (first == model_.tensors.end()) return text;
  const auto i = static_cast<std::size_t>(first - model_.tensors.begin());
  return text + fmt::format(": values {}; gradients {}; states {}", layout::to_text(placement(i, Role::kValue)),
                            layout::to_text(placement(i, Role::kGradient)),
                            layout::to_text(placement(i, Role::kState)));
}

}  // namespace reigen::layout
