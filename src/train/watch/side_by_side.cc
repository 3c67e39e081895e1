#include "train/watch/side_by_side.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "data/checked.h"
#include "data/loading/global_batch.h"
#include "parallel/check/difference.h"
#include "reigen/base/error.h"
#include "reigen/optim/clip.h"
#include "tensor/flat/gradient_share.h"
#include "train/model/device.h"
#include "train/model/first_weights.h"
#include "train/model/memory_fit.h"
#include "train/model/micro_batch.h"
#include "train/model/precision.h"
#include "train/run/agree.h"
#include "train/run/failure.h"
#include "train/watch/held_part.h"
#include "train/watch/unit_listener.h"

namespace reigen::train {
namespace {

// In the order in which a step has them.
enum class What : std::int64_t { kFirstValue, kForward, kLoss, kBackward, kGradient, kNorm, kWeight };

constexpr std::int64_t kMost = 1 << 20;  // of units and weights, and of micro-batches

// All ranks compare in the same order, so the lowest place is that of the first difference.
std::int64_t place_of(What what, std::size_t item, std::size_t micro_batch = 0) {
  return (static_cast<std::int64_t>(what) * kMost + static_cast<std::int64_t>(item)) * kMost +
         static_cast<std::int64_t>(micro_batch);
}

// A gradient that is a smaller part of the model's largest gradient may be nothing but rounding.
constexpr double kRounding = 1e-3;
// Weights whose gradient is a smaller part of the largest one of their tensor are not compared: an optimizer that
// divides by the gradient's magnitude makes a whole step from rounding alone.
constexpr double kSmallGradient = 1e-2;

// Of the finite elements; 0 if there is none.
double largest_of(const at::Tensor& values) {
  if (values.numel() == 0) return 0;
  return values.abs().to(at::kDouble).nan_to_num(0.0, 0.0, 0.0).max().item<double>();
}

at::Tensor one_number(double value) { return at::full({1}, value, at::kDouble); }

// Layers that ranks divide, and attention over divided sequences, take the place of LibTorch's operations on the
// threads that use them. So the whole model computes on a thread of its own, on the same stream of a GPU.
void in_own_thread(const at::Device& device, const std::function<void()>& body) {
  std::optional<c10::Stream> stream;
  if (device.is_cuda()) stream = c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).getStream(device);
  std::exception_ptr error;
  std::thread([&] {
    try {
      const c10::OptionalDeviceGuard on(device.is_cuda() ? std::optional(device) : std::nullopt);
      c10::OptionalStreamGuard same;
      if (stream) same.reset_stream(*stream);
      body();
    } catch (...) {
      error = std::current_exception();
    }
  }).join();
  if (error) std::rethrow_exception(error);
}

// "pp 0, dp_shard 1, tp 1": the coordinates along axes of more than one rank.
std::string coordinates_of(const mesh::Mesh& mesh, int rank) {
  std::vector<std::string> words;
  const std::vector<int> at = mesh.coordinates_of(rank);
  for (std::size_t i = 0; i < at.size(); ++i) {
    if (mesh.axes()[i].size > 1) words.push_back(fmt::format("{} {}", mesh.axes()[i].name, at[i]));
  }
  return fmt::format("{}", fmt::join(words, ", "));
}

}  // namespace

struct SideBySide::Alone {
  // The first difference that a rank has found in a step.
  struct Finding {
    std::int64_t place = -1;  // -1: none
    double alone = 0;
    double in_layout = 0;
    double largest = 0;         // of the relative differences
    std::int64_t compared = 0;  // tensors
  };

  Alone(Run& its_run, TrainedModel& its_model, std::shared_ptr<Task> its_task, std::int64_t global_batch)
      : run(its_run),
        model(its_model),
        task(std::move(its_task)),
        self(run.world.split(run.world.rank()).value()),
        parallel(task->module(), self, parallel::DataParallelOptions{}),
        optimization(config(), parallel.parameters(),
                     RunLength{.total_steps = run.total,
                               .global_batch = global_batch,
                               .world_size = run.data.size(),
                               .steps_of_epoch = run.steps_of_epoch,
                               .own_rate = run.own_rate},
                     {}, run.own_groups),
        in_process(task->units()),
        in_layout(run.task.units()),
        was_compared(in_layout.units().size(), 0) {
    for (const auto& item : task->module().named_parameters()) {
      number[item.key()] = names.size();
      names.push_back(item.key());
    }
    const at::ScalarType type = task->module().parameters().front().scalar_type();
    tolerance = parallel::default_tolerance(type);
  }

  // The configuration of one process.
  Config config() const {
    Config one = run.config;
    one.mesh = {};
    one.parallel = {};
    return one;
  }

  void require_same_model() const;
  void train_alone(const data::Batch& batch);
  void compare_first_values();
  void compare_units();
  void compare_loss(double own, std::int64_t terms);
  void compare_gradients();
  void compare_weights();
  void note(std::int64_t place, const at::Tensor& whole, const at::Tensor& local, double magnitude = 0);
  void end_if_different(std::int64_t step);
  at::Tensor own_part(at::Tensor whole, const at::Tensor& local, std::size_t unit, std::size_t micro_batch) const;
  std::vector<std::size_t> micro_batches_of(std::size_t unit) const;
  std::string text_of(const Finding& finding, std::int64_t step, int rank) const;
  std::vector<std::string> units_not_compared() const;

  Run& run;
  TrainedModel& model;
  std::shared_ptr<Task> task;
  Communicator self;
  parallel::DataParallelBase parallel;
  Optimization optimization;
  UnitListener in_process, in_layout;
  std::map<std::string, std::size_t> number = {};  // of the parameters of the whole model
  std::vector<std::string> names = {};
  double tolerance = 0;
  // The samples of this rank's micro-batches: where they begin in the whole batch, and how many there are.
  std::vector<std::pair<std::int64_t, std::int64_t>> rows = {};
  std::int64_t samples = 0;                          // of the whole batch
  std::map<std::string, at::Tensor> gradients = {};  // of the second model in this step
  std::map<std::string, at::Tensor> counts = {};     // which elements of the weights are compared
  double largest_gradient = 0;
  double loss = 0;                         // of the second model in this step
  std::vector<std::int32_t> was_compared;  // of each unit: 1 if a rank has compared what it passed on
  Finding finding = {};
  std::int64_t steps = 0;
  std::int64_t compared = 0;
  double largest = 0;
};

void SideBySide::Alone::train_alone(const data::Batch& batch) {
  std::vector<std::int64_t> sizes_of(static_cast<std::size_t>(run.data.size()));
  run.data.all_gather(&batch.count, sizes_of.data(), 1, DataType::kInt64, {.tag = "samples to verify with"});
  const std::vector<std::size_t> sizes(sizes_of.begin(), sizes_of.end());
  std::vector<std::int64_t> indices(static_cast<std::size_t>(batch.global_count));
  run.data.all_gather_v(batch.indices.data(), indices.data(), sizes, DataType::kInt64,
                        {.tag = "samples to verify with"});
  std::int64_t first = 0;
  for (int rank = 0; rank < run.data.rank(); ++rank) first += sizes_of[static_cast<std::size_t>(rank)];
  rows.clear();
  for (const data::MicroBatch& part : batch.parts) {
    rows.emplace_back(first, part.count);
    first += part.count;
  }
  samples = batch.global_count;
  const data::DatasetPtr training = run.data_module.training();
  const data::Pass pass{.seed = static_cast<std::uint64_t>(run.config.train.seed), .epoch = batch.epoch};
  const data::Samples all = samples_on(
      run.device, data::checked(data::global_batch(*training, pass, indices, batch.position - batch.global_count),
                                *training, samples));
  in_process.begin();
  try {
    in_own_thread(run.device, [&] {
      const auto autocast = compute_type(run.config.train.precision, run.device);
      const at::Tensor mean = task->training_step(all);
      mean.backward();
      loss = mean.item<double>();
    });
  } catch (const c10::OutOfMemoryError& error) {
    throw Error(
        ExitCode::kOsResource,
        Report{.what = "out of memory of the GPU in the model of one process, for train.verify",
               .got = first_line_of(error),
               .fix = fmt::format("verify with a train.global_batch below {}, or leave train.verify out", samples)});
  }
  in_process.end();
  gradients.clear();
  largest_gradient = 0;
  for (const auto& item : task->module().named_parameters()) {
    if (!item.value().grad().defined()) continue;
    gradients[item.key()] = item.value().grad().to_dense().detach().clone();
    largest_gradient = std::max(largest_gradient, largest_of(gradients[item.key()]));
  }
  finding = {};
  in_layout.begin();
}

// This rank's part of what the second model passed on; undefined if that cannot be told. Ranks divide the samples, the
// sequence and the vocabulary.
at::Tensor SideBySide::Alone::own_part(at::Tensor whole, const at::Tensor& local, std::size_t unit,
                                       std::size_t micro_batch) const {
  if (!whole.defined() || !local.defined() || whole.dim() < 1 || local.dim() != whole.dim()) return {};
  const auto [first, count] = rows[micro_batch];
  if (whole.size(0) != samples || local.size(0) != count) return {};
  whole = whole.narrow(0, first, count);
  const int ranks = run.mesh->size("tp"), rank = run.mesh->coordinate("tp");
  const std::int64_t of_sequence = run.mesh->size("cp");
  if (of_sequence > 1 && whole.dim() > 1 && whole.size(1) % of_sequence == 0) {
    // With mesh.sequence the ranks along "tp" divide these tokens again.
    const std::int64_t tokens = whole.size(1) / of_sequence;
    if (local.size(1) == tokens || local.size(1) == layout::chunk_of(tokens, 1, rank, ranks).second) {
      whole = model.context().take(whole, 1);
    }
  }
  // The features of a layer whose rows are divided lie in blocks.
  std::int64_t block = 1;
  const std::string weight = in_layout.units()[unit].name() + ".weight";
  if (model.divided().divides(weight)) {
    const layout::Split& split = model.divided().splits().at(weight);
    if (split.sections > 1) return {};
    if (split.dimension == 0) block = split.block;
  }
  for (std::int64_t d = 1; d < whole.dim(); ++d) {
    if (whole.size(d) == local.size(d)) continue;
    const auto [begin, size] = layout::chunk_of(whole.size(d), d + 1 == whole.dim() ? block : 1, rank, ranks);
    if (size != local.size(d)) return {};
    whole = whole.narrow(d, begin, size);
  }
  return whole;
}

// `magnitude`: by what a difference is divided; difference_of() says what 0 means. Values that are not finite are the
// same if the other tensor has such values in the same places.
void SideBySide::Alone::note(std::int64_t place, const at::Tensor& whole, const at::Tensor& local, double magnitude) {
  if (whole.numel() == 0) return;
  ++finding.compared;
  parallel::Difference found;
  const at::Tensor apart = whole.isfinite().reshape({-1}).ne(local.isfinite().reshape({-1}));
  if (apart.any().item<bool>()) {
    const auto first = apart.to(at::kInt).argmax().item<std::int64_t>();
    found = {HUGE_VAL, whole.reshape({-1})[first].item<double>(), local.reshape({-1})[first].item<double>()};
  } else {
    const auto finite = [](const at::Tensor& values) { return values.to(at::kDouble).nan_to_num(0.0, 0.0, 0.0); };
    found = parallel::difference_of(finite(whole), finite(local), magnitude);
  }
  finding.largest = std::max(finding.largest, found.relative);
  if (found.relative <= tolerance) return;
  if (finding.place >= 0 && finding.place <= place) return;
  finding.place = place;
  finding.alone = found.alone;
  finding.in_layout = found.in_parallel;
}

// The numbers of the micro-batches of a unit's forwards in the step, in the order of the forwards.
std::vector<std::size_t> SideBySide::Alone::micro_batches_of(std::size_t unit) const {
  std::vector<std::size_t> order;
  if (!model.pipeline()) {
    for (std::size_t i = 0; i < rows.size(); ++i) order.push_back(i);
    return order;
  }
  const std::vector<std::size_t>& first = model.pipeline().first_units();
  const auto stage = std::upper_bound(first.begin(), first.end(), unit) - first.begin() - 1;
  for (const schedule::Span& span : model.pipeline().last().spans) {
    if (span.action.kind != schedule::Kind::kForward || span.action.stage != stage) continue;
    order.push_back(static_cast<std::size_t>(span.action.micro_batch));
  }
  return order;
}

void SideBySide::Alone::compare_units() {
  // A rank's gradients are averaged over these ranks later, so what reaches its units is so many times as large.
  const double others = run.data.size() * run.mesh->size("cp");
  for (std::size_t u = 0; u < in_layout.units().size(); ++u) {
    const auto& calls = in_layout.passed()[u];
    const std::vector<std::size_t> order = micro_batches_of(u);
    if (calls.size() != order.size() || in_process.passed()[u].size() != 1) continue;  // not here, or called again
    const Passed& whole = *in_process.passed()[u].front();
    for (std::size_t i = 0; i < calls.size(); ++i) {
      const std::size_t m = order[i];
      if (m >= rows.size() || rows[m].second == 0) continue;  // it computed on a repeated sample of weight 0
      const Passed& local = *calls[i];
      for (std::size_t k = 0; k < std::min(local.outputs.size(), whole.outputs.size()); ++k) {
        const at::Tensor own = own_part(whole.outputs[k], local.outputs[k], u, m);
        if (!own.defined()) continue;
        was_compared[u] = 1;
        note(place_of(What::kForward, u, m), own, local.outputs[k], largest_of(whole.outputs[k]));
        if (!whole.gradients[k].defined()) continue;
        const at::Tensor gradient = whole.gradients[k].to(at::kDouble) * others;
        const at::Tensor found = local.gradients[k].defined() ? local.gradients[k] : at::zeros_like(local.outputs[k]);
        note(place_of(What::kBackward, in_layout.units().size() - 1 - u, m), own_part(gradient, found, u, m), found,
             largest_of(gradient));
      }
    }
  }
  in_layout.clear();
  in_process.clear();
}

void SideBySide::Alone::compare_loss(double own, std::int64_t terms) {
  run.world.all_reduce(&own, &own, 1, DataType::kFloat64, ReduceOp::kSum, {.tag = "loss to verify"});
  note(place_of(What::kLoss, 0), one_number(loss), one_number(run.mean_of(own, terms)));
}

void SideBySide::Alone::compare_gradients() {
  // If ranks keep gradients in memory of each other (ParameterRange::rows()), each rank averages its share here.
  const double in_layout_norm = optim::gradient_norm(model.parallel().parameters()).norm;
  const double alone = optim::gradient_norm(parallel.parameters()).norm;
  const double least = kRounding * largest_gradient;
  for (const ParameterRange& range : model.parallel().parameters()) {
    for (std::size_t i = 0; i < range.size(); ++i) {
      const tensor::Segment& segment = range.segments()[i];
      const auto whole = gradients.find(segment.name);
      if (whole == gradients.end()) continue;
      const at::Tensor& gradient = segment.parameter.grad();
      const bool is_marked = range.share() != nullptr && range.share()->is_marked(i, gradient);
      const bool is_share = is_marked || range.rows() != nullptr;
      at::Tensor flat = at::zeros({segment.numel}, segment.parameter.options().requires_grad(false));
      if (is_marked) {
        flat = range.gradients().narrow(0, segment.offset, segment.numel);
      } else if (gradient.defined()) {
        flat = gradient.detach().to_dense().reshape({-1});
      }
      const Held held = held_of(range, segment, flat, is_share);
      note(place_of(What::kGradient, number.at(segment.name)), elements_of(whole->second, held), elements_of(held),
           std::max(least, largest_of(whole->second)));
    }
  }
  note(place_of(What::kNorm, 0), one_number(alone), one_number(in_layout_norm), alone);
}

// Initial values are the same in every bit. Parameters that no backward reaches are compared here only.
void SideBySide::Alone::compare_first_values() {
  const auto whole = task->module().named_parameters();
  const auto compare = [&](const std::string& name, const at::Tensor& expected, const at::Tensor& found) {
    if (at::equal(expected, found)) return;
    note(place_of(What::kFirstValue, number.at(name)), expected, found, std::numeric_limits<double>::min());
  };
  std::set<std::string> in_ranges;
  for (const ParameterRange& range : model.parallel().weights()) {
    for (const tensor::Segment& segment : range.segments()) {
      in_ranges.insert(segment.name);
      const at::Tensor* const expected = whole.find(segment.name);
      if (expected == nullptr) continue;
      const bool is_share = range.sharing().whole() != nullptr;
      const Held held = held_of(range, segment, range.values().narrow(0, segment.offset, segment.numel), is_share);
      compare(segment.name, elements_of(expected->detach(), held), elements_of(held));
    }
  }
  for (const auto& item : model.module().named_parameters()) {
    const at::Tensor* const expected = whole.find(item.key());
    if (expected == nullptr || in_ranges.contains(item.key()) || !expected->sizes().equals(item.value().sizes()))
      continue;
    compare(item.key(), expected->detach().reshape({-1}), item.value().detach().reshape({-1}));
  }
}

// TrainerOptions::make_task must make the same model as the run's.
void SideBySide::Alone::require_same_model() const {
  const auto refuse = [](std::string got, std::string expected) {
    throw InvalidArgument(Report{.what = "TrainerOptions::make_task makes another model than the run's",
                                 .got = std::move(got),
                                 .expected = std::move(expected),
                                 .fix = "make it with the options of the first task"});
  };
  const auto names_of = [](const std::vector<nn::Unit>& units) {
    std::vector<std::string> all;
    for (const nn::Unit& unit : units) all.push_back(unit.name());
    return fmt::format("{}", fmt::join(all, ", "));
  };
  if (const std::string own = names_of(in_process.units()), all = names_of(in_layout.units()); own != all)
    refuse("units " + own, "units " + all);
  const auto whole = task->module().named_parameters();
  for (const ParameterRange& range : model.parallel().weights()) {
    for (const tensor::Segment& segment : range.segments()) {
      const at::Tensor* const one = whole.find(segment.name);
      const layout::Shape& shape = segment.box ? segment.box->whole : segment.shape;
      const std::string expected = fmt::format("{} of shape [{}]", segment.name, fmt::join(shape, ", "));
      if (one == nullptr) refuse("no parameter " + segment.name, expected);
      if (!one->sizes().equals(shape))
        refuse(fmt::format("{} of shape [{}]", segment.name, fmt::join(one->sizes(), ", ")), expected);
    }
  }
}

void SideBySide::Alone::compare_weights() {
  for (const auto& item : task->module().named_parameters()) {
    const auto gradient = gradients.find(item.key());
    if (gradient == gradients.end() || gradient->second.numel() == 0) continue;
    const double least = std::max(kRounding * largest_gradient, kSmallGradient * largest_of(gradient->second));
    const at::Tensor now = gradient->second.abs().ge(least);
    at::Tensor& those = counts[item.key()];
    those = those.defined() ? those.logical_and(now) : now;
  }
  const auto whole = task->module().named_parameters();
  for (const ParameterRange& range : model.parallel().parameters()) {
    for (const tensor::Segment& segment : range.segments()) {
      const at::Tensor* const expected = whole.find(segment.name);
      if (expected == nullptr || !counts.contains(segment.name)) continue;
      const bool is_share = range.sharing().whole() != nullptr;
      const Held held = held_of(range, segment, range.values().narrow(0, segment.offset, segment.numel), is_share);
      const at::Tensor those = elements_of(counts.at(segment.name), held);
      note(place_of(What::kWeight, number.at(segment.name)), elements_of(expected->detach(), held).masked_select(those),
           elements_of(held).masked_select(those), largest_of(expected->detach()));
    }
  }
}

std::vector<std::string> SideBySide::Alone::units_not_compared() const {
  std::vector<std::string> names_of_units;
  for (std::size_t u = 0; u < was_compared.size(); ++u) {
    if (was_compared[u] == 0) names_of_units.push_back(in_layout.units()[u].name());
  }
  return names_of_units;
}

// Collective. Ends the run if a rank has found a difference.
void SideBySide::Alone::end_if_different(std::int64_t step) {
  std::vector<Finding> all(static_cast<std::size_t>(run.world.size()));
  run.world.all_gather(&finding, all.data(), sizeof(Finding), DataType::kUint8, {.tag = "what was verified"});
  if (!was_compared.empty())
    run.world.all_reduce(was_compared.data(), was_compared.data(), was_compared.size(), DataType::kInt32,
                         ReduceOp::kMax, {.tag = "units that were verified"});
  int first = -1;
  for (int rank = 0; rank < run.world.size(); ++rank) {
    const Finding& one = all[static_cast<std::size_t>(rank)];
    largest = std::max(largest, one.largest);
    compared += one.compared;
    if (one.place < 0) continue;
    if (first < 0 || one.place < all[static_cast<std::size_t>(first)].place) first = rank;
  }
  finding = {};
  if (first < 0) return;
  throw common(
      Error(ExitCode::kConfiguration,
            Report{.what = "the layout does not train as one process does",
                   .got = text_of(all[static_cast<std::size_t>(first)], step, first),
                   .expected = fmt::format("the same for {} steps", run.config.train.verify),
                   .fix = "look at this unit: at its place in the plan of mesh.tp, at what depends on other "
                          "samples or tokens (batch statistics), at what the forward computes outside of units, "
                          "and at random layers; or leave train.verify out"}));
}

std::string SideBySide::Alone::text_of(const Finding& found, std::int64_t step, int rank) const {
  const auto what = static_cast<What>(found.place / kMost / kMost);
  const auto item = static_cast<std::size_t>(found.place / kMost % kMost);
  const std::int64_t micro_batch = found.place % kMost;
  const auto& units = in_layout.units();
  std::string thing;
  switch (what) {
    case What::kFirstValue: thing = fmt::format("the first value of {}", names[item]); break;
    case What::kLoss: thing = "the loss"; break;
    case What::kForward:
      thing = fmt::format("forward of unit {}, micro-batch {}", units[item].name(), micro_batch);
      break;
    case What::kBackward:
      thing = fmt::format("the gradient that {} gives back to unit {}, micro-batch {},",
                          item == 0 ? "the loss" : units[units.size() - item].name(),
                          units[units.size() - 1 - item].name(), micro_batch);
      break;
    case What::kGradient: thing = fmt::format("the averaged gradient of {}", names[item]); break;
    case What::kNorm: thing = "the norm of the gradients"; break;
    case What::kWeight: thing = fmt::format("the weight {} after the optimizer's step", names[item]); break;
  }
  return fmt::format("step {}: {} differs on rank {} ({}): {:.9g} in the layout, {:.9g} in one process", step, thing,
                     rank, coordinates_of(*run.mesh, rank), found.in_layout, found.alone);
}

SideBySide::SideBySide(Run& run, TrainedModel& model) : run_(run), model_(model) {}
SideBySide::~SideBySide() = default;

void SideBySide::open(std::int64_t global_batch) {
  if (run_.config.train.verify == 0 || !run_.mesh || run_.rollbacks > 0) return;
  if (run_.done > 0) return run_.say("note: train.verify with a mesh looks at the first steps of a new run only");
  if (!run_.options.make_task) {
    throw common(InvalidArgument(Report{.what = "train.verify with a mesh needs a second model",
                                        .got = "TrainerOptions without make_task",
                                        .expected = "a function that makes a task like the first",
                                        .fix = "set TrainerOptions::make_task, or leave train.verify out"}));
  }
  const auto& train = run_.config.train;
  const auto& sent = run_.config.parallel;
  const std::string& strategy = sent.strategy.name;
  const bool is_narrow = train.precision == "bf16" || train.precision == "fp16" || train.tf32 ||
                         train.weights != "own" || sent.gather_type != "own" || sent.reduce_type != "own";
  if (is_narrow || strategy != "plain") {
    throw common(InvalidArgument(Report{
        .what = "train.verify with a mesh tells mistakes from rounding only in fp32 or fp64, averaged exactly",
        .got = fmt::format("train.precision {}, train.tf32 {}, train.weights {}, parallel.gather_type {}, "
                           "parallel.reduce_type {}, parallel.strategy {}",
                           train.precision, train.tf32, train.weights, sent.gather_type, sent.reduce_type, strategy),
        .expected = "train.precision fp32 or fp64, no train.tf32, own types, and parallel.strategy plain",
        .fix = "choose these for the check, or leave train.verify out"}));
  }
  const MemoryUse& alone = model_.memory_alone();
  require_room("the model of one process, for train.verify,",
               alone.parameters + 2 * alone.gradients + alone.optimizer,  // it keeps a copy of the gradients
               "leave train.verify out, or verify a smaller model", run_.world,
               [&] { return available_on(run_.device); });
  std::shared_ptr<Task> task;
  together(run_.world, "model of one process", [&] {
    task = run_.options.make_task();
    if (task == nullptr) {
      throw InvalidArgument(Report{.what = "TrainerOptions::make_task gave no task", .fix = "return a task"});
    }
    task->initialize(static_cast<std::uint64_t>(run_.config.train.seed));
    const RunConfig& config = run_.config.run;
    if (!config.weights.empty())
      FirstWeights(weights_path_of(config), task->module(), config.strict)
          .read_into(tensor::tensors_of(task->module()));
    task->module().to(run_.device);
    task->module().train();
  });
  alone_ = std::make_unique<Alone>(run_, model_, std::move(task), global_batch);
  together(run_.world, "model of one process", [&] { alone_->require_same_model(); });
}

bool SideBySide::begin_step(const data::Batch& batch) {
  if (!alone_) return false;
  alone_->train_alone(batch);
  if (alone_->steps == 0) {
    const at::NoGradGuard no_grad;
    alone_->compare_first_values();
  }
  return true;
}

void SideBySide::before_optimizer(double loss, std::int64_t terms) {
  if (!alone_) return;
  const at::NoGradGuard no_grad;
  alone_->in_layout.end();
  alone_->compare_units();
  alone_->compare_loss(loss, terms);
  alone_->compare_gradients();
  alone_->end_if_different(run_.done + 1);
}

void SideBySide::end_step(bool skipped) {
  if (!alone_) return;
  if (skipped) {
    alone_->optimization.leave_out();
  } else {
    alone_->optimization.step(run_.done - 1, alone_->optimization.look());
    const at::NoGradGuard no_grad;
    alone_->compare_weights();
  }
  alone_->end_if_different(run_.done);
  if (++alone_->steps == run_.config.train.verify) close();
}

void SideBySide::abandon() { alone_.reset(); }

void SideBySide::close() {
  if (!alone_) return;
  const std::int64_t wanted = run_.config.train.verify;
  const std::string steps =
      alone_->steps == wanted ? fmt::format("{}", wanted) : fmt::format("{} of {}", alone_->steps, wanted);
  run_.say(fmt::format("verified: {} steps of this layout are those of one process, to {:.1e} ({} tensors)", steps,
                       alone_->largest, alone_->compared));
  if (const auto names = alone_->units_not_compared(); !names.empty()) {
    run_.say(fmt::format("note: what these units pass on could not be compared: {}", fmt::join(names, ", ")));
  }
  alone_.reset();
}

}  // namespace reigen::train
