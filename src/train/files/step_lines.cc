#include "train/files/step_lines.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <map>
#include <utility>
#include <vector>

#include "reigen/base/error.h"
#include "reigen/config/command_line.h"

namespace reigen::train {
namespace {

using Curves = NamedValues;

// "test" and "test_loss" give "test/loss". TensorBoard shows what has the same first word in one group; a name with a
// slash of its own says its group itself.
std::string tag_of(const std::string& group, const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  const bool says_group = group == "test" && name.starts_with("test_");
  return group + "/" + (says_group ? name.substr(5) : name);
}

// A step's times, without its wall clock.
NamedValues times_of(const StepMetrics& m) {
  return {{"step_ms", m.step_ms},
          {"data_ms", m.data_ms},
          {"forward_ms", m.forward_ms},
          {"backward_ms", m.backward_ms},
          {"comm_exposed_ms", m.comm_exposed_ms},
          {"optimizer_ms", m.optimizer_ms}};
}

Curves curves_of(const StepMetrics& m) {
  Curves curves{{"train/loss", m.loss},
                {"train/epoch", static_cast<double>(m.epoch)},
                {"train/lr", m.lr},
                {"train/samples_per_s", m.samples_per_s}};
  for (const auto& [name, value] : times_of(m)) curves.emplace_back("time/" + name, value);
  if (m.grad_norm) curves.emplace_back("train/grad_norm", *m.grad_norm);
  for (const auto& [name, value] : m.logged) curves.emplace_back(tag_of("train", name), value);
  return curves;
}

Curves curves_of(const ValidationMetrics& m) {
  Curves curves;
  for (const auto& [name, value] : m.figures) curves.emplace_back(tag_of("test", name), value);
  return curves;
}

Curves curves_of(const EpochMetrics& m) {
  Curves curves;
  for (const auto& [name, value] : m.figures) curves.emplace_back(tag_of("epoch", name), value);
  return curves;
}

// The columns of a table. Its times are apart from the figures, behind them.
NamedValues columns_of(const StepMetrics& m) {
  NamedValues all{{"epoch", static_cast<double>(m.epoch)}, {"loss", m.loss}, {"lr", m.lr}};
  if (m.grad_norm) all.emplace_back("grad_norm", *m.grad_norm);
  all.insert(all.end(), m.logged.begin(), m.logged.end());
  all.emplace_back("samples_per_s", m.samples_per_s);
  const NamedValues times = times_of(m);
  all.insert(all.end(), times.begin(), times.end());
  all.emplace_back("time", m.time);
  return all;
}

NamedValues columns_of(const ValidationMetrics& m) {
  NamedValues all{{"epoch", static_cast<double>(m.epoch)}};
  all.insert(all.end(), m.figures.begin(), m.figures.end());
  all.emplace_back("test_samples", static_cast<double>(m.samples));
  all.emplace_back("time", m.time);
  return all;
}

NamedValues columns_of(const EpochMetrics& m) {
  NamedValues all{{"epoch", static_cast<double>(m.epoch)}};
  for (const auto& [name, value] : m.figures) all.emplace_back("epoch_" + name, value);
  all.emplace_back("time", m.time);
  return all;
}

// The options of the training, without those of this start (run.dir, for example).
std::map<std::string, format::HParam> hparams_of(Config config) {
  std::map<std::string, format::HParam> values;
  for (const Field& field : config::fields(config)) {
    if (field.section == "run" || field.section == "log" || field.is_unset()) continue;
    const std::string text = field.text();
    double number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (field.is_switch())
      values[field.name()] = text == "true";
    else if (!field.is_text() && error == std::errc() && end == text.data() + text.size())
      values[field.name()] = number;
    else
      values[field.name()] = text;
  }
  return values;
}

}  // namespace

// The order of the samples is a function of seed, epoch and position, so the order of earlier steps can be written
// again.
void StepLines::open_order(const std::filesystem::path& path, const data::SamplerOptions& drawn_by, std::int64_t done) {
  order_.emplace(path);
  const data::Sampler sampler(drawn_by);
  for (std::int64_t epoch = 0, written = 0; written < done; ++epoch) {
    const data::Order indices = sampler.order(epoch);
    for (std::int64_t step = 0; step < sampler.steps() && written < done; ++step, ++written) {
      const data::Range range = sampler.positions(0, step);
      std::string line;
      for (std::int64_t at = range.begin; at < range.end; ++at) {
        line += fmt::format("{}{}", line.empty() ? "" : " ", indices[at]);
      }
      order_->append(line + '\n');
    }
  }
}

void StepLines::open_metrics(const std::filesystem::path& path, std::int64_t done) { metrics_.emplace(path, done); }

void StepLines::open_board(const std::filesystem::path& directory, const Config& config, std::int64_t done) {
  try {
    // A run that begins anew has nothing to keep.
    board_ =
        std::make_unique<SummaryWriter>(directory, SummaryOptions{.keep_steps = done > 0 ? done : -1, .name = "run"});
  } catch (const Error& error) {
    return drop_board(error);
  }
  if (!board_->is_new()) return;
  write_board([&](SummaryWriter& board) {
    board.text("config", "```toml\n" + to_toml(config) + "```\n", 0);
    board.hparams(hparams_of(config), {"train/loss", "test/loss", "test/accuracy"});
  });
}

void StepLines::note_success(std::int64_t step) {
  write_board([&](SummaryWriter& board) { board.hparams_end(true, step); });
  flush_board();
}

// A run is worth more than its curves: an error is told, and the run goes on.
void StepLines::write_board(const std::function<void(SummaryWriter& board)>& body) {
  if (!board_) return;
  try {
    body(*board_);
  } catch (const Error& error) {
    drop_board(error);
  }
}

void StepLines::flush_board() {
  try {
    if (board_) board_->flush();
  } catch (const IoError&) {
    tell_trouble();  // the records are kept and tried again
  }
}

void StepLines::drop_board(const Error& error) {
  board_.reset();
  console_.say(fmt::format("warning: {}; TensorBoard gets nothing more of this run", error.what()));
}

void StepLines::close() {
  metrics_.reset();
  board_.reset();
  csv_.reset();
  order_.reset();
}

template <class Metrics>
void StepLines::write_all(const Metrics& metrics) {
  metrics_->write(metrics);
  write_board([&](SummaryWriter& board) { board.scalars(curves_of(metrics), metrics.step, metrics.time); });
  if (csv_) {
    try {
      csv_->write(metrics.step, columns_of(metrics));
    } catch (const Error& error) {
      drop_csv(error);
    }
  }
  tell_trouble();
}

void StepLines::write(const StepMetrics& metrics, const std::string& order) {
  if (!metrics_) return;
  if (order_) order_->append(order);
  write_all(metrics);
}

void StepLines::write(const ValidationMetrics& metrics) {
  if (metrics_) write_all(metrics);
}

void StepLines::write(const EpochMetrics& metrics) {
  if (metrics_) write_all(metrics);
}

void StepLines::open_csv(const std::filesystem::path& path, std::int64_t done) {
  try {
    csv_.emplace(path, done);
  } catch (const Error& error) {
    drop_csv(error);
  }
}

void StepLines::drop_csv(const Error& error) {
  csv_.reset();
  console_.say(fmt::format("warning: {}; metrics.csv gets nothing more of this run", error.what()));
}

// metrics.jsonl comes last: what it has, the other files have too, also if the process is killed here.
void StepLines::flush_others() {
  flush_board();
  try {
    if (csv_) csv_->flush();
  } catch (const IoError&) {
    tell_trouble();  // the rows are kept and tried again
  }
}

void StepLines::flush() {
  flush_others();
  if (metrics_) metrics_->flush();
  if (order_) order_->flush();
}

void StepLines::flush_what_can_be() {
  flush_others();
  try {
    if (metrics_) metrics_->flush();
  } catch (const IoError&) {
    tell_trouble();
  }
}

void StepLines::tell_trouble() {
  std::string trouble = metrics_->trouble();
  if (trouble.empty() && board_) trouble = board_->trouble();
  if (trouble.empty() && csv_) trouble = csv_->trouble();
  if (trouble == told_trouble_) return;
  told_trouble_ = trouble;
  if (!trouble.empty()) {
    console_.say(fmt::format("warning: {}; the lines are kept in memory and tried again", trouble));
  }
}

}  // namespace reigen::train
