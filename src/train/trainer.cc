#include "reigen/train/trainer.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/module.h>

#include <cmath>

#include "base/philox.h"
#include "train/agree.h"
#include "train/precision.h"
#include "train/resume.h"
#include "train/trainer_impl.h"

namespace reigen::train {

Trainer::Trainer(Task& task, Communicator world, TrainerOptions options)
    : impl_(std::make_unique<Impl>(task, std::move(world), std::move(options))) {}

Trainer::~Trainer() = default;

Scores Trainer::validate() { return impl_->validate(); }

FitResult Trainer::fit() {
  Impl& run = *impl_;
  try {
    require_same(run.config, run.world);
    if (!run.config.run.trace.empty()) run.trace.emplace(run.world, parse_step_range(run.config.run.trace));
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

// ---- the loop

void Trainer::Impl::train() {
  task.module().train();
  while (done < total && !stop) {
    if (run_epoch(epoch)) {
      epoch += 1;
      position = 0;
    }
  }
  save_last();
  if (trace && trace->has_steps()) write_trace();
}

// False when it was left before its end.
bool Trainer::Impl::run_epoch(std::int64_t number) {
  auto batches = loader->epoch(number, position);
  Stopwatch watch;
  cycle.lap();
  while (data::Batch* batch = batches.next()) {
    step(*batch, watch.lap());
    hear_of_saving();
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

// What the model draws (dropout) is a function of seed, rank and step, so nothing need be saved to go on. Ranks that
// are threads share one generator, which cannot be given to each.
void Trainer::Impl::seed_step() {
  if (config.run.ranks == "threads") return;
  const auto word = base::philox(static_cast<std::uint64_t>(config.train.seed), static_cast<std::uint64_t>(done),
                                 static_cast<std::uint64_t>(world.rank()));
  at::manual_seed((static_cast<std::uint64_t>(word[0]) << 32) | word[1]);
}

void Trainer::Impl::step(data::Batch& batch, double data_seconds) {
  StepTime time{.data = data_seconds};
  Stopwatch watch;
  seed_step();
  if (trace) {
    trace->begin(done + 1, data_seconds);
    trace->lap("data");
  }
  const auto lap = [&](const char* name) {
    if (trace) trace->lap(name);
    return watch.lap();
  };
  parallel->number_step(done + 1);
  parallel->prepare_forward();
  at::Tensor loss;
  {
    const auto autocast = compute_type(config.train.precision);
    loss = task.loss(batch.input, batch.target);
  }
  const auto mine = loss.item<double>();
  time.forward = lap("forward");
  if (batch.weight != 1) loss = loss * batch.weight;
  optimization->scaled(loss).backward();
  time.exposed = world.size() > 1 ? parallel->last_exposed_communication().count() : 0;
  time.backward = lap("backward") - time.exposed;
  const double global = add_up(mine, batch);
  time.exposed += lap("loss of all");
  const Optimization::Gradients gradients = checked_gradients(mine, batch);
  const auto norm = optimization->step(done, gradients, parallel->ranks_differ() ? &world : nullptr);
  parallel->after_step();
  time.optimizer = lap("optimizer");
  time.step = cycle.lap();
  if (trace) trace->end(*parallel);
  done += 1;
  if (times.count() == 0) first_step_s = process_age_seconds();
  times.add(time, batch.global_count);
  if (is_first()) record(batch, global, norm, time);
  if (trace && trace->is_due(done)) write_trace();
}

// The loss of the global batch; learns whether any rank wants to stop.
double Trainer::Impl::add_up(double loss, const data::Batch& batch) {
  const bool wants_stop = options.stop_requested && options.stop_requested();
  double sums[2] = {loss * static_cast<double>(batch.terms), wants_stop ? 1.0 : 0.0};
  if (batch.terms == 0) sums[0] = 0;  // a repeated sample, which counts on another rank
  if (world.size() > 1) world.all_reduce(sums, sums, 2, DataType::kFloat64, ReduceOp::kSum, {.tag = "loss"}).wait();
  stop = sums[1] > 0;
  const double global = sums[0] / static_cast<double>(batch.global_terms);
  if (!std::isfinite(global)) end_as_not_finite("loss", global, loss, batch);
  return global;
}

// Before they change a weight. Every rank has the same, or is told: all end.
Optimization::Gradients Trainer::Impl::checked_gradients(double loss, const data::Batch& batch) {
  Optimization::Gradients gradients = optimization->look();
  if (parallel->ranks_differ() && gradients.norm) {
    double largest = gradients.finite ? *gradients.norm : HUGE_VAL;
    world.all_reduce(&largest, &largest, 1, DataType::kFloat64, ReduceOp::kMax, {.tag = "largest norm"});
    if (!std::isfinite(largest)) gradients = {.norm = largest, .finite = false};
  }
  if (!gradients.finite) end_as_not_finite("gradient norm", *gradients.norm, loss, batch);
  return gradients;
}

// Every rank calls it in the same step.
void Trainer::Impl::end_as_not_finite(const char* what, double value, double loss, const data::Batch& batch) {
  const std::string whose = blame(loss, batch);
  if (metrics) metrics->flush();
  const std::string text = found || saved > 0 ? fmt::format("the checkpoint of step {} is whole: ", saved) : "";
  throw CommonError(ExitCode::kNotANumber,
                    Report{.what = fmt::format("the {} of step {} is not a finite number", what, done + 1),
                           .got = fmt::format("{} in epoch {}, samples {} to {}; {}", value, batch.epoch + 1,
                                              batch.position - batch.global_count + 1, batch.position, whose),
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

}  // namespace reigen::train
