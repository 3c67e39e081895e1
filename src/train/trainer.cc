#include "reigen/train/trainer.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/philox.h"
#include "reigen/checkpoint/checkpoint.h"
#include "reigen/data/loader.h"
#include "reigen/data/sampler.h"
#include "reigen/format/atomic_file.h"
#include "reigen/parallel/data_parallel.h"
#include "reigen/tensor/data_type.h"
#include "reigen/train/metrics.h"
#include "train/activations.h"
#include "train/agree.h"
#include "train/line_file.h"
#include "train/optimization.h"
#include "train/precision.h"
#include "train/progress.h"
#include "train/report.h"
#include "train/resume.h"
#include "train/run_directory.h"
#include "train/step_times.h"
#include "train/strategy_of.h"
#include "train/verify_before_training.h"

namespace reigen::train {

namespace fs = std::filesystem;

namespace {

// In front of its tensors in a checkpoint; no module has such a name.
constexpr std::string_view kOfStrategy = "//strategy/";

}  // namespace

struct Trainer::Impl {
  Impl(Task& its_task, Communicator its_world, TrainerOptions its_options)
      : task(its_task), world(std::move(its_world)), options(std::move(its_options)), config(options.config) {
    if (!options.write) options.write = write_to_stdout;
  }

  bool is_first() const { return world.rank() == 0; }
  void say(const std::string& text) {
    if (!is_first()) return;
    if (progress)
      progress->line(text);
    else
      options.write(text + '\n');
  }

  void open_data();
  void open_test_data();
  void find_start();
  void prepare_model();
  void load_state(const std::vector<checkpoint::NamedTensor>& state);
  std::vector<checkpoint::NamedTensor> state() const;
  void settle();
  void prepare_files();
  void dump_past_order();
  void make_progress();
  std::int64_t samples_per_step() const { return std::min(loader->global_batch(), loader->size()); }
  std::int64_t epochs_to_see() const { return (total + loader->steps() - 1) / loader->steps(); }
  void train();
  bool run_epoch(std::int64_t epoch);
  void step(data::Batch& batch, double data_seconds);
  double add_up(double loss, const data::Batch& batch);
  Optimization::Gradients checked_gradients(const data::Batch& batch);
  [[noreturn]] void end_as_not_finite(const char* what, double value, const data::Batch& batch);
  void record(const data::Batch& batch, double loss, std::optional<double> grad_norm, const StepTime& time);
  void save_checkpoint();
  bool has_results();
  void finish();
  Scores validate();
  void validate_and_say(std::int64_t epoch);
  Summary summarize();

  Task& task;
  Communicator world;
  TrainerOptions options;
  Config config;

  std::optional<data::Loader> loader;
  data::DatasetPtr test_data;
  std::unique_ptr<nn::ActivationCheckpoint> activations;
  std::optional<parallel::DataParallelBase> parallel;
  std::optional<Optimization> optimization;
  std::vector<at::Tensor> weights;  // flat, for the check before a checkpoint
  std::map<std::string, std::string> described;

  // Where the run is.
  std::int64_t done = 0;      // steps
  std::int64_t total = 0;     // steps
  std::int64_t epoch = 0;     // of the next sample
  std::int64_t position = 0;  // in that epoch
  std::int64_t saved = -1;    // step of the newest checkpoint
  std::int64_t resumed_at = -1;
  bool stop = false;
  std::optional<checkpoint::Found> found;
  std::optional<Scores> test;

  // Rank 0 only, but for the path.
  fs::path directory;
  bool same_run = false;  // it holds the run that goes on
  std::optional<NewDirectory> made;
  std::optional<RunDirectory> held;
  std::optional<MetricsWriter> metrics;
  std::optional<LineFile> order;
  std::optional<Progress> progress;

  StepTimes times;
  Stopwatch cycle;
  double first_step_s = 0;
};

Trainer::Trainer(Task& task, Communicator world, TrainerOptions options)
    : impl_(std::make_unique<Impl>(task, std::move(world), std::move(options))) {}

Trainer::~Trainer() = default;

Scores Trainer::validate() { return impl_->validate(); }

FitResult Trainer::fit() {
  Impl& run = *impl_;
  try {
    require_same(run.config, run.world);
  } catch (const InvalidArgument& error) {
    throw CommonError(error.exit_code(), error.what());
  }
  if (run.config.train.threads > 0) at::set_num_threads(static_cast<int>(run.config.train.threads));
  run.find_start();
  run.open_data();
  run.prepare_model();
  run.prepare_files();
  FitResult result{.directory = run.directory};
  result.already_done = run.found.has_value() && run.done >= run.total;
  if (result.already_done) {
    run.say(
        fmt::format("{}: already finished: the checkpoint is of step {}, train.epochs and train.max_steps ask for {}",
                    run.task.name(), run.done, run.total));
  } else {
    run.make_progress();
    run.train();
  }
  result.steps = run.done;
  result.stopped = run.stop && run.done < run.total;
  if (result.stopped) {
    run.say(fmt::format("stopped after step {} of {} as asked; checkpoint in {}", run.done, run.total,
                        (run.directory / "checkpoints").string()));
    run.say(fmt::format("go on with: {}", run.options.resume_command.empty()
                                              ? fmt::format("--run.dir {} --run.resume true", run.directory.string())
                                              : fmt::format("{} --run.dir {} --run.resume true",
                                                            run.options.resume_command, run.directory.string())));
    return result;
  }
  if (!result.already_done || !run.has_results()) run.finish();
  result.test = run.test.value_or(Scores{});
  result.samples_per_s =
      run.times.count() > 0 ? static_cast<double>(run.samples_per_step()) / run.times.median_step() : 0;
  return result;
}

// ---- before the first step

void Trainer::Impl::find_start() {
  ResumePoint point{.run_directory = config.run.dir};
  if (wants_resume(config)) {
    together(world, "resume", [&] {
      if (is_first()) point = find_resume_point(config);
    });
  }
  const std::string path = share_text(world, point.checkpoint.string());
  if (is_first() && point.run_directory.empty()) {
    point.run_directory = default_run_directory(task.name());
    made.emplace(point.run_directory);
  }
  directory = share_text(world, point.run_directory.string());
  same_run = point.same_run;
  for (const std::string& note : point.notes) say(note);
  if (path.empty()) return;
  together(world, "checkpoint", [&] { found = checkpoint::open(path); });
  done = saved = resumed_at = found->manifest.step;
  epoch = found->manifest.epoch;
  position = found->manifest.position;
  if (!config.train.global_batch) config.train.global_batch = found->manifest.global_batch;
}

void Trainer::Impl::open_data() {
  std::vector<std::string> notes;
  together(world, "training data", [&] {
    data::LoaderOptions choice{.shuffle = true,
                               .seed = static_cast<std::uint64_t>(config.train.seed),
                               .limit = config.data.limit,
                               .workers = static_cast<int>(config.data.workers)};
    if (config.train.global_batch)
      choice.global_batch = config.train.global_batch;
    else
      choice.batch_size = options.batch_per_rank;
    loader.emplace(task.training_data(), choice, world);
    described = options_of(config, task.name(), loader->size());
    if (found) notes = require_compatible(*found, described, config.train.global_batch);
  });
  // Now and not after the first epoch, so that a damaged file costs no training.
  open_test_data();
  for (const std::string& note : notes) say("note: " + note);
  total = config.train.epochs * loader->steps();
  if (config.train.max_steps > 0) total = std::min(total, config.train.max_steps);
}

void Trainer::Impl::open_test_data() {
  if (test_data) return;
  together(world, "test data", [&] { test_data = task.test_data(); });
}

void Trainer::Impl::prepare_model() {
  together(world, "model", [&] {
    if (found)
      checkpoint::read_model_into(*found, checkpoint::tensors_of(task.module()));
    else
      task.initialize(static_cast<std::uint64_t>(config.train.seed));
  });
  activations = checkpoint_activations(task, config.train.activation_checkpoint);
  if (config.train.verify > 0) say(verify_before_training(task, config, samples_per_step(), world));
  try {
    parallel.emplace(task.module(), world, data_parallel_options(config.parallel));
    optimization.emplace(config, parallel->parameters(),
                         RunLength{.total_steps = total, .global_batch = loader->global_batch()});
  } catch (const InvalidArgument& error) {
    // Models and options were compared: every rank throws it.
    throw CommonError(error.exit_code(), error.what());
  }
  for (const ParameterRange& range : parallel->parameters()) weights.push_back(range.values());
  if (!found) return;
  together(world, "optimizer", [&] { load_state(checkpoint::read_optimizer(*found)); });
}

void Trainer::Impl::load_state(const std::vector<checkpoint::NamedTensor>& state) {
  std::vector<checkpoint::NamedTensor> of_optimization;
  std::map<std::string, at::Tensor> of_strategy;
  for (const auto& [name, tensor] : state) {
    if (name.starts_with(kOfStrategy))
      of_strategy[name.substr(kOfStrategy.size())] = tensor;
    else
      of_optimization.push_back({name, tensor});
  }
  optimization->load_state(of_optimization, found->manifest.optimizer_steps);
  const bool goes_on = !of_strategy.empty() && world.size() > 1 && has_same_strategy(*found, described);
  if (goes_on) parallel->load_strategy_state(of_strategy);
}

std::vector<checkpoint::NamedTensor> Trainer::Impl::state() const {
  std::vector<checkpoint::NamedTensor> tensors = optimization->state();
  for (const auto& [name, tensor] : parallel->strategy_state()) {
    tensors.push_back({std::string(kOfStrategy) + name, tensor});
  }
  return tensors;
}

// One model and one state of the optimizer on all ranks, in the middle of a run: the mean where they differ.
void Trainer::Impl::settle() {
  if (!parallel) return;
  parallel->settle();
  if (!parallel->ranks_differ()) return;
  const at::NoGradGuard no_grad;
  for (const checkpoint::NamedTensor& item : optimization->state()) {
    if (!item.tensor.is_floating_point() || item.tensor.numel() == 0) continue;
    const bool counts = item.name.ends_with(".step");
    world.all_reduce(item.tensor.const_data_ptr(), item.tensor.mutable_data_ptr(),
                     static_cast<std::size_t>(item.tensor.numel()), tensor::to_data_type(item.tensor.scalar_type()),
                     counts ? ReduceOp::kMax : ReduceOp::kAvg, {.tag = "optimizer state"});
  }
}

void Trainer::Impl::prepare_files() {
  together(world, "run directory", [&] {
    if (!is_first()) return;
    std::error_code ignored;
    if (!fs::exists(directory, ignored)) made.emplace(directory);
    held.emplace(directory, same_run);
    if (!config.data.dump_order.empty()) order.emplace(config.data.dump_order);
    if (order) dump_past_order();
    if (found && done >= total) return;  // nothing is to be done: nothing is to change
    Config resolved = config;
    resolved.run.dir = directory.string();
    resolved.run.resume.clear();  // of this start, not of the run
    format::write_file_atomically(directory / "config.toml", std::string_view(to_toml(resolved)));
    // An older checkpoint that goes on replaces the future that was: a later resume must not come back to it.
    if (found && fs::equivalent(found->path.parent_path(), directory / "checkpoints", ignored)) {
      checkpoint::drop_after(directory / "checkpoints", done);
    }
    metrics.emplace(directory / "metrics.jsonl", done);
    if (config.run.save_initial && !found) {
      checkpoint::write_tensors(directory / "initial.safetensors", checkpoint::tensors_of(task.module()));
    }
  });
  if (made) made->keep();
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
  if (found) say(fmt::format("going on after step {} from {}", done, found->path.string()));
  say(fmt::format("{}: {} {} ({}), {} {}, global batch {}, {} steps an epoch, files in {}", task.name(), world.size(),
                  world.size() == 1 ? "rank" : "ranks", world.backend(), loader->size(), task.kind_of_samples(),
                  loader->global_batch(), loader->steps(), directory.string()));
  progress.emplace(ProgressOptions{.columns = options.columns,
                                   .log_every = config.train.log_every,
                                   .steps = total,
                                   .first_step = done,
                                   .epochs = epochs_to_see(),
                                   .write = options.write});
}

// ---- the loop

void Trainer::Impl::train() {
  task.module().train();
  while (done < total && !stop) {
    if (run_epoch(epoch)) {
      epoch += 1;
      position = 0;
    }
  }
  if (saved != done) save_checkpoint();
}

// False when it was left before its end.
bool Trainer::Impl::run_epoch(std::int64_t number) {
  auto batches = loader->epoch(number, position);
  Stopwatch watch;
  cycle.lap();
  while (data::Batch* batch = batches.next()) {
    step(*batch, watch.lap());
    position = batch->position;
    const bool ended = position >= loader->size();
    const bool due = config.checkpoint.every_steps > 0 && done % config.checkpoint.every_steps == 0;
    if (due || stop) {
      save_checkpoint();
      cycle.lap();
    }
    if (ended) {
      // The last epoch's validation belongs to the end of the run.
      if (done < total && !stop) validate_and_say(number);
      return true;
    }
    if (done == total || stop) return false;
    watch.lap();
  }
  return true;
}

void Trainer::Impl::step(data::Batch& batch, double data_seconds) {
  StepTime time{.data = data_seconds};
  Stopwatch watch;
  // What the model draws (dropout) is a function of seed, rank and step, so nothing need be saved to go on. Ranks that
  // are threads share one generator, which cannot be given to each.
  if (config.run.ranks != "threads") {
    const auto word = base::philox(static_cast<std::uint64_t>(config.train.seed), static_cast<std::uint64_t>(done),
                                   static_cast<std::uint64_t>(world.rank()));
    at::manual_seed((static_cast<std::uint64_t>(word[0]) << 32) | word[1]);
  }
  parallel->prepare_forward();
  at::Tensor loss;
  {
    const auto autocast = compute_type(config.train.precision);
    loss = task.loss(batch.input, batch.target);
  }
  const auto mine = loss.item<double>();
  time.forward = watch.lap();
  if (batch.weight != 1) loss = loss * batch.weight;
  optimization->scaled(loss).backward();
  time.exposed = world.size() > 1 ? parallel->last_exposed_communication().count() : 0;
  time.backward = watch.lap() - time.exposed;
  const double global = add_up(mine, batch);
  time.exposed += watch.lap();
  const Optimization::Gradients gradients = checked_gradients(batch);
  const auto norm = optimization->step(done, gradients, parallel->ranks_differ() ? &world : nullptr);
  parallel->after_step();
  time.optimizer = watch.lap();
  time.step = cycle.lap();
  done += 1;
  if (times.count() == 0) first_step_s = process_age_seconds();
  times.add(time, batch.global_count);
  if (is_first()) record(batch, global, norm, time);
}

// The loss of the global batch; learns whether any rank wants to stop.
double Trainer::Impl::add_up(double loss, const data::Batch& batch) {
  const bool wants_stop = options.stop_requested && options.stop_requested();
  double sums[2] = {loss * static_cast<double>(batch.terms), wants_stop ? 1.0 : 0.0};
  if (batch.terms == 0) sums[0] = 0;  // a repeated sample, which counts on another rank
  if (world.size() > 1) world.all_reduce(sums, sums, 2, DataType::kFloat64, ReduceOp::kSum, {.tag = "loss"}).wait();
  stop = sums[1] > 0;
  const double global = sums[0] / static_cast<double>(batch.global_terms);
  if (!std::isfinite(global)) end_as_not_finite("loss", global, batch);
  return global;
}

// Before they change a weight. Every rank has the same, or is told: all end.
Optimization::Gradients Trainer::Impl::checked_gradients(const data::Batch& batch) {
  Optimization::Gradients gradients = optimization->look();
  if (parallel->ranks_differ() && gradients.norm) {
    double largest = gradients.finite ? *gradients.norm : HUGE_VAL;
    world.all_reduce(&largest, &largest, 1, DataType::kFloat64, ReduceOp::kMax, {.tag = "largest norm"});
    if (!std::isfinite(largest)) gradients = {.norm = largest, .finite = false};
  }
  if (!gradients.finite) end_as_not_finite("gradient norm", *gradients.norm, batch);
  return gradients;
}

void Trainer::Impl::end_as_not_finite(const char* what, double value, const data::Batch& batch) {
  if (metrics) metrics->flush();
  const std::string text = found || saved > 0 ? fmt::format("the checkpoint of step {} is whole: ", saved) : "";
  throw CommonError(ExitCode::kNotANumber,
                    Report{.what = fmt::format("the {} of step {} is not a finite number", what, done + 1),
                           .got = fmt::format("{} in epoch {}, samples {} to {}", value, batch.epoch + 1,
                                              batch.position - batch.global_count + 1, batch.position),
                           .expected = "a finite number",
                           .fix = fmt::format("{}go on with a smaller optim.lr (now {}), or look at the data", text,
                                              optimization->lr())});
}

void Trainer::Impl::record(const data::Batch& batch, double loss, std::optional<double> grad_norm,
                           const StepTime& time) {
  const double rate = static_cast<double>(batch.global_count) / time.step;
  metrics->write({.step = done,
                  .epoch = batch.epoch,
                  .loss = loss,
                  .lr = optimization->lr(),
                  .samples_per_s = rate,
                  .step_ms = time.step * 1e3,
                  .data_ms = time.data * 1e3,
                  .forward_ms = time.forward * 1e3,
                  .backward_ms = time.backward * 1e3,
                  .comm_exposed_ms = time.exposed * 1e3,
                  .optimizer_ms = time.optimizer * 1e3,
                  .grad_norm = grad_norm});
  if (order) order->append(fmt::format("{}\n", fmt::join(loader->global_indices(batch), " ")));
  progress->step(done, batch.epoch, loss, rate);
}

// ---- what is kept

void Trainer::Impl::save_checkpoint() {
  const bool ended = position >= loader->size();
  settle();
  together(world, "checkpoint", [&] {
    if (!is_first()) return;
    for (const at::Tensor& flat : weights) {
      if (std::isfinite(flat.sum(at::kDouble).item<double>())) continue;
      throw Error(ExitCode::kNotANumber,
                  Report{.what = fmt::format("the weights after step {} are not finite: no checkpoint of them", done),
                         .fix = "use a smaller optim.lr"});
    }
    metrics->flush();
    if (order) order->flush();
    const fs::path checkpoints = directory / "checkpoints";
    if (saved == resumed_at && resumed_at >= 0) checkpoint::drop_after(checkpoints, resumed_at);
    checkpoint::save(checkpoints,
                     {.step = done,
                      .epoch = ended ? epoch + 1 : epoch,
                      .position = ended ? 0 : position,
                      .global_batch = loader->global_batch(),
                      .seed = config.train.seed,
                      .world_size = world.size(),
                      .optimizer_steps = optimization->steps(),
                      .options = described},
                     {checkpoint::tensors_of(task.module()), state()}, config.checkpoint.keep);
  });
  saved = done;
}

Scores Trainer::Impl::validate() {
  open_test_data();
  const at::NoGradGuard no_grad;
  settle();
  const auto averaged = optimization ? optimization->swap_in_average() : std::nullopt;
  const bool was_training = task.module().is_training();
  task.module().eval();
  const data::Range mine = data::share_of({0, test_data->size()}, world.rank(), world.size());
  Scores sum;
  const std::int64_t batch = task.score_batch();
  for (std::int64_t first = mine.begin; first < mine.end; first += batch) {
    std::vector<std::int64_t> indices;
    for (std::int64_t i = first; i < std::min(first + batch, mine.end); ++i) indices.push_back(i);
    const data::Samples samples = test_data->gather(indices);
    const auto autocast = compute_type(config.train.precision);
    const Scores scores = task.score(samples.input, samples.target);
    sum.loss_sum += scores.loss_sum;
    sum.correct += scores.correct;
    sum.count += scores.count;
  }
  task.module().train(was_training);
  double sums[3] = {sum.loss_sum, static_cast<double>(sum.correct), static_cast<double>(sum.count)};
  world.all_reduce(sums, sums, 3, DataType::kFloat64, ReduceOp::kSum, {.tag = "validation"}).wait();
  return {.loss_sum = sums[0], .correct = std::llround(sums[1]), .count = std::llround(sums[2])};
}

void Trainer::Impl::validate_and_say(std::int64_t number) {
  const auto started = Progress::Clock::now();
  test = validate();
  say(fmt::format("epoch {}/{}: {}", number + 1, epochs_to_see(), task.describe(*test)));
  if (progress) progress->exclude(Progress::Clock::now() - started);
  cycle.lap();
}

Summary Trainer::Impl::summarize() {
  Summary summary{.task = task.name(),
                  .backend = world.backend(),
                  .precision = config.train.precision,
                  .strategy = config.parallel.strategy,
                  .world_size = world.size(),
                  .bytes_given = parallel ? parallel->bytes_given() : 0,
                  .steps = done,
                  .first_step = done - static_cast<std::int64_t>(times.count()),
                  .epochs = config.train.epochs,
                  .global_batch = loader->global_batch(),
                  .samples_per_step = samples_per_step(),
                  .test = *test,
                  .test_text = task.describe(*test),
                  .test_figures = task.more_figures(*test),
                  .mean = times.mean(),
                  .first_step_s = first_step_s,
                  .wall_s = process_age_seconds(),
                  .directory = directory};
  if (times.count() > 0) {
    summary.samples_per_s = static_cast<double>(samples_per_step()) / times.median_step();
    summary.samples_per_s_overall = times.overall_samples_per_s();
  }
  const std::int64_t peak = peak_memory_bytes();
  summary.peak_rss_bytes.resize(static_cast<std::size_t>(world.size()));
  world.all_gather(&peak, summary.peak_rss_bytes.data(), 1, DataType::kInt64, {.tag = "peak memory"}).wait();
  return summary;
}

// Of this step or a later one; rank 0 looks for all.
bool Trainer::Impl::has_results() {
  const bool there = is_first() && steps_of_summary(directory / "summary.json") >= done;
  return !share_text(world, there ? "yes" : "").empty();
}

void Trainer::Impl::finish() {
  test = validate();
  const Summary summary = summarize();
  together(world, "results", [&] {
    if (!is_first()) return;
    if (metrics) metrics->flush();
    if (order) order->flush();
    checkpoint::write_tensors(directory / "model.safetensors", checkpoint::tensors_of(task.module()));
    if (optimization->has_average()) {
      const auto averaged = optimization->swap_in_average();
      checkpoint::write_tensors(directory / "model_ema.safetensors", checkpoint::tensors_of(task.module()));
    }
    format::write_file_atomically(directory / "summary.json", std::string_view(to_json(summary)));
  });
  std::string text = to_text(summary);
  text.pop_back();
  say(text);
  if (!is_first()) return;
  const at::NoGradGuard no_grad;
  task.module().eval();
  const std::string words = task.closing_words();
  if (!words.empty()) say(words);
}

}  // namespace reigen::train
