#include "optim/range_state.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>
#include <sstream>
#include <unordered_map>
#include <utility>

#include "base/check.h"

namespace reigen::optim {
namespace {

[[noreturn]] void refuse_option(const std::string& optimizer, const char* option, double value, const char* expected) {
  throw InvalidArgument(Report{.what = fmt::format("[{}] {} is out of range", optimizer, option),
                               .got = fmt::format("{}", value),
                               .expected = expected,
                               .fix = fmt::format("set {} to such a number", option)});
}

std::string describe(const at::Tensor& tensor) {
  if (!tensor.defined()) return "an undefined tensor";
  std::ostringstream text;
  text << c10::toString(tensor.scalar_type()) << ' ' << tensor.sizes();
  return text.str();
}

}  // namespace

void check_at_least_zero(const std::string& optimizer, const char* option, double value) {
  if (!(value >= 0) || std::isinf(value)) refuse_option(optimizer, option, value, "a finite number of at least 0");
}

void check_above_zero(const std::string& optimizer, const char* option, double value) {
  if (!(value > 0) || std::isinf(value)) refuse_option(optimizer, option, value, "a finite number above 0");
}

void check_below_one(const std::string& optimizer, const char* option, double value) {
  if (!(value >= 0 && value < 1)) refuse_option(optimizer, option, value, "at least 0 and less than 1");
}

RangeState::RangeState(std::string optimizer, std::vector<ParameterRange> ranges, std::vector<std::string> kinds)
    : optimizer_(std::move(optimizer)), kinds_(std::move(kinds)) {
  if (ranges.empty()) {
    throw InvalidArgument(Report{.what = fmt::format("[{}] there is nothing to optimize", optimizer_),
                                 .got = "no parameters",
                                 .expected = "at least one range",
                                 .fix = "pass parallel.parameters() of a model with trainable parameters"});
  }
  for (ParameterRange& range : ranges) {
    std::vector<at::Tensor> states;
    for (std::size_t i = 0; i < kinds_.size(); ++i) states.push_back(at::zeros_like(range.values()));
    at::Tensor steps = at::zeros({static_cast<std::int64_t>(range.size())}, at::kFloat);
    parts_.push_back({std::move(range), std::move(states), std::move(steps)});
  }
}

// Segments [first, last] that one entry covers.
struct RangeState::OpenRun {
  bool open = false;
  std::size_t first = 0;
  std::size_t last = 0;
  float step = 0;
};

void RangeState::close(Part& part, OpenRun& run, Step& step) const {
  if (!run.open) return;
  run.open = false;
  Runs& runs = run.step == 1 ? step.first : step.later;
  const tensor::Segment& first = part.range.segments()[run.first];
  const tensor::Segment& last = part.range.segments()[run.last];
  const std::int64_t length = last.offset + last.numel - first.offset;
  const auto cut = [&](const at::Tensor& flat) { return flat.narrow(0, first.offset, length); };
  runs.values.push_back(cut(part.range.values()));
  const bool in_place = run.first != run.last || part.range.is_in_place(run.first);
  runs.gradients.push_back(in_place ? cut(part.range.gradients()) : first.parameter.grad().detach().view({length}));
  runs.states.resize(kinds_.size());
  for (std::size_t kind = 0; kind < kinds_.size(); ++kind) runs.states[kind].push_back(cut(part.states[kind]));
  runs.steps.push_back(part.steps.select(0, static_cast<std::int64_t>(run.first)));
}

// A step into memory that the model has left would train nothing and say nothing.
void RangeState::check_still_there(const tensor::ParameterRange& range, const tensor::Segment& segment) {
  const auto* begin = static_cast<const std::byte*>(range.values().const_data_ptr());
  const std::size_t at =
      static_cast<std::size_t>(segment.offset) * static_cast<std::size_t>(range.values().element_size());
  REIGEN_CHECK(
      segment.numel == 0 || segment.parameter.const_data_ptr() == begin + at,
      "parameter \"{}\" has left the memory that this optimizer steps in\n  got: a model that was converted, moved "
      "or wrapped again   expected: the optimizer made after that",
      segment.name);
}

void RangeState::collect(Part& part, Step& step) {
  OpenRun run;
  float* steps = part.steps.mutable_data_ptr<float>();
  for (std::size_t i = 0; i < part.range.size(); ++i) {
    const tensor::Segment& segment = part.range.segments()[i];
    const at::Tensor& gradient = segment.parameter.grad();
    if (!gradient.defined()) {
      close(part, run, step);
      continue;
    }
    check_still_there(part.range, segment);
    bool in_place = part.range.is_in_place(i);
    if (!in_place && (gradient.layout() != at::kStrided || !gradient.is_contiguous() ||
                      gradient.scalar_type() != part.range.values().scalar_type() ||
                      gradient.sizes() != segment.parameter.sizes())) {
      part.range.gather_gradient(i);
      in_place = true;
    }
    steps[i] += 1;
    if (!(run.open && in_place && run.last + 1 == i && steps[i] == run.step)) {
      close(part, run, step);
      run = {.open = true, .first = i, .last = i, .step = steps[i]};
    }
    run.last = i;
    if (!in_place) close(part, run, step);
  }
  close(part, run, step);
}

RangeState::Step RangeState::begin_step() {
  Step step;
  for (Part& part : parts_) collect(part, step);
  ++steps_;
  return step;
}

void RangeState::end_step() {
  for (Part& part : parts_) {
    for (std::size_t i = 0; i < part.range.size(); ++i) {
      if (part.range.is_active(i)) part.range.segments()[i].parameter.unsafeGetTensorImpl()->bump_version();
    }
  }
}

void RangeState::drop_gradients() {
  for (Part& part : parts_) part.range.drop_gradients();
}

std::vector<NamedTensor> RangeState::named() const {
  std::vector<NamedTensor> result;
  for (const Part& part : parts_) {
    for (std::size_t i = 0; i < part.range.size(); ++i) {
      const tensor::Segment& segment = part.range.segments()[i];
      for (std::size_t kind = 0; kind < kinds_.size(); ++kind) {
        result.push_back({segment.name + "." + kinds_[kind],
                          part.states[kind].narrow(0, segment.offset, segment.numel).view(segment.shape)});
      }
      result.push_back({segment.name + ".step", part.steps.select(0, static_cast<std::int64_t>(i))});
    }
  }
  return result;
}

void RangeState::load(const std::vector<NamedTensor>& state, std::int64_t steps) {
  const auto refuse = [&](const std::string& what, const std::string& got, const std::string& expected) {
    throw InvalidArgument(Report{.what = fmt::format("[{}] {}", optimizer_, what),
                                 .got = got,
                                 .expected = expected,
                                 .fix = "load the state of the same optimizer on the same model"});
  };
  if (steps < 0) refuse("the step count is negative", std::to_string(steps), "at least 0");
  const std::vector<NamedTensor> own = named();
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
  for (const NamedTensor& entry : own) entry.tensor.copy_(given.at(entry.name));
  steps_ = steps;
}

}  // namespace reigen::optim
