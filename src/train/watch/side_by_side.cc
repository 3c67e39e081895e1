#include "train/watch/side_by_side.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "data/complete.h"
#include "parallel/check/difference.h"
#include "reigen/base/error.h"
#include "reigen/layout/part.h"
#include "reigen/optim/clip.h"
#include "tensor/flat/gradient_share.h"
#include "train/model/device.h"
#include "train/model/memory_fit.h"
#include "train/model/micro_batch.h"
#include "train/model/precision.h"
#include "train/run/agree.h"
#include "train/watch/unit_listener.h"

namespace reigen::train {
namespace {

enum class What : std::int64_t { kForward, kBackward, kGradient, kNorm, kWeight };

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

double largest_of(const at::Tensor& values) {
  return values.numel() == 0 ? 0 : values.abs().max().to(at::kDouble).item<double>();
}

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

// What this rank has of a whole parameter, or of its gradient: `part` of `shape`, in `flat`, whose first element is the
// first of the box that the rank computes with.
struct Held {
  layout::Shape shape = {};
  layout::Part part = {};
  at::Tensor flat = {};
};

layout::Part box_of(const tensor::Segment& segment) {
  return segment.box ? segment.box->part : layout::whole(segment.shape);
}

Held held_of(const ParameterRange& range, const tensor::Segment& segment, const at::Tensor& flat, bool is_share) {
  return {.shape = segment.box ? segment.box->whole : segment.shape,
          .part = is_share ? range.part_of(segment) : box_of(segment),
          .flat = flat};
}

// The elements of `held`, run by run, from a flat tensor in which `begin_of` says where a run begins.
template <class BeginOf>
at::Tensor runs_of(const Held& held, const at::Tensor& flat, const BeginOf& begin_of) {
  std::vector<at::Tensor> pieces;
  layout::Runs runs(held.shape, held.part);
  while (const auto one = runs.next()) pieces.push_back(flat.narrow(0, begin_of(*one), one->count));
  return pieces.empty() ? flat.narrow(0, 0, 0) : at::cat(pieces);
}

// The elements of a whole tensor that `held` has, in its order.
at::Tensor elements_of(const at::Tensor& whole, const Held& held) {
  return runs_of(held, whole.reshape({-1}), [](const auto& run) { return run.global; });
}

at::Tensor elements_of(const Held& held) {
  return runs_of(held, held.flat, [&](const auto& run) { return held.part.first + run.local; });
}

}  // namespace

struct SideBySide::Alone {
  // The first difference that a rank has found.
  struct Finding {
    std::int64_t place = -1;  // -1: none
    double alone = 0;
    double in_layout = 0;
    double largest = 0;         // of the relative differences
    std::int64_t compared = 0;  // tensors
  };

  Alone(Run& its_run, TrainedModel& its_model, std::unique_ptr<Task> its_task, std::int64_t global_batch)
      : run(its_run),
        model(its_model),
        task(std::move(its_task)),
        self(run.world.split(run.world.rank()).value()),
        parallel(task->module(), self, parallel::DataParallelOptions{}),
        optimization(config(), parallel.parameters(),
                     RunLength{.total_steps = run.total, .global_batch = global_batch, .world_size = run.data.size()}),
        in_process(task->units()),
        in_layout(run.task.units()) {
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

  void train_alone(const data::Batch& batch);
  void compare_units();
  void compare_gradients();
  void compare_weights();
  void note(std::int64_t place, const at::Tensor& whole, const at::Tensor& local, double magnitude);
  at::Tensor own_part(at::Tensor whole, const at::Tensor& local, std::size_t micro_batch) const;
  std::vector<std::size_t> micro_batches_of(std::size_t unit) const;
  std::string text_of(const Finding& finding, int rank) const;

  Run& run;
  TrainedModel& model;
  std::unique_ptr<Task> task;
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
  Optimization::Gradients looked = {};
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
  const data::DatasetPtr training = task->training_data();
  const data::Pass pass{.seed = static_cast<std::uint64_t>(run.config.train.seed), .epoch = batch.epoch};
  const data::Samples all =
      samples_on(run.device, data::complete(training->gather_in(pass, indices), *training, samples));
  in_process.begin();
  in_own_thread(run.device, [&] {
    const auto autocast = compute_type(run.config.train.precision, run.device);
    optimization.scaled(task->loss_of(all)).backward();
  });
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
at::Tensor SideBySide::Alone::own_part(at::Tensor whole, const at::Tensor& local, std::size_t micro_batch) const {
  if (!whole.defined() || !local.defined() || whole.dim() < 1 || local.dim() != whole.dim()) return {};
  const auto [first, count] = rows[micro_batch];
  if (whole.size(0) != samples || local.size(0) != count) return {};
  whole = whole.narrow(0, first, count);
  const int of_sequence = run.mesh->size("cp");
  if (of_sequence > 1 && whole.dim() > 1 && local.size(1) * of_sequence == whole.size(1)) {
    whole = model.context().take(whole, 1);
  }
  const int ranks = run.mesh->size("tp");
  for (std::int64_t d = 1; d < whole.dim(); ++d) {
    if (whole.size(d) == local.size(d)) continue;
    const auto [begin, size] = layout::chunk_of(whole.size(d), 1, run.mesh->coordinate("tp"), ranks);
    if (size != local.size(d)) return {};
    whole = whole.narrow(d, begin, size);
  }
  return whole;
}

// `magnitude`: by what a difference is divided. Values that are not finite are the same if both have the same kind.
void SideBySide::Alone::note(std::int64_t place, const at::Tensor& whole, const at::Tensor& local, double magnitude) {
  if (whole.numel() == 0) return;
  ++finding.compared;
  const parallel::Difference found = parallel::difference_of(whole, local, magnitude);
  if (!std::isfinite(magnitude) && at::equal(whole.isfinite(), local.isfinite())) return;
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
    if (calls.size() != order.size() || in_process.passed()[u].size() != 1) continue;  // not here, or called twice
    const Passed& whole = *in_process.passed()[u].front();
    for (std::size_t i = 0; i < calls.size(); ++i) {
      const std::size_t m = order[i];
      if (rows[m].second == 0) continue;  // it computed on a repeated sample of weight 0
      const Passed& local = *calls[i];
      for (std::size_t k = 0; k < std::min(local.outputs.size(), whole.outputs.size()); ++k) {
        const at::Tensor own = own_part(whole.outputs[k], local.outputs[k], m);
        if (!own.defined()) continue;
        note(place_of(What::kForward, u, m), own, local.outputs[k], largest_of(whole.outputs[k]));
        if (!whole.gradients[k].defined()) continue;
        const at::Tensor gradient = whole.gradients[k].to(at::kDouble) * others;
        const at::Tensor found = local.gradients[k].defined() ? local.gradients[k] : at::zeros_like(local.outputs[k]);
        note(place_of(What::kBackward, in_layout.units().size() - 1 - u, m), own_part(gradient, found, m), found,
             largest_of(gradient));
      }
    }
  }
  in_layout.clear();
  in_process.clear();
}

// If ranks keep their averages in memory of each other (ParameterRange::rows()), the optimizer computes them. Then only
// the norm is compared.
void SideBySide::Alone::compare_gradients() {
  const double least = kRounding * largest_gradient;
  for (const ParameterRange& range : model.parallel().parameters()) {
    if (range.rows() != nullptr) continue;
    for (std::size_t i = 0; i < range.size(); ++i) {
      const tensor::Segment& segment = range.segments()[i];
      const auto whole = gradients.find(segment.name);
      if (whole == gradients.end() || !segment.parameter.grad().defined()) continue;
      const bool is_share = range.share() != nullptr && range.share()->is_marked(i, segment.parameter.grad());
      const at::Tensor flat = is_share ? range.gradients().narrow(0, segment.offset, segment.numel)
                                       : segment.parameter.grad().detach().to_dense().reshape({-1});
      const Held held = held_of(range, segment, flat, is_share);
      note(place_of(What::kGradient, number.at(segment.name)), elements_of(whole->second, held), elements_of(held),
           std::max(least, largest_of(whole->second)));
    }
  }
  const double alone = optim::gradient_norm(parallel.parameters()).norm;
  const double in_layout_norm = optim::gradient_norm(model.parallel().parameters()).norm;
  note(place_of(What::kNorm, 0), at::full({1}, alone, at::kDouble), at::full({1}, in_layout_norm, at::kDouble), alone);
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

std::string SideBySide::Alone::text_of(const Finding& found, int rank) const {
  const auto what = static_cast<What>(found.place / kMost / kMost);
  const auto item = static_cast<std::size_t>(found.place / kMost % kMost);
  const std::int64_t micro_batch = found.place % kMost;
  const auto& units = in_layout.units();
  std::string thing;
  switch (what) {
    case What::kForward:
      thing = fmt::format("forward of unit {}, micro-batch {}", units[item].name(), micro_batch);
      break;
    case What::kBackward:
      thing = fmt::format("the gradient that reaches unit {} in backward, micro-batch {}",
                          units[units.size() - 1 - item].name(), micro_batch);
      break;
    case What::kGradient: thing = fmt::format("the averaged gradient of {}", names[item]); break;
    case What::kNorm: thing = "the norm of the gradients"; break;
    case What::kWeight: thing = fmt::format("the weight {} after the optimizer's step", names[item]); break;
  }
  return fmt::format("step {}: {} differs on rank {} ({}): {:.9g} in the layout, {:.9g} in one process", run.done,
                     thing, rank, coordinates_of(*run.mesh, rank), found.in_layout, found.alone);
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
  const std::string& strategy = run_.config.parallel.strategy.name;
  if (train.precision == "bf16" || train.precision == "fp16" || train.tf32 || strategy != "plain") {
    throw common(InvalidArgument(
        Report{.what = "train.verify with a mesh tells mistakes from rounding only in fp32 or fp64, averaged exactly",
               .got = fmt::format("train.precision {}, train.tf32 {}, parallel.strategy {}", train.precision,
                                  train.tf32, strategy),
               .expected = "train.precision fp32 or fp64, no train.tf32, and parallel.strategy plain",
               .fix = "choose these for the check, or leave train.verify out"}));
  }
  const MemoryUse& alone = model_.memory_alone();
  require_room("the model of one process, for train.verify,",
               alone.parameters + 2 * alone.gradients + alone.optimizer,  // it keeps a copy of the gradients
               "leave train.verify out, or verify a smaller model", run_.world,
               [&] { return available_on(run_.device); });
  std::unique_ptr<Task> task;
  together(run_.world, "model of one process", [&] {
    task = run_.options.make_task();
    task->initialize(static_cast<std::uint64_t>(run_.config.train.seed));
    task->module().to(run_.device);
    task->module().train();
  });
  alone_ = std::make_unique<Alone>(run_, model_, std::move(task), global_batch);
}

bool SideBySide::begin_step(const data::Batch& batch) {
  if (alone_) alone_->train_alone(batch);
  return alone_ != nullptr;
}

void SideBySide::before_optimizer() {
  if (!alone_) return;
  const at::NoGradGuard no_grad;
  alone_->in_layout.end();
  alone_->compare_units();
  alone_->compare_gradients();
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
  using Finding = Alone::Finding;
  std::vector<Finding> all(static_cast<std::size_t>(run_.world.size()));
  run_.world.all_gather(&alone_->finding, all.data(), sizeof(Finding), DataType::kUint8, {.tag = "what was verified"});
  int first = -1;
  for (int rank = 0; rank < run_.world.size(); ++rank) {
    const Finding& one = all[static_cast<std::size_t>(rank)];
    alone_->largest = std::max(alone_->largest, one.largest);
    alone_->compared += one.compared;
    if (one.place < 0) continue;
    if (first < 0 || one.place < all[static_cast<std::size_t>(first)].place) first = rank;
  }
  if (first >= 0) {
    throw common(Error(ExitCode::kConfiguration,
                       Report{.what = "the layout does not train as one process does",
                              .got = alone_->text_of(all[static_cast<std::size_t>(first)], first),
                              .expected = fmt::format("the same for {} steps", run_.config.train.verify),
                              .fix = "look at this unit: at its place in the plan of mesh.tp, at what depends on other "
                                     "samples or tokens, and at random layers; or leave train.verify out"}));
  }
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
  alone_.reset();
}

}  // namespace reigen::train
