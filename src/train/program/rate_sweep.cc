#include "train/program/rate_sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "base/text.h"
#include "reigen/base/error.h"
#include "reigen/train/summary_writer.h"
#include "train/files/run_directory.h"
#include "train/model/first_weights.h"
#include "train/optimizer/learning_rate.h"
#include "train/run/agree.h"

namespace reigen::train {

namespace {

constexpr double kKept = 0.95;  // of the smoothed loss, in each step

// Training data alone: a sweep does not validate.
struct TrainingAlone final : DataModule {
  explicit TrainingAlone(DataModule& its_data) : data(its_data) {}
  void prepare() override { data.prepare(); }
  void setup() override { data.setup(); }
  data::DatasetPtr training() override { return data.training(); }
  std::string kind_of_samples() const override { return data.kind_of_samples(); }
  DataModule& data;
};

struct Noting final : Callback {
  Noting(RateSweep& its_sweep, std::function<double(std::int64_t)> its_rate, const RateSweepOptions& its_options)
      : sweep(its_sweep), rate(std::move(its_rate)), options(its_options) {}
  std::string name() const override { return "find_lr"; }
  // The loss over all ranks is the same on each, so all end in the same step. Later steps are under way on a GPU.
  void note_loss(Moment& moment, std::int64_t step, double loss) override {
    if (!has_ended) has_ended = !note(sweep, rate(step - 1), loss, options);
    moment.stop |= has_ended;
  }
  RateSweep& sweep;
  const std::function<double(std::int64_t)> rate;
  const RateSweepOptions options;
  bool has_ended = false;
};

// How many times optim.lr the learning rate is (optim.lr_scaling).
double scale_of(const TrainerOptions& options, int ranks) {
  const config::MeshConfig& mesh = options.config.mesh;
  const std::int64_t batch =
      options.config.train.global_batch.value_or(options.batch_per_rank * ranks / (mesh.tp * mesh.cp * mesh.pp));
  OptimConfig one = options.config.optim;
  one.lr = 1;
  one.schedule = {};
  return LearningRate(one, {.global_batch = batch}).peak();
}

Config config_of_sweep(Config config, std::int64_t steps) {
  config.run = {.find_lr = true,
                .weights = config.run.weights.empty() ? "" : weights_path_of(config.run),
                .strict = config.run.strict,
                .fast_dev = steps};
  config.train.not_finite = "skip";  // the sweep ends with it
  config.parallel.strategy = {};     // a strategy that keeps errors cannot skip a step
  config.train.verify = 0;
  config.train.max_time.clear();
  config.optim.schedule = {};
  config.optim.warmup.clear();
  config.optim.warmup_steps = 0;
  config.optim.warmup_from.reset();
  config.optim.ema_decay = 0;
  config.data.dump_order.clear();
  return config;
}

}  // namespace

std::size_t RateSweep::lowest() const {
  const auto less = [](const Step& a, const Step& b) { return a.smoothed < b.smoothed; };
  const auto from = steps.begin() + static_cast<std::ptrdiff_t>(settled());
  return static_cast<std::size_t>(std::min_element(from, steps.end(), less) - steps.begin());
}

std::optional<double> RateSweep::suggestion() const {
  std::optional<double> best;
  double steepest = 0;
  const std::size_t last = lowest();
  for (std::size_t i = settled() + 1; i + 1 < steps.size() && i <= last; ++i) {
    const double slope = steps[i + 1].smoothed - steps[i - 1].smoothed;
    if (slope < steepest) {
      steepest = slope;
      best = steps[i].rate;
    }
  }
  return best;
}

bool note(RateSweep& sweep, double rate, double loss, const RateSweepOptions& options) {
  if (!std::isfinite(loss)) return false;
  const double count = static_cast<double>(sweep.steps.size());
  // The mean of the losses so far, with the weights 1, 0.95, 0.95^2, ... from the newest back.
  const double before = (1 - std::pow(kKept, count)) / (1 - kKept);
  const double smoothed =
      count == 0 ? loss : (loss + kKept * before * sweep.steps.back().smoothed) / (1 + kKept * before);
  sweep.steps.push_back({.rate = rate, .loss = loss, .smoothed = smoothed});
  const double least = sweep.steps[sweep.lowest()].smoothed;
  return smoothed <= least + (options.ends_at - 1) * std::abs(least);
}

RateSweep sweep_rates(Task& task, DataModule& data, const Communicator& world, TrainerOptions options,
                      const RateSweepOptions& sweep) {
  RateSweep found;
  options.config = config_of_sweep(std::move(options.config), sweep.steps);
  options.rate = [sweep](std::int64_t step) {
    const double part = static_cast<double>(step) / static_cast<double>(sweep.steps - 1);
    return sweep.lowest * std::pow(sweep.highest / sweep.lowest, part);
  };
  const auto noting = std::make_shared<Noting>(found, options.rate, sweep);
  options.callbacks = {noting};
  options.write = [](const std::string& /*text*/) {};
  options.make_task = {};
  TrainingAlone training(data);
  const FitResult result = Trainer(task, training, world, std::move(options)).fit();
  found.is_stopped = result.steps < sweep.steps && !noting->has_ended;
  return found;
}

std::string to_text(const RateSweep& sweep, double scale, const std::string& suggests) {
  if (sweep.steps.empty()) return "no suggestion: the loss of the first step is not finite\n";
  std::string text = "learning rate      loss  smoothed\n";
  const std::size_t count = sweep.steps.size();
  constexpr std::size_t kRows = 20;
  const std::size_t stride = std::max<std::size_t>(1, (count + kRows - 1) / kRows);
  for (std::size_t i = 0; i < count; i += stride) {
    const RateSweep::Step& step = sweep.steps[i];
    text += fmt::format("{:>13.3g} {:>9.4g} {:>9.4g}\n", step.rate / scale, step.loss, step.smoothed);
  }
  const std::optional<double> suggestion = sweep.suggestion();
  if (!suggestion) {
    return text +
           "no suggestion: the loss falls at none of these rates; look at the model and its data, or try a larger "
           "batch\n";
  }
  const RateSweep::Step& lowest = sweep.steps[sweep.lowest()];
  return text + fmt::format("suggestion: {} {:.2g}, where the loss falls fastest; it is lowest at {:.2g}\n", suggests,
                            *suggestion / scale, lowest.rate / scale);
}

int find_rate(Task& task, DataModule& data, const Communicator& world, const TrainerOptions& options) {
  if (world.rank() == 0)
    fmt::print("{}: finding a learning rate, up to {} steps\n", options.name, RateSweepOptions().steps);
  std::fflush(stdout);
  const RateSweep sweep = sweep_rates(task, data, world, options);
  if (sweep.is_stopped) return static_cast<int>(ExitCode::kStopped);
  together(world, "curve of learning rates", [&] {
    if (world.rank() != 0) return;
    // A task that chooses its optimizer need not read optim.lr, and its rate is not scaled.
    const bool is_own = task.configure_optimizers(options.config).has_value();
    fmt::print("{}", is_own ? to_text(sweep, 1, "a rate of") : to_text(sweep, scale_of(options, world.size())));
    MadeHere made;
    std::filesystem::path folder = options.config.run.dir;
    if (folder.empty()) folder = default_run_directory(options.name, made);
    write_board(sweep, folder / "find_lr");
    made.keep();
    fmt::print("curve: tensorboard --logdir {}\n", base::quote_shell((folder / "find_lr").string()));
  });
  return 0;
}

void write_board(const RateSweep& sweep, const std::filesystem::path& folder) {
  SummaryWriter board(folder, {.name = "find_lr"});
  for (std::size_t i = 0; i < sweep.steps.size(); ++i) {
    const RateSweep::Step& step = sweep.steps[i];
    board.scalars({{"find_lr/loss", step.loss}, {"find_lr/smoothed_loss", step.smoothed}, {"find_lr/rate", step.rate}},
                  static_cast<std::int64_t>(i + 1));
  }
  board.flush();
}

}  // namespace reigen::train
