// The training loop. The loop itself calls the objects that may skip a step or end the run. Objects that only observe
// the steps are Watchers, which the loop calls through one interface (watch/watcher.h).
#include "reigen/train/trainer.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "reigen/config/duration.h"
#include "reigen/tensor/compute_threads.h"
#include "reigen/tensor/gpu_work.h"
#include "train/files/best_checkpoints.h"
#include "train/files/checkpoints.h"
#include "train/files/outcome.h"
#include "train/files/run_files.h"
#include "train/files/step_lines.h"
#include "train/loop/ending.h"
#include "train/loop/evaluation.h"
#include "train/loop/late_steps.h"
#include "train/loop/losses.h"
#include "train/loop/manual_steps.h"
#include "train/loop/own_loss.h"
#include "train/loop/predictions.h"
#include "train/loop/step_graph.h"
#include "train/loop/validation.h"
#include "train/loop/wrong_label.h"
#include "train/model/device.h"
#include "train/model/divide_model.h"
#include "train/model/micro_batch.h"
#include "train/model/out_of_memory.h"
#include "train/model/trained_model.h"
#include "train/optimizer/own_optimizer.h"
#include "train/run/agree.h"
#include "train/run/callbacks.h"
#include "train/run/failure.h"
#include "train/run/run.h"
#include "train/run/step_times.h"
#include "train/start/fast_dev.h"
#include "train/start/resume.h"
#include "train/start/run_data.h"
#include "train/watch/board_watch.h"
#include "train/watch/device_times.h"
#include "train/watch/memory_watch.h"
#include "train/watch/not_finite.h"
#include "train/watch/replica_watch.h"
#include "train/watch/side_by_side.h"
#include "train/watch/trace_watch.h"

namespace reigen::train {

// The order of the members matters, because the constructor of a member takes members above it.
struct Trainer::Impl {
  Impl(Task& task, DataModule& its_data, Communicator world, TrainerOptions options)
      : run(task, its_data, std::move(world), std::move(options)) {}

  FitResult fit();
  void open();
  void begin();
  void begin_evaluation();
  template <class Body>
  auto evaluate(const Body& body);
  void begin_progress();
  bool train();
  void go_back();
  bool run_epoch(std::int64_t epoch);
  void step(const data::Batch& batch, double waited);
  void make_step(const data::Batch& batch, double waited);
  void make_manual_step(const data::Batch& batch, StepTime& time);
  void end_step(const Losses::Step& given, const OwnLoss& own, bool is_late, const data::Batch& batch, StepTime& time,
                const NamedValues& rates = {});
  OwnLoss forward_and_backward(const data::Batch& batch, StepTime& time);
  void judge(Losses::Step& step, double own, Optimization::Gradients& gradients, const data::Batch& batch);
  void pass_over(const data::Batch& batch, double waited);
  void end_phase(Phase ended) {
    for (Watcher* watcher : watchers) watcher->end_phase(ended);
  }

  FastDev fast_dev;  // its folder is removed last, when no file of it is open
  Run run;
  StepTimes times;
  Stopwatch cycle;  // runs from the end of a step to the end of the next step
  Stopwatch phase;

  RunFiles files{run};
  RunData data{run};
  TrainedModel model{run};
  StepLines lines{run.console};
  Outcome outcome{run.console};
  Callbacks callbacks{run};
  Checkpoints checkpoints{run, files, data, model, lines, callbacks, [this] { ending.give_up(); }};
  BestCheckpoints best{run, checkpoints};
  Losses losses{run, data, model, lines, callbacks};
  Evaluation evaluation{run, model};
  Validation validation{run, data, model, lines, callbacks, best};
  NotFinite not_finite{run, model, checkpoints, lines};
  DeviceTimes device_times{run, times};
  LateSteps late{run, model, losses, not_finite, device_times};
  StepGraph graph{run, data, model};
  MemoryWatch memory{run};
  ReplicaWatch replicas{run, model, checkpoints};
  SideBySide side_by_side{run, model};
  TraceWatch trace{run, files, model, device_times, outcome, cycle};
  Ending ending{run, files, data, model, lines, checkpoints, validation, best, memory, times, outcome};
  BoardWatch board{run, data, model, lines};
  std::vector<Watcher*> watchers = {&replicas, &trace, &device_times, &memory, &board};

  std::optional<c10::Stream> own_stream;
  bool is_open = false;
  bool computed = false;  // this step's forward and backward were made
};

Trainer::Trainer(Task& task, DataModule& data, Communicator world, TrainerOptions options)
    : impl_(std::make_unique<Impl>(task, data, std::move(world), std::move(options))) {}

Trainer::~Trainer() = default;

std::filesystem::path Trainer::save_checkpoint() { return impl_->checkpoints.save_now(); }

FitResult Trainer::fit() {
  try {
    return impl_->fit();
  } catch (const c10::OutOfMemoryError& error) {  // outside of a step: in a copy to the GPU or a validation
    impl_->callbacks.failed(first_line_of(error));
    throw Error(ExitCode::kOsResource,
                Report{.what = "out of memory of the GPU",
                       .got = first_line_of(error),
                       .fix = "parallel.shard parameters with several ranks, a smaller model, or in a task of your own "
                              "a smaller validation_batch()"});
  } catch (const std::exception& error) {
    impl_->callbacks.failed(error.what());
    throw;
  }
}

// Finds where this rank computes, once.
void Trainer::Impl::open() {
  if (std::exchange(is_open, true)) return;
  try {
    require_same(run.config, run.world);
    if (!run.config.train.max_time.empty()) {
      run.max_time =
          std::chrono::duration<double>(config::parse_duration("train.max_time", run.config.train.max_time).count);
    }
    if (run.config.run.find_lr && run.config.run.fast_dev == 0) {  // program/rate_sweep.h sets both
      throw InvalidArgument(Report{.what = "run.find_lr is for whole programs (train::run)", .fix = "leave it out"});
    }
    if (run.config.run.fast_dev > 0) fast_dev.begin(run);
    take_own_optimizer(run);
    run.device = device_of(run.config.train, run.world);
    open_mesh(run);
    graph.require_possible();
    callbacks.require_valid();
    trace.open();
  } catch (InvalidArgument& error) {
    error.mark_common();
    throw;
  }
  const c10::OptionalDeviceGuard on(run.device.is_cuda() ? std::optional(run.device) : std::nullopt);
  if (run.device.is_cuda()) tensor::separate_gpu_work(run.world);
  // A graph cannot be captured on the default stream, and everything that takes part must be on one stream.
  if (graph.is_wanted()) own_stream = c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).getNewStream(run.device);
  tensor::share_cores(run.world, static_cast<int>(run.config.train.threads));
}

FitResult Trainer::Impl::fit() {
  open();
  const PlaceOfRun place(run.config.train, run.device, own_stream);
  begin();
  FitResult result{.directory = files.directory()};
  result.already_done = files.found() != nullptr && run.done >= run.total;
  if (result.already_done) {
    run.say(validation.has_ended()
                ? fmt::format("{}: already finished: {} after step {}", run.name(), validation.why(), run.done)
                : fmt::format(
                      "{}: already finished: the checkpoint is of step {}, train.epochs and train.max_steps ask for {}",
                      run.name(), run.done, run.total));
  } else {
    begin_progress();
    callbacks.begin_fit();
    while (!train()) go_back();
  }
  result.steps = run.done;
  if (run.config.run.find_lr) return result;  // a sweep of learning rates keeps nothing
  result.stopped = run.stop && run.done < run.total;
  if (result.stopped) {
    if (run.config.run.fast_dev > 0) return result;
    if (checkpoints.saved() != run.done) ending.require_complete();  // else the run can be resumed
    run.say(fmt::format("stopped after step {} of {} as asked; checkpoint in {}", run.done, run.total,
                        checkpoints.folder().string()));
    const std::string directory = base::quote_shell(result.directory.string());
    const std::string& command = run.options.resume_command;
    run.say(
        fmt::format("go on with: {}{}--run.dir {} --run.resume true", command, command.empty() ? "" : " ", directory));
    return result;
  }
  if (!result.already_done || !ending.has_results()) ending.finish();
  lines.note_success(run.done);
  if (!result.already_done) callbacks.end_fit();
  result.validation = ending.figures();
  if (times.count() > 0) result.samples_per_s = static_cast<double>(data.samples_per_step()) / times.median_step();
  return result;
}

// ---- before the first step

void Trainer::Impl::begin() {
  if (model.is_made()) {  // by an evaluation before
    if (run.mesh) {
      throw common(InvalidArgument(Report{.what = "fit() after an evaluation, with a mesh",
                                          .got = "a model that is divided already",
                                          .fix = "make another Trainer, with a task of its own"}));
    }
    model.release();
  }
  files.find();
  data.open(files.found());
  trace.note_range();
  const checkpoint::Checkpoint* found = files.found();
  if (found != nullptr && run.rollbacks == 0)
    require_as_many_steps(run.config.train, run.total, run.done, files.directory());
  model.make({.from = found,
              .other_strategy = found != nullptr ? what_differs_in_strategy(*found, data.described()) : "",
              .global_batch = data.loader().global_batch(),
              .samples_per_step = data.samples_per_step()});
  side_by_side.open(data.loader().global_batch());
  checkpoints.begin();
  validation.begin(found);
  if (files.saves_initial() && model.gathers()) {
    require_room("the whole model, for run.save_initial,", model.whole_weights(), "leave run.save_initial out",
                 run.world, [&] { return available_on(run.device); });
    model.parallel().gather_weights();
  }
  std::vector<std::pair<std::string, std::string>> copied = run.task.files();
  if (run.config.mesh.pp > 1 && is_file(run.config.mesh.schedule))
    copied.emplace_back("schedule.txt", run.config.mesh.schedule);
  files.open({.drawn_by = data.loader().sampling(), .metadata = data.metadata(), .files = copied}, lines);
  if (run.done < run.total) best.bring_up_to_date();
  board.begin();
  if (run.rollbacks == 0 && run.done < run.total) checkpoints.look_at_room();
}

// Gives the model the weights of run.resume or run.weights, in the layout of the options.
void Trainer::Impl::begin_evaluation() {
  if (model.is_made()) return;
  if (wants_resume(run.config)) {
    files.find();
    if (files.found() == nullptr) {
      throw common(IoError(Report{.what = fmt::format("{}: there is no checkpoint to evaluate", run.config.run.resume),
                                  .got = files.directory().string(),
                                  .fix = "train first, or name weights with --run.weights PATH"},
                           ExitCode::kInputMissing));
    }
  }
  data.prepare();
  run.config.train.verify = 0;  // that is for trainings
  run.total = std::max<std::int64_t>(run.done, 1);
  model.make({.from = files.found(), .global_batch = run.options.batch_per_rank * run.data.size()});
}

template <class Body>
auto Trainer::Impl::evaluate(const Body& body) {
  const bool is_bare = !model.is_made() && !wants_resume(run.config) && run.config.run.weights.empty();
  if (is_bare) return body();
  open();
  const PlaceOfRun place(run.config.train, run.device, own_stream);
  begin_evaluation();
  return body();
}

void Trainer::Impl::begin_progress() {
  if (files.found() != nullptr) {
    run.say(fmt::format("going on after step {} from {}", run.done, files.found()->path().string()));
  }
  const data::Loader& loader = data.loader();
  const std::string engine = run.device.is_cpu() ? run.world.backend() : run.world.device_backend();
  run.say(fmt::format("{}: {} ({}{}), {} {}, global batch {}, {} an epoch, files in {}", run.name(),
                      base::counted(run.world.size(), "rank"), engine,
                      run.device.is_cpu() ? "" : " on " + run.device.str(), loader.size(),
                      run.data_module.kind_of_samples(), loader.global_batch(), base::counted(loader.steps(), "step"),
                      files.directory().string()));
  run.console.begin_progress({.log_every = run.config.train.log_every,
                              .steps = run.total,
                              .first_step = run.done,
                              .epochs = data.epochs_to_see()});
}

// ---- without training

Figures Trainer::validate() {
  return impl_->evaluate([&] { return impl_->validation.run(); });
}

Figures Trainer::test() {
  return impl_->evaluate([&] {
    const data::DatasetPtr data = impl_->data.open_for("test", [](DataModule& from) { return from.test(); });
    return impl_->evaluation.run(
        {.data = *data,
         .step = [&](const data::Samples& batch, bool /*counts*/) { impl_->run.task.test_step(batch); },
         .most = impl_->run.most_of_trial(),
         .max_bad = impl_->run.config.data.max_bad});
  });
}

std::vector<data::NamedTensor> Trainer::predict() {
  return impl_->evaluate([&] {
    const data::DatasetPtr data = impl_->data.open_for("predict", [](DataModule& from) { return from.predict(); });
    return predictions_of(impl_->run, impl_->evaluation, *data);
  });
}

// ---- the loop

// Returns false if the run is to go on from an earlier checkpoint.
bool Trainer::Impl::train() {
  run.task.module().train();
  const LogTo to(run.task, &run.metrics);
  checkpoints.prepare();
  if (run.validation_is_due && data.has_validation())
    validation.run_in_epoch(run.position > 0 ? run.epoch : run.epoch - 1);
  try {
    while (run.done < run.total && !run.stop) {
      if (run_epoch(run.epoch)) {
        run.epoch += 1;
        run.position = 0;
      }
    }
  } catch (const NotFinite::GoBack& step) {
    not_finite.go_back(step);
    return false;
  }
  side_by_side.close();
  device_times.finish();
  if (run.config.run.fast_dev == 0) ending.save_last();  // a sweep of learning rates sets fast_dev too
  trace.end_run();
  return true;
}

// Begins again from the checkpoint, as a resumed run does, but in the same processes and with the same group.
void Trainer::Impl::go_back() {
  run.config.run.dir = files.directory().string();
  late.drop();
  device_times.begin_again();
  run.metrics = Metrics();
  side_by_side.close();
  graph.drop();
  checkpoints.release();
  model.release();
  data.release();
  lines.close();
  ++run.rollbacks;
  begin();
  begin_progress();
}

// Returns false if the epoch was left before its end.
bool Trainer::Impl::run_epoch(std::int64_t epoch) {
  auto batches = data.loader().epoch(epoch, run.position);
  if (run.position == 0) callbacks.begin_epoch();
  Stopwatch wait;
  cycle.lap();
  while (data::Batch* batch = batches.next()) {
    if (not_finite.is_left_out(*batch))
      pass_over(*batch, wait.lap());
    else
      step(*batch, wait.lap());
    checkpoints.hear();
    const std::int64_t began = std::exchange(run.position, batch->position);
    const bool ended = run.position >= data.loader().size();
    if (run.ends && run.done < run.total) {
      run.total = run.done;
      run.say(fmt::format("the training ends after step {}: train.max_time {} is over", run.done,
                          run.config.train.max_time));
    }
    const InEpoch place{.epoch = epoch, .begin = began, .end = run.position};
    const bool due = checkpoints.is_due(place);
    const bool validates = validation.is_due(place);
    if (due || validates || ended || run.done == run.total || run.done % Losses::kTogether == 0) losses.add_up_late();
    if (due || validates || ended || run.done == run.total || run.stop) late.finish();
    if (ended) losses.end_epoch(epoch);
    // The validation after the last step is made at the end of the run, by Ending::finish(). A validation comes before
    // the checkpoint of its step, which notes whether the validation is still to be made, because the run is stopped.
    run.validation_is_due = validates && run.done < run.total;
    if (run.validation_is_due && !run.stop) {
      validation.run_in_epoch(epoch);
      cycle.lap();
    }
    if (due || run.stop) {
      const bool remembers = model.ranks_differ() || !model.parallel().strategy_state().empty();
      if (!due && run.done < run.total && remembers) {
        run.say(fmt::format(
            "note: to be saved, ranks were brought together after step {}, which strategy {} would not have "
            "done there: the run goes on from their mean",
            run.done, run.config.parallel.strategy.name));
      }
      // The last checkpoint is saved by Ending::save_last(), which may write the weights before it.
      if (run.done < run.total && !run.stop) checkpoints.save();
      cycle.lap();
    }
    if (ended) return true;
    if (run.done == run.total || run.stop) return false;
    wait.lap();
  }
  return true;
}

void Trainer::Impl::step(const data::Batch& batch, double waited) {
  computed = false;
  try {
    make_step(batch, waited);
  } catch (...) {
    for (Watcher* watcher : watchers) watcher->abandon_step();
    side_by_side.abandon();
    try {
      throw;
    } catch (const c10::OutOfMemoryError& error) {
      graph.drop();  // its memory could not be used for anything else
      throw out_of_memory(first_line_of(error), run, model, batch, computed);
    } catch (const c10::IndexError& error) {
      throw_if_wrong_label(error, batch.target, batch.indices, "the training data");
      throw;
    }
  }
}

void Trainer::Impl::make_step(const data::Batch& batch, double waited) {
  StepTime time{.data = waited};
  const bool is_verified = side_by_side.begin_step(batch);
  if (is_verified) cycle.lap();
  phase.lap();
  const auto lap = [&](Phase ended) {
    end_phase(ended);
    return phase.lap();
  };
  seed_step(run, run.done);
  for (Watcher* watcher : watchers) watcher->begin_step(run.done + 1, batch, waited);
  callbacks.begin_step(batch);
  end_phase(Phase::kData);
  model.parallel().number_step(run.done + 1);
  not_finite.begin_step();
  if (run.manual != nullptr) return make_manual_step(batch, time);
  const OwnLoss own = forward_and_backward(batch, time);
  computed = true;
  model.note_step();
  const double averaging = run.world.size() > 1 ? model.parallel().last_exposed_communication().count() : 0;
  time.exposed += averaging;
  time.backward -= averaging;
  const double met = model.seconds_met();
  if (is_verified) {
    side_by_side.before_optimizer(own.value(), batch.global_terms);
    phase.lap();
  }
  callbacks.after_backward();
  Optimization::Gradients gradients = model.optimization().look();
  time.optimizer = lap(Phase::kGradients);
  Losses::Step given;
  const bool is_late = model.optimization().reads_late();
  if (!is_late) {
    judge(given, own.value(), gradients, batch);
    // On a GPU this time is mostly that of waiting for backward, and not for other ranks.
    if (!model.ranks_differ()) (run.device.is_cuda() ? time.optimizer : time.exposed) += lap(Phase::kLoss);
  }
  if (given.skipped) {
    not_finite.skip();
  } else {
    callbacks.before_optimizer();
    gradients = model.optimization().step(run.done, gradients, model.ranks_differ() ? &run.world : nullptr);
    if (gradients.finite && gradients.stepped) model.optimizers().update_average();
    if (!gradients.finite) not_finite.meet_after_step(batch);
    given.grad_norm = gradients.norm;
    if (!is_late) not_finite.note_numbers(run.done + 1);
    model.parallel().after_step();
  }
  time.optimizer += lap(Phase::kOptimizer);
  // If ranks share weights, they wait for each other during the optimizer's step. This waiting time counts as
  // communication.
  const double meetings = model.seconds_met() - met;
  time.exposed += meetings;
  time.optimizer -= meetings;
  end_step(given, own, is_late, batch, time);
}

void Trainer::Impl::make_manual_step(const data::Batch& batch, StepTime& time) {
  const ManualStep step = train::make_manual_step(run, model, not_finite, callbacks, batch, time, [&](Phase ended) {
    end_phase(ended);
    return phase.lap();
  });
  model.note_step();
  Optimization::Gradients gradients;  // the steps have looked at them
  const double own = step.loss.value();
  const Losses::Step given{.loss = losses.add_up(own, gradients, batch), .grad_norm = step.grad_norm};
  time.exposed += phase.lap();
  if (!std::isfinite(given.loss)) {
    const double mean = batch.terms > 0 ? own / static_cast<double>(batch.terms) : 0;
    not_finite.meet_late({.step = run.done + 1, .loss = given.loss, .own = mean}, batch);
  }
  not_finite.note_numbers(run.done + 1);
  end_step(given, step.loss, false, batch, time, step.rates);
}

// Counts the step, and notes what it gave.
void Trainer::Impl::end_step(const Losses::Step& given, const OwnLoss& own, bool is_late, const data::Batch& batch,
                             StepTime& time, const NamedValues& rates) {
  time.step = cycle.lap();
  run.done += 1;
  side_by_side.end_step(given.skipped);
  if (times.count() == 0) ending.note_first_step();
  times.add(time, batch.global_count, batch.global_terms);
  Losses::Noted noted = losses.noted(given, batch, time);
  Metrics::Step logged = run.metrics.take();
  if (is_late) {
    late.add(std::move(noted), own, batch, std::move(logged));
  } else {
    NamedValues values = run.metrics.finish(std::move(logged), !given.skipped);
    values.insert(values.end(), rates.begin(), rates.end());
    losses.take_logged(noted, std::move(values));
    losses.note(std::move(noted));
    device_times.of(run.done - 1);
  }
  for (Watcher* watcher : watchers) watcher->end_step(run.done);
  callbacks.end_step();
}

// Sets the loss of `step`, and whether the step is to be skipped. `own` is the sum of this rank's losses over its
// terms.
void Trainer::Impl::judge(Losses::Step& step, double own, Optimization::Gradients& gradients,
                          const data::Batch& batch) {
  if (model.ranks_differ()) {
    step.loss = own;
    return not_finite.require_own(own, gradients, batch);
  }
  step.loss = losses.add_up(own, gradients, batch);
  step.skipped = !std::isfinite(step.loss) || !gradients.finite;
  if (step.skipped) {
    not_finite.meet(step.loss, gradients, batch, batch.terms > 0 ? own / static_cast<double>(batch.terms) : 0);
  }
}

OwnLoss Trainer::Impl::forward_and_backward(const data::Batch& batch, StepTime& time) {
  if (graph.takes(batch)) {
    OwnLoss sum = graph.run(batch);
    end_phase(Phase::kBackward);
    time.backward += phase.lap();
    return sum;
  }
  OwnLoss sum(run.device);
  if (model.pipeline()) {
    run_pipeline(
        run, model, batch.parts, [&](const at::Tensor& mean, std::int64_t terms) { sum.add(mean, terms); },
        [&] { memory.note_forward(); });
    end_phase(Phase::kBackward);
    const parallel::PipelineReport& report = model.pipeline().last();
    const double all = phase.lap();
    time.forward += report.forward;
    time.exposed += report.waiting;
    time.backward += all - report.forward - report.waiting;
    return sum;
  }
  for (std::size_t i = 0; i < batch.parts.size(); ++i) {
    const data::MicroBatch& part = batch.parts[i];
    std::optional<parallel::NoSync> only_adds_up;
    if (i + 1 < batch.parts.size()) only_adds_up.emplace(model.parallel().no_sync());
    model.parallel().prepare_forward();
    const at::Tensor mean = loss_of(run, part);
    sum.add(mean, part.terms);
    end_phase(Phase::kForward);
    time.forward += phase.lap();
    backward(model, mean, part);
    end_phase(Phase::kBackward);
    time.backward += phase.lap();
  }
  return sum;
}

void Trainer::Impl::pass_over(const data::Batch& batch, double waited) {
  run.done += 1;
  Losses::Noted noted = losses.noted({.loss = NAN, .skipped = true}, batch, {.step = cycle.lap(), .data = waited});
  if (model.optimization().reads_late())
    late.add_left_out(std::move(noted));
  else
    losses.note(std::move(noted));
}

}  // namespace reigen::train
