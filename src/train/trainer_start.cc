// A run before its first step: where it begins, its data, model and files.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "base/log.h"
#include "checkpoint/directory.h"
#include "reigen/data/sampler.h"
#include "reigen/format/atomic_file.h"
#include "reigen/nn/unit_policy.h"
#include "reigen/nn/without_memory.h"
#include "reigen/parallel/layout_of.h"
#include "reigen/tensor/data_type.h"
#include "reigen/tensor/pieces.h"
#include "train/agree.h"
#include "train/meaning.h"
#include "train/memory_fit.h"
#include "train/resume.h"
#include "train/strategy_of.h"
#include "train/trainer_impl.h"
#include "train/verify_before_training.h"

namespace reigen::train {

namespace fs = std::filesystem;

namespace {

// In front of its tensors in a checkpoint; no module has such a name.
constexpr std::string_view kOfStrategy = "//strategy/";

}  // namespace

void Trainer::Impl::find_start() {
  ResumePoint point{.run_directory = config.run.dir};
  if (wants_resume(config)) {
    together(world, "resume", [&] {
      if (is_first()) point = find_resume_point(config);
    });
  }
  const std::string path = share_text(world, point.checkpoint.string());
  together(world, "run directory", [&] {
    if (is_first() && point.run_directory.empty()) point.run_directory = default_run_directory(task.name(), made);
  });
  directory = share_text(world, point.run_directory.string());
  same_run = point.same_run || rollbacks > 0;  // it goes back into another's checkpoint, and stays where it is
  unreadable = point.unreadable;
  for (const std::string& note : point.notes) say(note);
  if (path.empty()) return;
  together(world, "checkpoint", [&] { found.emplace(path); });
  done = saved = asked_to_save = found->manifest().step;
  epoch = found->manifest().epoch;
  position = found->manifest().position;
  settled = true;  // as it was saved
  if (!config.train.global_batch) config.train.global_batch = found->manifest().global_batch;
}

void Trainer::Impl::open_data() {
  std::vector<std::string> notes;
  data::Meaning meaning;
  together(world, "training data", [&] {
    data::LoaderOptions choice{.shuffle = true,
                               .seed = static_cast<std::uint64_t>(config.train.seed),
                               .micro_batch = config.train.micro_batch,
                               .limit = config.data.limit,
                               .workers = static_cast<int>(config.data.workers)};
    if (config.train.global_batch)
      choice.global_batch = config.train.global_batch;
    else
      choice.batch_size = options.batch_per_rank;
    loader.emplace(task.training_data(), choice, world);
    described = options_of(config, task.name(), loader->size());
    meaning = task.training_data()->meaning();
    for (const auto& [key, value] : to_text(meaning)) described[key] = metadata[key] = value;
    if (found) notes = require_compatible(*found, described, meaning, config.train.global_batch);
  });
  compare_data(meaning);
  if (found && found->manifest().options.contains("data.samples") &&
      found->manifest().options.at("data.samples") != described["data.samples"] && position > 0) {
    notes.push_back("the epoch begins anew: positions in other data are others");
    position = 0;
  }
  // Now and not after the first epoch, so that a damaged file costs no training.
  open_test_data();
  for (const std::string& note : notes) say(note.starts_with("warning: ") ? note : "note: " + note);
  total = config.train.epochs * loader->steps();
  if (config.train.max_steps > 0) total = std::min(total, config.train.max_steps);
  if (trace && (trace->steps().first > total || trace->steps().last <= done)) {
    say(fmt::format("note: run.trace {} has none of the steps {} to {} of this run", config.run.trace, done + 1,
                    total));
  }
}

// Each machine may have a copy of its own, and one of them may be older.
void Trainer::Impl::compare_data(const data::Meaning& meaning) {
  if (world.size() == 1) return;
  data::Meaning all = meaning;
  all.push_back({.name = "number of samples", .values = {std::to_string(loader->size())}});
  const TextMap first = from_line(share_text(world, to_line(to_text(all))));
  together(world, "training data", [&] {
    for (const Difference& one : differences(all, first)) {
      const auto fact = std::find_if(all.begin(), all.end(), [&](const data::Fact& f) { return f.name == one.fact; });
      const bool is_list = fact != all.end() && !fact->one.empty();
      const std::string text = fmt::format("this rank's data are not those of rank 0: {} there", one.text);
      if (is_list || one.fact == "number of samples") {
        throw InvalidArgument(
            Report{.what = text, .fix = "give every rank the same data, on each machine, in data.path"});
      }
      base::log_warning("{}", text);
    }
  });
}

void Trainer::Impl::open_test_data() {
  if (test_data) return;
  together(world, "test data", [&] {
    test_data = task.test_data();
    if (test_data->size() > 0) return;
    throw DataError(Report{.what = fmt::format("{}: there are no test samples", task.name()),
                           .got = fmt::format("0 samples of {}", test_data->name()),
                           .expected = "at least one: the score of none says nothing",
                           .fix = "keep some samples from training, as the task's test_data()"});
  });
}

namespace {

bool is_without_memory(const torch::nn::Module& module) {
  const std::vector<at::Tensor> parameters = module.parameters();
  return std::any_of(parameters.begin(), parameters.end(), nn::has_no_memory);
}

// The model is the task's, and so is the type of its weights: fp32 in place of fp64 would pass unseen.
void require_precision(const torch::nn::Module& module, const std::string& precision) {
  if (precision != "fp64") return;
  for (const auto& item : module.named_parameters()) {
    const at::ScalarType type = item.value().scalar_type();
    if (type == at::kDouble || !item.value().is_floating_point()) continue;
    throw InvalidArgument(Report{.what = "train.precision fp64: the task's model is of another type",
                                 .got = fmt::format("{} is {}", item.key(), at::toString(type)),
                                 .expected = "Double",
                                 .fix = "where config.train.precision is fp64, module().to(at::kDouble) and data of "
                                        "doubles in the task; or leave train.precision out"});
  }
}

// What fails on one rank is not every rank's error.
std::function<void()> alone(std::function<void()> body) {
  return [body = std::move(body)] {
    try {
      body();
    } catch (const InvalidArgument& error) {
      throw Error(error.exit_code(), error.what());
    }
  };
}

// Of the others nothing is read.
std::vector<tensor::NamedTensor> those_with_memory(const torch::nn::Module& module) {
  std::vector<tensor::NamedTensor> tensors = tensor::tensors_of(module);
  for (tensor::NamedTensor& item : tensors) {
    if (nn::has_no_memory(item.tensor)) item.part = layout::flat_part(item.tensor.sizes().vec(), 0, 0);
  }
  return tensors;
}

}  // namespace

void Trainer::Impl::prepare_model() {
  const auto set_values = [&] {
    if (found)
      tensor::read_into(*found, "model", those_with_memory(task.module()));
    else
      task.initialize(static_cast<std::uint64_t>(config.train.seed));
  };
  bool without_memory = false;
  together(world, "model", [&] {
    require_precision(task.module(), config.train.precision);
    without_memory = is_without_memory(task.module());
    if (!without_memory) set_values();
  });
  activations = checkpoint_activations(task, config.train);
  if (config.train.verify > 0 && rollbacks == 0) say(verify_before_training(task, config, samples_per_step(), world));
  try {
    parallel::DataParallelOptions how = data_parallel_options(config.parallel, world);
    how.units = task.units();
    if (config.parallel.unit_size > 0) how.units = nn::units_of_size(how.units, config.parallel.unit_size);
    if (without_memory) how.initialize = alone(set_values);
    parallel::LayoutInputs inputs = parallel::layout_inputs(task.module(), world, how);
    inputs.choices.states = states_of(config.optim);
    const layout::Layout layout = inputs.choose();
    mesh.clear();
    for (const layout::Axis& axis : layout.axes()) mesh.emplace_back(axis.name, axis.size);
    formula_memory = formula(layout, layout.coordinates_of(world.rank()));
    // A wrapper that is gone has not given back what it had.
    const std::int64_t samples = (loader->global_batch() + world.size() - 1) / world.size();
    if (rollbacks == 0) require_room(task.module(), inputs, config, samples, world);
    parallel.emplace(task.module(), world, how);
    optimization.emplace(
        config, parallel->parameters(),
        RunLength{.total_steps = total, .global_batch = loader->global_batch(), .world_size = world.size()});
  } catch (InvalidArgument& error) {
    error.mark_common();  // models and options were compared: every rank throws it
    throw;
  }
  if (!found) return;
  together(world, "optimizer", [&] { load_state(tensor::read_group(*found, "optimizer", state())); });
}

void Trainer::Impl::load_state(const std::vector<tensor::NamedTensor>& state) {
  std::vector<tensor::NamedTensor> of_optimization;
  std::map<std::string, at::Tensor> of_strategy;
  for (const tensor::NamedTensor& item : state) {
    if (item.name.starts_with(kOfStrategy))
      of_strategy[item.name.substr(kOfStrategy.size())] = item.tensor;
    else
      of_optimization.push_back(item);
  }
  optimization->load_state(of_optimization, found->manifest().optimizer_steps);
  if (of_strategy.empty() || world.size() == 1) return;
  const std::string other = what_differs_in_strategy(*found, described);
  if (other.empty()) {
    parallel->load_strategy_state(of_strategy);
  } else {
    say(fmt::format("note: {}, so what the strategy remembered is dropped", other));
  }
}

std::vector<tensor::NamedTensor> Trainer::Impl::state() const {
  std::vector<tensor::NamedTensor> tensors = optimization->state();
  for (const auto& [name, tensor] : parallel->strategy_state()) {
    tensors.push_back({std::string(kOfStrategy) + name, tensor});
  }
  return tensors;
}

// One model and one state of the optimizer on all ranks, in the middle of a run: the mean where they differ.
// Once after a step: means of three equal numbers need not be that number.
void Trainer::Impl::settle() {
  if (!parallel || settled) return;
  settled = true;
  parallel->settle();
  if (!parallel->ranks_differ()) return;
  const at::NoGradGuard no_grad;
  for (const tensor::NamedTensor& item : optimization->state()) {
    if (!item.tensor.is_floating_point() || item.tensor.numel() == 0) continue;
    const bool counts = item.name.ends_with(".step");
    world.all_reduce(item.tensor.const_data_ptr(), item.tensor.mutable_data_ptr(),
                     static_cast<std::size_t>(item.tensor.numel()), tensor::to_data_type(item.tensor.scalar_type()),
                     counts ? ReduceOp::kMax : ReduceOp::kAvg, {.tag = "optimizer state"});
  }
}

// Bytes of a model that one rank has all of.
std::int64_t Trainer::Impl::whole_weights() const {
  std::int64_t bytes = 0;
  for (const at::Tensor& parameter : task.module().parameters()) bytes += static_cast<std::int64_t>(parameter.nbytes());
  return bytes;
}

void Trainer::Impl::prepare_files() {
  if (config.run.save_initial && !found && parallel->gathers()) {
    require_room("the whole model, for run.save_initial,", whole_weights(), "leave run.save_initial out", world);
    parallel->gather_weights();
  }
  together(world, "run directory", [&] {
    if (!is_first()) return;
    held.emplace(directory, same_run, made);
    if (!held->warning().empty() && rollbacks == 0) say("warning: " + held->warning());
    if (!config.data.dump_order.empty()) order.emplace(config.data.dump_order);
    if (order) dump_past_order();
    if (found && done >= total) return;  // nothing is to be done: nothing is to change
    Config resolved = config;
    resolved.run.dir = directory.string();
    resolved.run.resume.clear();  // of this start, not of the run
    resolved.data.may_differ = false;
    // A start that fails leaves no half run, over which the next would stumble.
    const auto make = [&](const char* name, const auto& body) {
      std::error_code ignored;
      const bool is_new = !fs::exists(fs::symlink_status(directory / name, ignored));
      body(directory / name);
      if (is_new) made.note(directory / name);
    };
    make("config.toml",
         [&](const fs::path& path) { format::write_file_atomically(path, std::string_view(to_toml(resolved))); });
    if (found) set_future_aside();
    make("metrics.jsonl", [&](const fs::path& path) { metrics.emplace(path, done); });
    if (config.run.save_initial && !found) {
      make("initial.safetensors",
           [&](const fs::path& path) { tensor::write_tensors(path, tensor::tensors_of(task.module()), metadata); });
    }
  });
  made.keep();
}

// An older checkpoint that goes on replaces the future that was: a later resume must not come back to it. It is there
// to be taken back until the run has come as far, with the lines of its steps.
void Trainer::Impl::set_future_aside() {
  const fs::path checkpoints = directory / "checkpoints";
  const std::vector<fs::path> all = checkpoint::list(checkpoints);
  const fs::path place = checkpoint::set_aside_path(checkpoints);
  std::error_code error;
  const auto tell = [&](const std::string& what) {
    say(fmt::format(
        "note: {} {}; they are deleted when this run has come as far (docs/checkpoints.md: how to go back to one)",
        what, place.string()));
  };
  if (all.empty() || checkpoint::step_of(all.front()).value_or(done) <= done) {
    if (!checkpoint::list(place).empty()) tell("checkpoints that this run gave up are in");
    return;
  }
  checkpoint::make_directories(place);
  const std::string name = fmt::format("metrics_of_{}.jsonl", all.front().filename().string());
  std::string lines;
  if (fs::exists(directory / "metrics.jsonl", error)) {
    std::ifstream in(directory / "metrics.jsonl");
    lines.assign(std::istreambuf_iterator<char>(in), {});
    if (!fs::exists(place / name, error)) format::write_file_atomically(place / name, std::string_view(lines));
  }
  std::vector<std::string> moved;
  std::vector<std::string> kept;
  for (const fs::path& path : checkpoint::set_aside_after(checkpoints, done, unreadable)) {
    (path.parent_path() == place ? moved : kept).push_back(path.filename().string());
    if (path.parent_path() != place) format::write_file_atomically(path.parent_path() / name, std::string_view(lines));
  }
  if (!kept.empty()) {
    say(fmt::format("note: checkpoints that cannot be read ({}) are moved to {}", fmt::join(kept, ", "),
                    (checkpoints / "unreadable").string()));
  }
  if (moved.empty()) return;
  tell(fmt::format("the run goes on after step {}, so newer checkpoints ({}) are moved to", done,
                   fmt::join(moved, ", ")));
}

// What the steps before a resume drew: the order is a function of seed, epoch and position.
void Trainer::Impl::dump_past_order() {
  const data::Sampler sampler({.size = loader->size(),
                               .global_batch = loader->global_batch(),
                               .shuffle = true,
                               .seed = static_cast<std::uint64_t>(config.train.seed)});
  for (std::int64_t past_epoch = 0, written = 0; written < done; ++past_epoch) {
    const data::Order indices = sampler.order(past_epoch);
    for (std::int64_t step = 0; step < sampler.steps() && written < done; ++step, ++written) {
      const data::Range range = sampler.positions(0, step);
      std::string line;
      for (std::int64_t at = range.begin; at < range.end; ++at) {
        line += fmt::format("{}{}", line.empty() ? "" : " ", indices[at]);
      }
      order->append(line + '\n');
    }
  }
}

void Trainer::Impl::make_progress() {
  if (!is_first()) return;
  if (found) say(fmt::format("going on after step {} from {}", done, found->path().string()));
  say(fmt::format("{}: {} ({}), {} {}, global batch {}, {} an epoch, files in {}", task.name(),
                  counted(world.size(), "rank"), world.backend(), loader->size(), task.kind_of_samples(),
                  loader->global_batch(), counted(loader->steps(), "step"), directory.string()));
  progress.emplace(ProgressOptions{.columns = options.columns,
                                   .log_every = config.train.log_every,
                                   .steps = total,
                                   .first_step = done,
                                   .epochs = epochs_to_see(),
                                   .write = options.write});
}

}  // namespace reigen::train
