#include "reigen/layout/choose.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "reigen/base/error.h"

namespace reigen::layout {
namespace {

constexpr const char* kFlatAxis = "dp_shard";
constexpr const char* kReplicaAxis = "dp_replicate";
constexpr const char* kSequenceAxis = "cp";  // its ranks hold the same data, as those along kReplicaAxis
constexpr const char* kStageAxis = "pp";

int size_of(const std::vector<Axis>& axes, const std::string& name) {
  const auto found = std::find_if(axes.begin(), axes.end(), [&](const Axis& axis) { return axis.name == name; });
  return found == axes.end() ? 1 : found->size;
}

// How many ranks hold the same share of a flat buffer.
int replicas_of(const std::vector<Axis>& axes) { return size_of(axes, kReplicaAxis) * size_of(axes, kSequenceAxis); }

InvalidArgument refused(const std::string& what, const std::string& got, const std::string& expected) {
  return InvalidArgument(Report{.what = "[layout] " + what, .got = got, .expected = expected});
}

void check_axes(const std::vector<Axis>& axes) {
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (axes[i].size < 1)
      throw refused("an axis has no ranks", fmt::format("{} {}", axes[i].name, axes[i].size), "1 or more");
    for (std::size_t j = 0; j < i; ++j) {
      if (axes[j].name == axes[i].name) throw refused("an axis comes twice", axes[i].name, "different names");
    }
  }
}

void check_splits(const ModelSpec& model, const Choices& choices) {
  for (const auto& [name, split] : choices.splits) {
    const auto is_it = [&name = name](const TensorSpec& tensor) { return tensor.name == name; };
    const auto tensor = std::find_if(model.tensors.begin(), model.tensors.end(), is_it);
    if (tensor == model.tensors.end()) throw refused("a tensor to be split is not of the model", name, "its full name");
    if (split.dimension >= tensor->shape.size()) {
      throw refused(fmt::format("tensor {} cannot be split along dimension {}", name, split.dimension),
                    fmt::format("shape [{}]", fmt::join(tensor->shape, ", ")), "one of its dimensions, from 0 on");
    }
    const std::int64_t size = tensor->shape[split.dimension];
    if (split.block < 1 || split.sections < 1 || size % (split.block * split.sections) != 0 ||
        (split.sections > 1 && split.dimension != 0)) {
      throw refused(fmt::format("dimension {} of tensor {} does not consist of whole blocks", split.dimension, name),
                    fmt::format("size {}, {} sections, blocks of {}", size, split.sections, split.block),
                    fmt::format("divisors of {}; several sections only of dimension 0", size));
    }
    const auto has_name = [&split = split](const Axis& axis) { return axis.name == split.axis; };
    const bool is_there = std::any_of(choices.axes.begin(), choices.axes.end(), has_name);
    if (!is_there || split.axis == kFlatAxis || split.axis == kStageAxis) {
      throw refused(fmt::format("tensor {} cannot be split along axis {}", name, split.axis),
                    is_there ? "an axis that divides in another way" : "no such axis", "an axis as \"tp\"");
    }
  }
}

}  // namespace

const char* to_text(Sharding sharding) {
  switch (sharding) {
    case Sharding::kNone: return "none";
    case Sharding::kOptimizer: return "optimizer";
    case Sharding::kGradients: return "gradients";
    case Sharding::kParameters: return "parameters";
  }
  return "unknown";
}

Sharding sharding_of(const Choices& choices, const Machine& machine) {
  if (choices.sharding) return *choices.sharding;
  const bool stays = machine.shares_memory && !choices.buckets && replicas_of(choices.axes) == 1;
  return stays ? Sharding::kGradients : Sharding::kNone;
}

// Makes the layout that choose() returns. Each of the functions value(), gradient() and state() decides for one tensor
// where one kind of its data is placed.
class Chooser {
 public:
  Chooser(ModelSpec model, const Choices& choices, const Machine& machine)
      : choices_(choices),
        sharding_(size_of(choices.axes, kFlatAxis) > 1 ? sharding_of(choices, machine) : Sharding::kNone),
        is_common_(machine.shares_memory && sharding_ != Sharding::kNone),
        memory_(machine.has_model_on_gpu ? Medium::kDevice : Medium::kHost) {
    // Gradients stay in the memory into which backward writes them, if all ranks that average them can read this
    // memory.
    stays_ = sharding_ == Sharding::kGradients && is_common_ && replicas_of(choices.axes) == 1;
    divides_gradients_ = sharding_ >= Sharding::kGradients && !stays_;
    divides_weights_ = sharding_ == Sharding::kParameters;
    layout_.model_ = std::move(model);
    layout_.axes_ = choices.axes;
    layout_.states_ = choices.states;
    layout_.packs_by_unit_ = divides_gradients_;
    layout_.packs_frozen_ = divides_weights_;
    layout_.group_bytes_ = choices.group_bytes;
    layout_.gathers_ = choices.reshard_after_forward ? 2 : 1;
    layout_.gather_type_ = choices.gather_type;
    layout_.reduce_type_ = choices.reduce_type;
  }

  Layout made() {
    for (const TensorSpec& tensor : layout_.model_.tensors) {
      layout_.placements_.push_back({value(tensor), gradient(tensor), state(tensor)});
    }
    const bool has_stages = size_of(choices_.axes, kStageAxis) > 1;
    if (choices_.splits.empty() && !has_stages) {
      layout_.ranges_ = layout_.packed(Coordinates(choices_.axes.size()));
      layout_.packs_alike_ = true;
    }
    return std::move(layout_);
  }

 private:
  // Returns, for each axis of the mesh, whether and how the ranks along this axis divide the tensor. `flat` is the kind
  // for axis dp_shard.
  std::vector<Along> along(const TensorSpec& tensor, AlongKind flat) const {
    std::vector<Along> result;
    const auto split = choices_.splits.find(tensor.name);
    for (const Axis& axis : choices_.axes) {
      if (axis.name == kFlatAxis) {
        result.push_back({.kind = flat});
      } else if (axis.name == kStageAxis) {
        result.push_back({.kind = AlongKind::kStage});
      } else if (split != choices_.splits.end() && split->second.axis == axis.name) {
        result.push_back({.kind = AlongKind::kShard,
                          .dimension = split->second.dimension,
                          .block = split->second.block,
                          .sections = split->second.sections});
      } else {
        result.push_back({});
      }
    }
    return result;
  }

  Placement value(const TensorSpec& tensor) const {
    const bool divides = tensor.trainable ? sharding_ != Sharding::kNone : divides_weights_ && tensor.packs;
    if (!divides) return {.along = along(tensor, AlongKind::kReplicate), .residence = {.medium = memory_}};
    const bool is_gathered = divides_weights_ && !is_common_;
    const bool may_go_to_disk = is_common_ || is_gathered;
    return {.along = along(tensor, AlongKind::kFlat),
            .residence = {.medium = may_go_to_disk && !is_on_gpu() ? offloaded() : memory_, .is_common = is_common_},
            .whole = is_gathered ? Whole::kWhileUnitRuns : Whole::kAlways};
  }

  Placement gradient(const TensorSpec& tensor) const {
    const Residence own{.medium = memory_};
    if (!tensor.trainable) {
      return {.along = along(tensor, AlongKind::kReplicate), .residence = own, .whole = Whole::kNever};
    }
    if (stays_) {
      return {.along = along(tensor, AlongKind::kPartial), .residence = {.medium = memory_, .is_common = true}};
    }
    if (!divides_gradients_) return {.along = along(tensor, AlongKind::kReplicate), .residence = own};
    return {.along = along(tensor, AlongKind::kFlat), .residence = own, .whole = Whole::kWhileUnitRuns};
  }

  Placement state(const TensorSpec& tensor) const {
    const Residence residence{.medium = offloaded(), .is_common = is_common_};
    if (sharding_ == Sharding::kNone) return {.along = along(tensor, AlongKind::kReplicate), .residence = residence};
    return {.along = along(tensor, AlongKind::kFlat), .residence = residence, .whole = Whole::kNever};
  }

  bool is_on_gpu() const { return memory_ == Medium::kDevice; }
  // The memory for data that may be offloaded.
  Medium offloaded() const {
    if (!choices_.offload) return memory_;
    return is_on_gpu() ? Medium::kPinned : Medium::kDisk;
  }

  const Choices& choices_;
  Sharding sharding_;
  bool is_common_;
  Medium memory_;  // the memory for all tensors that are not offloaded
  bool stays_ = false;
  bool divides_gradients_ = false;
  bool divides_weights_ = false;
  Layout layout_;
};

Layout choose(ModelSpec model, const Choices& choices, const Machine& machine) {
  check_axes(choices.axes);
  check_splits(model, choices);
  return Chooser(std::move(model), choices, machine).made();
}

}  // namespace reigen::layout
