#include "train/loop/validation.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/text.h"
#include "data/complete.h"
#include "reigen/base/error.h"
#include "reigen/data/sampler.h"
#include "train/model/device.h"
#include "train/model/precision.h"
#include "train/run/agree.h"

namespace reigen::train {

namespace {

constexpr std::int64_t kCallsTogether = 16;  // number of forwards between two checks for a request to stop

double figure_of(const std::vector<std::pair<std::string, double>>& figures, const std::string& name) {
  std::vector<std::string> known;
  for (const auto& [key, value] : figures) {
    if (key == name) return value;
    known.push_back(key);
  }
  const std::string near = base::nearest(name, known);
  throw common(InvalidArgument(Report{.what = "stop.monitor names no figure of the validation",
                                      .got = name,
                                      .expected = fmt::format("{}", fmt::join(known, ", ")),
                                      .fix = near.empty() ? "choose one of these" : "did you mean " + near + "?"}));
}

}  // namespace

Scores Validation::score_all(std::int64_t most, bool may_end) {
  data_.open_test();
  const std::int64_t samples = most > 0 ? std::min(most, data_.test().size()) : data_.test().size();
  const at::NoGradGuard no_grad;
  model_.settle();
  auto averaged = model_.is_made() ? model_.optimization().swap_in_average() : std::nullopt;
  torch::nn::Module& module = run_.task.module();
  const bool was_training = module.is_training();
  module.eval();
  const bool gathers = model_.gathers();
  if (gathers) model_.parallel().prepare_forward();
  const data::Range mine = data::share_of({0, samples}, run_.data.rank(), run_.data.size());
  Scores sum;
  const std::int64_t batch = run_.task.score_batch();
  const std::int64_t count = calls(samples);
  bool ends = false;
  const auto indices_of = [&](std::int64_t call) {
    const std::int64_t first = mine.begin + call * batch;
    std::vector<std::int64_t> indices;
    for (std::int64_t i = first; i < std::min(first + batch, mine.end); ++i) indices.push_back(i);
    return indices;
  };
  const auto add = [&](const Scores& scores) {
    sum.loss_sum += scores.loss_sum;
    if (scores.correct) sum.correct = sum.correct.value_or(0) + *scores.correct;
    sum.count += scores.count;
  };
  for (std::int64_t first = 0; first < count && !ends; first += kCallsTogether) {
    const std::int64_t calls = std::min(kCallsTogether, count - first);
    if (model_.pipeline()) {
      score_in_stages(first, calls, indices_of, add);
    } else {
      for (std::int64_t call = first; call < first + calls; ++call) {
        const std::vector<std::int64_t> indices = indices_of(call);
        if (!indices.empty()) {
          add(score_some(indices));
        } else if (gathers) {
          score_some({0});  // gathering is collective, so all ranks make the same number of forwards
        }
      }
    }
    const bool is_last = first + calls == count;  // after the last forward the score is complete, so it is used
    ends = may_end && !is_last && hears_of_stop();
  }
  module.train(was_training);
  if (averaged) averaged->end();
  // A rank without a sample does not know whether the task has an accuracy. The last of the four sums says whether it
  // has one.
  double sums[4] = {sum.loss_sum, static_cast<double>(sum.correct.value_or(0)), static_cast<double>(sum.count),
                    sum.correct ? 1.0 : 0.0};
  run_.world.all_reduce(sums, sums, 4, DataType::kFloat64, ReduceOp::kSum, {.tag = "validation"});
  const double copies = run_.copies();
  Scores all{.loss_sum = sums[0] / copies, .count = std::llround(sums[2] / copies)};
  if (sums[3] > 0) all.correct = std::llround(sums[1] / copies);
  return all;
}

bool Validation::hears_of_stop() {
  run_.stop = any_wishes_to_stop(run_.world, run_.wants_stop());
  return run_.stop;
}

data::Samples Validation::samples_of(const std::vector<std::int64_t>& indices) {
  const data::Dataset& test = data_.test();
  return samples_on(run_.device, data::complete(test.gather(indices), test, static_cast<std::int64_t>(indices.size())));
}

Scores Validation::score_some(const std::vector<std::int64_t>& indices) {
  const auto autocast = compute_type(run_.config.train.precision, run_.device);
  return run_.task.score_of(samples_of(indices));
}

// All ranks make the same number of forwards. A rank without samples runs one that does not count.
void Validation::score_in_stages(std::int64_t first, std::int64_t calls, const IndicesOf& indices_of,
                                 const std::function<void(const Scores&)>& add) {
  const auto samples = [&](int i) {
    const std::vector<std::int64_t> indices = indices_of(first + i);
    return samples_of(indices.empty() ? std::vector<std::int64_t>{0} : indices);
  };
  model_.pipeline().evaluate(model_.parallel(), static_cast<int>(calls),
                             {.input = [&](int i) { return run_.task.first_input(samples(i)); },
                              .loss =
                                  [&](int i) {
                                    const Scores scores = run_.task.score_of(samples(i));
                                    if (!indices_of(first + i).empty()) add(scores);
                                    return at::Tensor();
                                  },
                              .around =
                                  [&](schedule::Kind, int, const std::function<void()>& body) {
                                    const auto autocast = compute_type(run_.config.train.precision, run_.device);
                                    body();
                                  }});
}

// The number of forwards that the rank with the most samples makes.
std::int64_t Validation::calls(std::int64_t samples) const {
  const std::int64_t batch = run_.task.score_batch();
  std::int64_t most = 0;
  for (int rank = 0; rank < run_.data.size(); ++rank) {
    const data::Range one = data::share_of({0, samples}, rank, run_.data.size());
    most = std::max(most, (one.end - one.begin + batch - 1) / batch);
  }
  return most;
}

void Validation::begin(const checkpoint::Checkpoint* found) {
  cadence_.emplace(config::parse_duration("validate.every", run_.config.validate.every), data_.loader().size());
  early_stop_ = EarlyStop(run_.config.stop);
  why_.clear();
  if (early_stop_.is_on() && found != nullptr) remember(found->path().parent_path().parent_path() / "metrics.jsonl");
  if (has_ended() || run_.rollbacks > 0) return;
  const bool asks = early_stop_.is_on() && early_stop_.monitor() != "test_loss";
  const std::int64_t wanted = run_.done == 0 ? run_.config.validate.sanity : 0;
  const std::int64_t batches = std::max<std::int64_t>(wanted, asks ? 1 : 0);
  if (batches == 0) return;
  const Scores scores = score_all(batches * run_.task.score_batch() * run_.data.size(), false);
  if (early_stop_.is_on()) figure_of(figures_of(scores), early_stop_.monitor());  // throws if there is no such figure
  if (wanted > 0)
    run_.say(fmt::format("validation tried out on {} test samples: {}", scores.count, run_.task.describe(scores)));
}

bool Validation::is_due(const InEpoch& step) { return cadence_->is_due(run_.done, step, run_.world); }

void Validation::score_epoch(std::int64_t epoch) {
  const auto started = Progress::Clock::now();
  const bool is_whole = run_.position == data_.loader().size();
  if (model_.ranks_differ() && !is_whole && !std::exchange(told_mean_, true)) {
    run_.say(
        fmt::format("note: to be validated, ranks were brought together after step {}, which strategy {} would not "
                    "have done there: the run goes on from their mean",
                    run_.done, run_.config.parallel.strategy.name));
  }
  const Scores scores = score_all(run_.config.validate.limit, true);
  const std::string prefix = fmt::format("epoch {}/{}{}: ", epoch + 1, data_.epochs_to_see(),
                                         is_whole ? "" : fmt::format(", step {}", run_.done));
  if (run_.stop) return run_.say(prefix + "validation broken off");
  note(scores, epoch, false);
  run_.say(prefix + run_.task.describe(scores));
  if (early_stop_.is_on()) {
    early_stop_.note(figure_of(figures_of(scores), early_stop_.monitor()));
    judge();
    if (has_ended()) run_.say(fmt::format("the training ends after step {}: {}", run_.done, why_));
  }
  run_.console.exclude(Progress::Clock::now() - started);
}

// Rank 0 decides, so that all ranks end after the same step.
void Validation::judge() {
  const std::string reason = share_text(run_.world, early_stop_.reason());
  if (reason.empty()) return;
  why_ = reason;
  run_.total = run_.done;
}

// The validation at the end of a run has its own samples (validate.limit), and would not have been made if the run had
// been longer. So it does not count.
void Validation::remember(const std::filesystem::path& metrics) {
  std::vector<double> values;
  if (run_.is_first()) {
    std::ifstream in(metrics);
    for (std::string line; std::getline(in, line);) {
      const auto json = nlohmann::json::parse(line, nullptr, false);
      if (!json.is_object() || json.contains("loss") || json.contains("at_end")) continue;
      const auto step = json.find("step");
      if (step == json.end() || !step->is_number_integer() || step->get<std::int64_t>() > run_.done) continue;
      if (!json.contains(early_stop_.monitor())) continue;
      const auto& value = json[early_stop_.monitor()];
      values.push_back(value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN());
    }
  }
  auto count = static_cast<std::int64_t>(values.size());
  run_.world.broadcast(&count, 1, DataType::kInt64, 0, {.tag = "earlier validations"});
  values.resize(static_cast<std::size_t>(count));
  if (count > 0)
    run_.world.broadcast(values.data(), values.size(), DataType::kFloat64, 0, {.tag = "earlier validations"});
  for (const double value : values) {
    early_stop_.note(value);
    judge();
    if (has_ended()) return;
  }
}

// The figures of a validation, under their names in metrics.jsonl.
std::vector<std::pair<std::string, double>> Validation::figures_of(const Scores& scores) const {
  std::vector<std::pair<std::string, double>> all{{"test_loss", scores.loss()}};
  if (const auto accuracy = scores.accuracy()) all.emplace_back("test_accuracy", *accuracy);
  for (auto& figure : run_.task.more_figures(scores)) all.push_back(std::move(figure));
  return all;
}

void Validation::note(const Scores& scores, std::int64_t epoch, bool is_last) {
  if (!run_.is_first()) return;
  lines_.write({.step = run_.done,
                .epoch = epoch,
                .test_loss = scores.loss(),
                .test_accuracy = scores.accuracy(),
                .test_samples = scores.count,
                .more = run_.task.more_figures(scores),
                .at_end = is_last,
                .time = seconds_since_1970()});
}

}  // namespace reigen::train
