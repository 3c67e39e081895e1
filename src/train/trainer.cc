#include "reigen/train/trainer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/module.h>

#include <cmath>

#include "base/philox.h"
#include "base/text.h"
#include "reigen/nn/stand_in.h"
#include "reigen/tensor/compute_threads.h"
#include "tensor/counted_bytes.h"
#include "train/agree.h"
#include "train/precision.h"
#include "train/process_age.h"
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
  } catch (InvalidArgument& error) {
    error.mark_common();
    throw;
  }
  tensor::share_cores(run.world, static_cast<int>(run.config.train.threads));
  run.begin();
  FitResult result{.directory = run.directory};
  result.already_done = run.found.has_value() && run.done >= run.total;
  if (result.already_done) {
    run.say(
        fmt::format("{}: already finished: the checkpoint is of step {}, train.epochs and train.max_steps ask for {}",
                    run.task.name(), run.done, run.total));
  } else {
    run.make_progress();
    while (!run.train()) run.roll_back();
  }
  result.steps = run.done;
  result.stopped = run.stop && run.done < run.total;
  if (result.stopped) {
    if (run.saved != run.done) run.require_all_saved();  // else the run can go on, and all else was a warning
    run.say(fmt::format("stopped after step {} of {} as asked; checkpoint in {}", run.done, run.total,
                        (run.directory / "checkpoints").string()));
    run.say(fmt::format("go on with: {}",
                        run.options.resume_command.empty()
                            ? fmt::format("--run.dir {} --run.resume true", base::quote_shell(run.directory.string()))
                            : fmt::format("{} --run.dir {} --run.resume true", run.options.resume_command,
                                          base::quote_shell(run.directory.string()))));
    return result;
  }
  if (!result.already_done || !run.has_results()) run.finish();
  result.test = run.test.value_or(Scores{});
  result.samples_per_s =
      run.times.count() > 0 ? static_cast<double>(run.samples_per_step()) / run.times.median_step() : 0;
  return result;
}

// ---- the loop

namespace {

// A rank that may run ahead meets the others so often at most.
constexpr std::int64_t kLossesTogether = 16;

// Steps whose memory is counted: buckets are cut anew behind the first.
constexpr std::size_t kStepsCounted = 3;

}  // namespace

void Trainer::Impl::begin() {
  find_start();
  open_data();
  prepare_model();
  note_nan_at_start();
  prepare_files();
  if (rollbacks == 0 && done < total) look_at_room();
}

// False when it is to go on from a checkpoint.
bool Trainer::Impl::train() {
  task.module().train();
  prepare_saving();
  try {
    while (done < total && !stop) {
      if (run_epoch(epoch)) {
        epoch += 1;
        position = 0;
      }
    }
  } catch (const GivesNoNumber& step) {
    require_way_back(step);
    return false;
  }
  save_last();
  if (trace && trace->has_steps()) attempt("trace.json", [&] { write_trace(); });
  return true;
}

// False when it was left before its end.
bool Trainer::Impl::run_epoch(std::int64_t number) {
  auto batches = loader->epoch(number, position);
  Stopwatch watch;
  cycle.lap();
  while (data::Batch* batch = batches.next()) {
    if (is_left_out(*batch))
      pass_over(*batch, watch.lap());
    else
      step(*batch, watch.lap());
    hear_of_saving();
    position = batch->position;
    const bool ended = position >= loader->size();
    const bool due = config.checkpoint.every_steps > 0 && done % config.checkpoint.every_steps == 0;
    if (due || ended || done == total || done % kLossesTogether == 0) add_up_late();
    if (due || stop) {
      const bool remembers = parallel->ranks_differ() || !parallel->strategy_state().empty();
      if (!due && done < total && remembers) {
        say(fmt::format(
            "note: to be saved, ranks were brought together after step {}, which strategy {} would not have "
            "done there: the run goes on from their mean",
            done, config.parallel.strategy));
      }
      // The last one has its own rules.
      if (done < total && !stop) save_checkpoint();
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
  std::optional<tensor::CountedBytes> counted;
  if (times.count() < kStepsCounted) counted.emplace();
  note_buffers();
  double loss = 0;  // summed over the terms of this rank
  for (std::size_t i = 0; i < batch.parts.size(); ++i) {
    std::optional<parallel::NoSync> only_adds_up;
    if (i + 1 < batch.parts.size()) only_adds_up.emplace(parallel->no_sync());
    parallel->prepare_forward();
    const at::Tensor mean = loss_of(batch.parts[i]);
    if (batch.parts[i].terms > 0) loss += mean.item<double>() * static_cast<double>(batch.parts[i].terms);
    time.forward += lap("forward");
    if (counted) memory.activations = std::max(memory.activations, counted->live());
    backward(mean, batch.parts[i]);
    time.backward += lap("backward");
  }
  if (counted) memory.step = std::max(memory.step, counted->peak());
  counted.reset();
  settled = false;
  time.exposed = world.size() > 1 ? parallel->last_exposed_communication().count() : 0;
  time.backward -= time.exposed;
  const double met = seconds_met();
  Optimization::Gradients gradients = optimization->look();
  time.optimizer = lap("gradient norm");
  Made one{.loss = loss, .terms = batch.global_terms};
  if (losses_come_late()) {
    require_finite(loss, gradients, batch);
  } else {
    one.loss = add_up(loss, gradients, batch);
    one.skipped = !std::isfinite(one.loss) || !gradients.finite;
    if (one.skipped)
      meet_no_number(one.loss, gradients, batch, batch.terms > 0 ? loss / static_cast<double>(batch.terms) : 0);
    time.exposed += lap("loss of all");
  }
  if (one.skipped) {
    optimization->leave_out();
    take_buffers_back();
  } else {
    gradients = optimization->step(done, gradients, parallel->ranks_differ() ? &world : nullptr);
    if (!gradients.finite) meet_no_number_behind_step(batch);
    one.metrics.grad_norm = gradients.norm;
    note_numbers();
    parallel->after_step();
  }
  time.optimizer += lap("optimizer");
  // Where ranks share weights they meet in the middle of that.
  const double meetings = seconds_met() - met;
  time.exposed += meetings;
  time.optimizer -= meetings;
  time.step = cycle.lap();
  if (trace) trace->end(*parallel);
  done += 1;
  if (times.count() == 0) first_step_s = process_age_seconds();
  times.add(time, batch.global_count);
  note(std::move(one), batch, time);
  if (config.train.compare_every > 0 && done % config.train.compare_every == 0) compare_replicas();
  write_due_trace();
}

double Trainer::Impl::seconds_met() const {
  double sum = 0;
  for (const ParameterRange& range : parallel->parameters()) sum += range.sharing().seconds_met();
  return sum;
}

// The mean of a part of the batch.
at::Tensor Trainer::Impl::loss_of(const data::MicroBatch& part) {
  const auto autocast = compute_type(config.train.precision);
  std::optional<nn::StandIn> stand_in;
  if (part.count == 0) stand_in.emplace();
  return task.loss_of({part.input, part.target, part.inputs, part.targets});
}

void Trainer::Impl::backward(const at::Tensor& mean, const data::MicroBatch& part) {
  std::optional<nn::StandIn> stand_in;  // units may be computed again
  if (part.count == 0) stand_in.emplace();
  optimization->scaled(part.weight == 1 ? mean : mean * part.weight).backward();
}

}  // namespace reigen::train
