#include "train/watch/side_by_side.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "data/complete.h"
#include "parallel/check/difference.h"
#include "reigen/base/error.h"
#include "reigen/layout/part.h"
#include "train/model/device.h"
#include "train/model/micro_batch.h"
#include "train/model/precision.h"
#include "train/run/agree.h"
#include "train/watch/unit_listener.h"

namespace reigen::train {
namespace {

enum class What : std::int64_t { kForward, kBackward, kNorm, kWeight };

constexpr std::int64_t kMost = 1 << 20;  // of units and weights, and of micro-batches

std::int64_t place_of(What what, std::size_t item, std::size_t micro_batch = 0) {
  return (static_cast<std::int64_t>(what) * kMost + static_cast<std::int64_t>(item)) * kMost +
         static_cast<std::int64_t>(micro_batch);
}

// Weights whose gradient is a smaller part of the largest one are not compared: an optimizer that divides by the
// gradient's magnitude makes a whole step from a gradient that is nothing but rounding.
constexpr double kSmallGradient = 1e-2;

// Layers that ranks divide, and attention over divided sequences, take the place of LibTorch's operations on the
// threads that use them. So the whole model computes on a thread of its own.
void in_own_thread(const std::function<void()>& body) {
  std::exception_ptr error;
  std::thread([&] {
    try {
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
  // The first difference that a rank has found. All ranks compare in the same order, so the lowest place is the first.
  struct Finding {
    std::int64_t place = -1;  // -1: none
    double alone = 0;
    double in_layout = 0;
    double largest = 0;  // of the relative differences of the step
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
        in_layout(run.task.units()) {}

  // The configuration of one process.
  Config config() const {
    Config one = run.config;
    one.mesh = {};
    one.parallel = {};
    return one;
  }

  void train_alone(const data::Batch& batch);
  void compare_units();
  void compare_weights();
  void note(std::int64_t place, const at::Tensor& whole, const at::Tensor& local);
  at::Tensor own_part(at::Tensor whole, const at::Tensor& local, std::size_t micro_batch) const;
  std::string text_of(const Finding& finding, int rank) const;

  Run& run;
  TrainedModel& model;
  std::unique_ptr<Task> task;
  Communicator self;
  parallel::DataParallelBase parallel;
  Optimization optimization;
  UnitListener in_process, in_layout;
  // The samples of this rank's micro-batches: where they begin in the whole batch, and how many there are.
  std::vector<std::pair<std::int64_t, std::int64_t>> rows = {};
  std::map<std::string, at::Tensor> gradients = {};  // of the second model, before its step
  std::optional<double> norm = {};
  Finding finding = {};
  std::int64_t steps = 0;
  double largest = 0;
};

void SideBySide::Alone::train_alone(const data::Batch& batch) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(run.data.size()));
  run.data.all_gather(&batch.count, counts.data(), 1, DataType::kInt64, {.tag = "samples to verify with"});
  const std::vector<std::size_t> sizes(counts.begin(), counts.end());
  std::vector<std::int64_t> indices(static_cast<std::size_t>(batch.global_count));
  run.data.all_gather_v(batch.indices.data(), indices.data(), sizes, DataType::kInt64,
                        {.tag = "samples to verify with"});
  std::int64_t first = 0;
  for (int rank = 0; rank < run.data.rank(); ++rank) first += counts[static_cast<std::size_t>(rank)];
  rows.clear();
  for (const data::MicroBatch& part : batch.parts) {
    rows.emplace_back(first, part.count);
    first += part.count;
  }
  const data::DatasetPtr training = task->training_data();
  const data::Samples samples =
      samples_on(run.device, data::complete(training->gather(indices), *training, batch.global_count));
  in_process.begin();
  in_own_thread([&] {
    const auto autocast = compute_type(run.config.train.precision, run.device);
    optimization.scaled(task->loss_of(samples)).backward();
  });
  in_process.end();
  gradients.clear();
  for (const auto& item : task->module().named_parameters()) {
    if (item.value().grad().defined()) gradients[item.key()] = item.value().grad().detach().clone();
  }
  Optimization::Gradients looked = optimization.look();
  looked = optimization.step(run.done, looked);
  norm = looked.norm;
  in_layout.begin();
}

// This rank's part of what the second model passed on. Ranks divide the samples, the sequence and the vocabulary.
at::Tensor SideBySide::Alone::own_part(at::Tensor whole, const at::Tensor& local, std::size_t micro_batch) const {
  const auto [first, count] = rows[micro_batch];
  whole = whole.narrow(0, first, count);
  if (model.context() && whole.dim() > 1) whole = model.context().take(whole, 1);
  if (local.dim() != whole.dim()) return {};
  const int ranks = run.mesh->size("tp");
  for (std::int64_t d = 1; d < whole.dim(); ++d) {
    if (whole.size(d) == local.size(d)) continue;
    const auto [begin, size] = layout::chunk_of(whole.size(d), 1, run.mesh->coordinate("tp"), ranks);
    if (size != local.size(d)) return {};
    whole = whole.narrow(d, begin, size);
  }
  return whole;
}

void SideBySide::Alone::note(std::int64_t place, const at::Tensor& whole, const at::Tensor& local) {
  const parallel::Difference found = parallel::difference_of(whole, local);
  finding.largest = std::max(finding.largest, found.relative);
  if (found.relative <= parallel::default_tolerance(whole.scalar_type())) return;
  if (finding.place >= 0 && finding.place <= place) return;
  finding = {place, found.alone, found.in_parallel, finding.largest};
}

void SideBySide::Alone::compare_units() {
  // A rank's loss is the mean over its own terms, and its gradients are averaged over these ranks later.
  const int others = run.data.size() * run.mesh->size("cp");
  for (std::size_t u = 0; u < in_layout.units().size(); ++u) {
    const auto& calls = in_layout.passed()[u];
    for (std::size_t i = 0; i < calls.size() && i < rows.size(); ++i) {
      if (rows[i].second == 0) continue;  // it computed on a repeated sample of weight 0
      const Passed& whole = *in_process.passed()[u].front();
      const Passed& local = *calls[i];
      for (std::size_t k = 0; k < local.outputs.size() && k < whole.outputs.size(); ++k) {
        const at::Tensor own = own_part(whole.outputs[k], local.outputs[k], i);
        if (!own.defined()) continue;
        note(place_of(What::kForward, u, i), own, local.outputs[k]);
        if (!whole.gradients[k].defined() || !local.gradients[k].defined()) continue;
        note(place_of(What::kBackward, in_layout.units().size() - 1 - u, i),
             own_part(whole.gradients[k], local.gradients[k], i) * others, local.gradients[k]);
      }
    }
  }
}

void SideBySide::Alone::compare_weights() {
  std::map<std::string, at::Tensor> whole;
  std::map<std::string, std::size_t> number;
  for (const auto& item : task->module().named_parameters()) {
    number[item.key()] = whole.size();
    whole[item.key()] = item.value().detach();
  }
  for (const tensor::NamedTensor& item : model.parallel().own_weights()) {
    const auto found = whole.find(item.name);
    if (found == whole.end() || !gradients.contains(item.name)) continue;
    const at::Tensor gradient = gradients.at(item.name).abs();
    const at::Tensor counts = gradient.ge(gradient.max() * kSmallGradient).view({-1});
    const at::Tensor expected = found->second.contiguous().view({-1});
    const at::Tensor values = item.tensor.detach().contiguous().view({-1});
    const layout::Part part = item.part.value_or(layout::whole(item.whole_shape()));
    layout::Runs runs(item.whole_shape(), part);
    while (const auto run_of = runs.next()) {
      const at::Tensor those = counts.narrow(0, run_of->global, run_of->count);
      note(place_of(What::kWeight, number.at(item.name)),
           expected.narrow(0, run_of->global, run_of->count).masked_select(those),
           values.narrow(0, part.first + run_of->local, run_of->count).masked_select(those));
    }
  }
}

std::string SideBySide::Alone::text_of(const Finding& found, int rank) const {
  const auto what = static_cast<What>(found.place / kMost / kMost);
  const auto item = static_cast<std::size_t>(found.place / kMost % kMost);
  const std::int64_t micro_batch = found.place % kMost;
  const std::string numbers = fmt::format("{:.9g} in the layout, {:.9g} in one process", found.in_layout, found.alone);
  const std::string where = fmt::format("on rank {} ({})", rank, coordinates_of(*run.mesh, rank));
  const auto& units = in_layout.units();
  switch (what) {
    case What::kForward:
      return fmt::format("step {}: forward of unit {}, micro-batch {}, differs {}: {}", run.done, units[item].name(),
                         micro_batch, where, numbers);
    case What::kBackward:
      return fmt::format("step {}: the gradient that reaches unit {} in backward, micro-batch {}, differs {}: {}",
                         run.done, units[units.size() - 1 - item].name(), micro_batch, where, numbers);
    case What::kNorm: return fmt::format("step {}: the norm of the gradients differs {}: {}", run.done, where, numbers);
    case What::kWeight: break;
  }
  return fmt::format("step {}: the weight {} differs after the optimizer's step {}: {}", run.done,
                     task->module().named_parameters()[item].key(), where, numbers);
}

SideBySide::SideBySide(Run& run, TrainedModel& model) : run_(run), model_(model) {}
SideBySide::~SideBySide() = default;

void SideBySide::open(std::int64_t global_batch) {
  if (run_.config.train.verify == 0 || !run_.mesh || run_.rollbacks > 0) return;
  if (run_.done > 0) return run_.say("note: train.verify with a mesh looks at the first steps of a new run only");
  if (!run_.options.make_task) {
    throw InvalidArgument(Report{.what = "train.verify with a mesh needs a second model",
                                 .got = "TrainerOptions without make_task",
                                 .expected = "a function that makes a task like the first",
                                 .fix = "set TrainerOptions::make_task, or leave train.verify out"});
  }
  std::unique_ptr<Task> task;
  together(run_.world, "model of one process", [&] {
    task = run_.options.make_task();
    task->initialize(static_cast<std::uint64_t>(run_.config.train.seed));
    task->module().to(run_.device);
    task->module().train();
  });
  alone_ = std::make_unique<Alone>(run_, model_, std::move(task), global_batch);
}

void SideBySide::begin_step(const data::Batch& batch) {
  if (alone_) alone_->train_alone(batch);
}

void SideBySide::end_step(std::optional<double> norm) {
  if (!alone_) return;
  const at::NoGradGuard no_grad;
  alone_->in_layout.end();
  alone_->finding = {};
  alone_->compare_units();
  if (norm && alone_->norm) {
    const at::Tensor two = at::tensor({*alone_->norm, *norm}, at::kDouble);
    const auto type = run_.task.module().parameters().front().scalar_type();
    alone_->note(place_of(What::kNorm, 0), two[0].to(type), two[1].to(type));
  }
  alone_->compare_weights();
  std::vector<Alone::Finding> all(static_cast<std::size_t>(run_.world.size()));
  run_.world.all_gather(&alone_->finding, all.data(), sizeof(Alone::Finding), DataType::kUint8,
                        {.tag = "what was verified"});
  int first = -1;
  for (int rank = 0; rank < run_.world.size(); ++rank) {
    const Alone::Finding& one = all[static_cast<std::size_t>(rank)];
    alone_->largest = std::max(alone_->largest, one.largest);
    if (one.place < 0) continue;
    if (first < 0 || one.place < all[static_cast<std::size_t>(first)].place) first = rank;
  }
  if (first >= 0) {
    throw common(Error(ExitCode::kConfiguration,
                       Report{.what = "the layout does not train as one process does",
                              .got = alone_->text_of(all[static_cast<std::size_t>(first)], first),
                              .expected = fmt::format("the same for {} steps", run_.config.train.verify),
                              .fix = "look at this unit, and at its place in the plan of mesh.tp and in its forward at "
                                     "what depends on other samples or tokens; or leave train.verify out"}));
  }
  if (++alone_->steps < run_.config.train.verify) return;
  run_.say(fmt::format("verified: {} steps of this layout are those of one process, to {:.1e}", alone_->steps,
                       alone_->largest));
  alone_.reset();
}

void SideBySide::abandon_step() { alone_.reset(); }

}  // namespace reigen::train
