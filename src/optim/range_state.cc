#include "optim/range_state.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "base/philox.h"
#include "optim/option_checks.h"
#include "optim/passes/control.h"
#include "optim/passes/whole_gradients.h"
#include "reigen/format/hash.h"
#include "tensor/flat/gradient_rows.h"
#include "tensor/memory/memory_resource.h"

namespace reigen::optim {
namespace {

std::string describe(const at::Tensor& tensor) {
  if (!tensor.defined()) return "an undefined tensor";
  std::ostringstream text;
  text << c10::toString(tensor.scalar_type()) << ' ' << tensor.sizes();
  return text.str();
}

bool is_narrow(kernels::Layout layout) {
  return layout == kernels::Layout::kBfloat16 || layout == kernels::Layout::kFloat16;
}

const char* name_of(kernels::Layout layout) {
  if (layout == kernels::Layout::kFloat64) return "fp64";
  return layout == kernels::Layout::kFloat16 ? "fp16" : "bf16";
}

kernels::Layout with_states(const std::string& optimizer, kernels::Layout layout, const StateKinds& kinds) {
  if (kinds.master && layout == kernels::Layout::kBfloat16 && !kinds.bf16) return kernels::Layout::kBfloat16Master;
  if (kinds.master && layout == kernels::Layout::kFloat16 && !kinds.bf16) return kernels::Layout::kFloat16Master;
  if (!kinds.bf16) return layout;
  if (layout == kernels::Layout::kFloat32) return kernels::Layout::kFloat32Bfloat16;
  throw InvalidArgument(Report{.what = fmt::format("[{}] bf16_states is for fp32 parameters", optimizer),
                               .got = fmt::format("{} parameters", name_of(layout)),
                               .expected = "fp32 parameters",
                               .fix = "leave bf16_states out"});
}

void* at_element(const at::Tensor& flat, std::int64_t element) {
  return static_cast<std::byte*>(flat.data_ptr()) + static_cast<std::size_t>(element) * flat.dtype().itemsize();
}

}  // namespace

std::vector<layout::StateSpec> specs_of(const StateKinds& kinds) {
  using format::TensorType;
  const auto fp32 = std::optional(TensorType::kF32);
  std::vector<layout::StateSpec> specs;
  for (const std::string& name : kinds.names) {
    layout::StateSpec& spec = specs.emplace_back(layout::StateSpec{.name = name});
    if (kinds.master) spec.type_of_16_bits = fp32;
    if (kinds.bf16) spec.type = spec.type_of_16_bits = TensorType::kBF16;
  }
  if (kinds.master) specs.push_back({.name = "master", .type_of_16_bits = fp32, .of_16_bits_only = true});
  specs.push_back({.name = "step", .type = fp32, .type_of_16_bits = fp32, .is_scalar = true});
  return specs;
}

RangeState::RangeState(std::string optimizer, std::vector<ParameterRange> ranges, StateKinds kinds, double weight_decay,
                       const std::vector<ParameterGroup>& groups)
    : optimizer_(std::move(optimizer)), kinds_(std::move(kinds.names)) {
  if (ranges.empty()) {
    throw InvalidArgument(Report{.what = fmt::format("[{}] there is nothing to optimize", optimizer_),
                                 .got = "no parameters",
                                 .expected = "at least one range",
                                 .fix = "pass parallel.parameters() of a model with trainable parameters"});
  }
  check_shared_alike(optimizer_, ranges);
  check_groups(optimizer_, groups);
  for (ParameterRange& range : ranges) {
    const kernels::Layout narrow = layout_of(optimizer_, range);
    const kernels::Layout layout = with_states(optimizer_, narrow, kinds);
    const bool has_masters = is_narrow(narrow) && layout != narrow;
    const auto type = kinds.bf16 ? at::kBFloat16 : has_masters ? at::kFloat : range.values().scalar_type();
    at::Tensor masters;
    if (has_masters) {
      masters = range.make_twin(at::kFloat);
      range.own_part(masters).copy_(range.own_part(range.values()));
    }
    std::vector<at::Tensor> states;
    for (std::size_t i = 0; i < kinds_.size(); ++i) {
      states.push_back(range.make_twin(type));
      if (kinds.initial != 0) range.own_part(states.back()).fill_(kinds.initial);
    }
    range.sharing().meet("states of the optimizer");
    std::vector<Treatment> treatments;
    for (const tensor::Segment& segment : range.segments()) {
      Treatment treatment{.weight_decay = weight_decay,
                          .key = format::hash64(segment.name.data(), segment.name.size())};
      const auto group = std::find_if(groups.begin(), groups.end(), [&](const ParameterGroup& one) {
        return std::any_of(one.patterns.begin(), one.patterns.end(),
                           [&](const std::string& pattern) { return matches(pattern, segment); });
      });
      if (group != groups.end()) {
        treatment.lr_factor = group->lr_factor;
        treatment.weight_decay = group->weight_decay.value_or(weight_decay);
        treatment.adapt = group->adapt;
      }
      treatments.push_back(treatment);
    }
    at::Tensor steps = at::zeros({static_cast<std::int64_t>(range.size())}, at::kFloat);
    range.resource().note(layout::Role::kState, steps, static_cast<std::int64_t>(steps.nbytes()));
    parts_.push_back({std::move(range), layout, std::move(states), masters, std::move(steps), std::move(treatments)});
  }
}

// Checks that the parameter still lies in the range's memory. If it does not, a step would change memory that the model
// does not use any more, and would not report an error.
void RangeState::check_still_there(const tensor::ParameterRange& range, const tensor::Segment& segment) {
  // Parameters that are gathered for forward and backward lie in a different buffer (RangeValues::whole()).
  // data_parallel checks whether such parameters were replaced.
  REIGEN_CHECK(
      segment.numel == 0 || range.sharing().whole() != nullptr ||
          segment.parameter.const_data_ptr() == at_element(range.values(), segment.offset),
      "parameter \"{}\" has left the memory that this optimizer steps in\n  got: a model that was converted, moved "
      "or wrapped again   expected: the optimizer made after that",
      segment.name);
}

Update RangeState::update_of(const Part& part, std::size_t i, const StepOptions& how) const {
  const tensor::Segment& segment = part.range.segments()[i];
  const Treatment& treatment = part.treatments[i];
  Update update{.layout = part.layout,
                .lr_factor = treatment.lr_factor,
                .weight_decay = treatment.weight_decay,
                .adapt = treatment.adapt,
                .device = part.range.values().device()};
  update.block.values = at_element(part.range.values(), segment.offset);
  update.block.gradients = gradient_data(part.range, i);
  for (std::size_t kind = 0; kind < kinds_.size(); ++kind) {
    update.block.states[kind] = at_element(part.states[kind], segment.offset);
  }
  if (part.masters.defined()) update.block.masters = at_element(part.masters, segment.offset);
  update.block.count = segment.numel;
  update.block.gradient_factor = how.gradient_factor;
  update.block.gradient_limit = how.gradient_limit;
  if (segment.box && part.range.box_owners().size() > 1) update.box_owners = &part.range.box_owners();
  if (const auto& shares = part.range.sharing().shares()) {
    update.begin = shares->begin() - segment.offset;
    update.end = shares->end() - segment.offset;
    update.ranks = &shares->ranks;
    update.segment = i;
    if (awaits_average(part.range)) update.range = &part.range;
  }
  return update;
}

std::vector<Update> RangeState::begin_step(const StepOptions& how) {
  check_finite(optimizer_, "gradient_factor", how.gradient_factor);
  if (!(how.gradient_limit > 0)) refuse_option(optimizer_, "gradient_limit", how.gradient_limit, "a number above 0");
  const kernels::StepControl* const control =
      control_of(how.norm, parts_.front().range.values().device(), optimizer_.c_str());
  std::vector<Update> updates;
  for (Part& part : parts_) {
    for (std::size_t i = 0; i < part.range.size(); ++i) {
      if (!part.range.is_active(i)) continue;
      check_still_there(part.range, part.range.segments()[i]);
      updates.push_back(update_of(part, i, how));
      updates.back().control = control;
    }
  }
  auto update = updates.begin();
  for (Part& part : parts_) {
    float* steps = part.steps.mutable_data_ptr<float>();
    for (std::size_t i = 0; i < part.range.size(); ++i) {
      if (!part.range.is_active(i)) continue;
      steps[i] += 1;
      update->step = static_cast<std::int64_t>(steps[i]);
      update->block.key = base::philox(part.treatments[i].key, static_cast<std::uint64_t>(update->step))[0];
      ++update;
    }
  }
  checks_finite_ = how.check_finite;
  not_finite_->store(false);
  if (checks_finite_) {
    for (Update& one : updates) one.not_finite = not_finite_.get();
  }
  ++steps_;
  parts_.front().range.sharing().meet("gradients before a step");
  compare_whole(updates);
  return updates;
}

// A wrong plan of tensor parallelism shows in the first gradients. The second step is compared too, because some
// weights have no gradient in the first.
void RangeState::compare_whole(const std::vector<Update>& updates) {
  constexpr int kSteps = 2;
  const ParameterRange& range = parts_.front().range;
  if (compared_ >= kSteps || range.box_owners().size() == 1 || !range.values().is_cpu()) return;
  ++compared_;
  std::vector<std::string> names;
  for (const Part& part : parts_) {
    for (std::size_t i = 0; i < part.range.size(); ++i) {
      if (part.range.is_active(i)) names.push_back(part.range.segments()[i].name);
    }
  }
  compare_whole_gradients(updates, names, range.box_owners());
}

void RangeState::end_step() {
  if (checks_finite_) {
    double worst = not_finite_->load() ? 1 : 0;
    parts_.front().range.sharing().exchange([&](const Communicator& ranks) {
      ranks.all_reduce(&worst, &worst, 1, DataType::kFloat64, ReduceOp::kMax, {.tag = "weights after a step"});
    });
    if (const Communicator& owners = parts_.front().range.box_owners(); owners.size() > 1) {
      owners.all_reduce(&worst, &worst, 1, DataType::kFloat64, ReduceOp::kMax, {.tag = "gradients of all boxes"});
    }
    if (const Communicator& stages = parts_.front().range.stages(); stages.size() > 1) {
      stages.all_reduce(&worst, &worst, 1, DataType::kFloat64, ReduceOp::kMax, {.tag = "gradients of all stages"});
    }
    was_finite_ = worst == 0;
  } else {
    parts_.front().range.sharing().meet("weights after a step");
    was_finite_ = true;
  }
  for (Part& part : parts_) {
    part.range.sharing().publish("weights after a step");
    part.range.note_change();
    for (std::size_t i = 0; i < part.range.size(); ++i) {
      if (part.range.is_active(i)) part.range.segments()[i].parameter.unsafeGetTensorImpl()->bump_version();
    }
  }
}

void RangeState::drop_gradients() {
  for (Part& part : parts_) part.range.drop_gradients();
}

// The entry says which part this rank has, if the range is divided and each rank has memory only for its own share.
NamedTensor entry_of(const ParameterRange& range, const tensor::Segment& segment, const std::string& what,
                     const at::Tensor& flat) {
  NamedTensor entry{.name = segment.name + what,
                    .tensor = flat.narrow(0, segment.offset, segment.numel).view(segment.shape)};
  tensor::describe_part(entry, range, segment, range.is_divided() && !range.is_common());
  return entry;
}

std::vector<NamedTensor> RangeState::named() const {
  std::vector<NamedTensor> result;
  for (const Part& part : parts_) {
    for (std::size_t i = 0; i < part.range.size(); ++i) {
      const tensor::Segment& segment = part.range.segments()[i];
      for (std::size_t kind = 0; kind < kinds_.size(); ++kind) {
        result.push_back(entry_of(part.range, segment, "." + kinds_[kind], part.states[kind]));
      }
      if (part.masters.defined()) result.push_back(entry_of(part.range, segment, ".master", part.masters));
      result.push_back({segment.name + ".step", part.steps.select(0, static_cast<std::int64_t>(i))});
    }
  }
  return result;
}

void RangeState::load(const std::vector<NamedTensor>& state, std::int64_t steps) {
  if (steps < 0) {
    throw InvalidArgument(Report{.what = fmt::format("[{}] the step count is negative", optimizer_),
                                 .got = std::to_string(steps),
                                 .expected = "at least 0",
                                 .fix = "load the state of the same optimizer on the same model"});
  }
  load_entries(optimizer_, named(), state);
  steps_ = steps;
}

void load_entries(const std::string& who, const std::vector<NamedTensor>& own, const std::vector<NamedTensor>& state) {
  const auto refuse = [&](const std::string& what, const std::string& got, const std::string& expected) {
    throw InvalidArgument(Report{.what = fmt::format("[{}] {}", who, what),
                                 .got = got,
                                 .expected = expected,
                                 .fix = "load the state of the same optimizer on the same model"});
  };
  std::unordered_map<std::string, at::Tensor> given;
  for (const NamedTensor& entry : state) {
    if (!given.emplace(entry.name, entry.tensor).second) {
      refuse("the state has an entry twice", entry.name, "every name once");
    }
  }
  for (const NamedTensor& entry : own) {
    const auto found = given.find(entry.name);
    if (found == given.end()) refuse("the state lacks an entry", "none of that name", entry.name);
    const at::Tensor& tensor = found->second;
    if (!tensor.defined() || tensor.sizes() != entry.tensor.sizes() ||
        tensor.scalar_type() != entry.tensor.scalar_type()) {
      refuse("an entry of the state does not fit: " + entry.name, describe(tensor), describe(entry.tensor));
    }
  }
  if (given.size() != own.size()) {
    for (const NamedTensor& entry : own) given.erase(entry.name);
    refuse("the state has an unknown entry", given.begin()->first, fmt::format("{} entries", own.size()));
  }
  at::NoGradGuard no_grad;
  for (const NamedTensor& entry : own) {
    const at::Tensor& from = given.at(entry.name);
    if (!entry.is_divided()) {
      entry.tensor.copy_(from);
    } else if (entry.part->count > 0) {
      const auto part = [&](const at::Tensor& whole) {
        return whole.view({-1}).narrow(0, entry.part->first, entry.part->count);
      };
      part(entry.tensor).copy_(part(from.contiguous()));
    }
  }
}

}  // namespace reigen::optim
