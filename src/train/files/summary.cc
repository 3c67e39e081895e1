#include "train/files/summary.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "reigen/base/bytes.h"
#include "train/run/progress.h"

namespace reigen::train {

namespace {

nlohmann::ordered_json to_json(const MemoryReport& memory) {
  nlohmann::ordered_json json;
  const auto tell = [&](const char* name, std::int64_t MemoryUse::*part, bool has_formula) {
    for (const MemoryUse& use : memory.ranks) json[name]["by_rank"].push_back(use.*part);
    if (!has_formula) return;
    std::int64_t sum = 0;
    for (const MemoryUse& use : memory.formulas) sum += use.*part;
    for (const MemoryUse& use : memory.formulas) json[name]["formula_by_rank"].push_back(use.*part);
    json[name]["formula"] = sum / static_cast<std::int64_t>(std::max<std::size_t>(memory.formulas.size(), 1));
  };
  tell("parameters", &MemoryUse::parameters, true);
  tell("gradients", &MemoryUse::gradients, true);
  tell("optimizer", &MemoryUse::optimizer, true);
  tell("buffers", &MemoryUse::buffers, false);
  tell("activations", &MemoryUse::activations, false);
  tell("step", &MemoryUse::step, false);
  if (!is_on_gpu(memory)) return json;
  tell("batches", &MemoryUse::batches, false);
  tell("allocator_in_steps", &MemoryUse::in_steps, false);
  tell("allocator_peak", &MemoryUse::allocated, false);
  tell("allocator_reserved", &MemoryUse::reserved, false);
  tell("allocator_fragmented", &MemoryUse::fragmented, false);
  tell("of_the_group", &MemoryUse::of_the_group, false);
  return json;
}

}  // namespace

std::string to_json(const Figures& figures) {
  nlohmann::ordered_json json;
  for (const auto& [key, value] : figures.values) json[key] = value;
  json["test_samples"] = figures.terms;
  return json.dump(2) + '\n';
}

std::string to_json(const Summary& s) {
  const auto peak = s.peak_rss_bytes.empty() ? 0 : *std::max_element(s.peak_rss_bytes.begin(), s.peak_rss_bytes.end());
  nlohmann::ordered_json json = {{"task", s.task}};
  if (s.validation) {
    json.update(nlohmann::ordered_json::parse(to_json(*s.validation)));
  }
  if (s.best) {
    json["best"] = {{"monitor", s.best->monitor},
                    {"value", s.best->value},
                    {"step", s.best->step},
                    {"checkpoint", s.best->path.string()}};
  }
  const nlohmann::ordered_json rest = {{"samples_per_s", s.samples_per_s},
                                       {"samples_per_s_overall", s.samples_per_s_overall},
                                       {"terms_per_s", s.terms_per_s},
                                       {"world_size", s.world_size},
                                       {"backend", s.backend},
                                       {"strategy", s.strategy},
                                       {"shard", s.shard},
                                       {"bytes_given", s.bytes_given},
                                       {"precision", s.precision},
                                       {"steps", s.steps},
                                       {"epochs", s.epochs},
                                       {"global_batch", s.global_batch},
                                       {"step_ms", s.mean.step * 1e3},
                                       {"data_ms", s.mean.data * 1e3},
                                       {"forward_ms", s.mean.forward * 1e3},
                                       {"backward_ms", s.mean.backward * 1e3},
                                       {"comm_exposed_ms", s.mean.exposed * 1e3},
                                       {"optimizer_ms", s.mean.optimizer * 1e3},
                                       {"peak_rss_bytes", peak},
                                       {"peak_rss_bytes_by_rank", s.peak_rss_bytes},
                                       {"memory_bytes", to_json(s.memory)},
                                       {"first_step_s", s.first_step_s},
                                       {"wall_s", s.wall_s}};
  json.update(rest);
  if (s.pipeline) {
    json["pipeline"] = {{"schedule", s.pipeline->schedule},
                        {"micro_batches", s.pipeline->micro_batches},
                        {"bubble", s.pipeline->bubble},
                        {"bubble_predicted", s.pipeline->predicted}};
  }
  if (s.flops) {
    json["model_flops_utilisation"] = s.flops->utilisation;
    json["flops_of_sample"] = s.flops->of_sample;
    json["gemm_peak_flops_per_s"] = s.flops->peak;
  }
  return json.dump(2) + '\n';
}

std::string to_text(const Summary& s) {
  const std::string which = s.first_step > 0 ? fmt::format(" ({} to {})", s.first_step + 1, s.steps) : std::string();
  std::string text =
      fmt::format("{}: {}{} of {} on {} ({}), {}\n", s.task, base::counted(s.steps - s.first_step, "step"), which,
                  base::counted(s.samples_per_step, "sample"), base::counted(s.world_size, "rank"), s.backend,
                  format_duration(s.wall_s));
  if (s.validation) text += fmt::format("  result         {}\n", s.validation_text);
  if (s.best) {
    text += fmt::format("  best           {} {:.6g} after step {}: {}\n", s.best->monitor, s.best->value, s.best->step,
                        s.best->path.string());
  }
  if (s.mean.step > 0) {
    const double all = s.mean.step;
    const auto share = [&](double part) { return fmt::format("{:.1f} ms ({:.0f} %)", part * 1e3, 100 * part / all); };
    text += fmt::format("  speed          {:.0f} samples/s", s.samples_per_s);
    if (s.terms_per_s > s.samples_per_s) text += fmt::format(", {:.0f} tokens/s", s.terms_per_s);
    if (s.flops) {
      text += fmt::format(", {:.0f} % of the speed of matrix products (MFU; {:.3g} TFLOP/s measured)",
                          100 * s.flops->utilisation, s.flops->peak * 1e-12);
    }
    text += '\n';
    text += fmt::format(
        "  step           {:.1f} ms: data {}, forward {}, backward {}, exposed communication {}, optimizer {}\n",
        all * 1e3, share(s.mean.data), share(s.mean.forward), share(s.mean.backward), share(s.mean.exposed),
        share(s.mean.optimizer));
  }
  constexpr double kMuch = 0.1;  // of a step
  if (s.mean.step > 0 && s.mean.data > kMuch * s.mean.step) {
    // More workers than cores only take time from the training.
    const int more = std::min(std::clamp(2 * s.data_workers, 1, 64), s.cores);
    text += fmt::format(
        "  bottleneck     steps wait for batches {:.0f} % of the time{}\n", 100 * s.mean.data / s.mean.step,
        more > s.data_workers
            ? fmt::format(": --data.workers {} (now {})", more, s.data_workers)
            : fmt::format(", with {} on {}", base::counted(s.data_workers, "worker"), base::counted(s.cores, "core")));
  }
  if (s.pipeline) {
    text += fmt::format(
        "  pipeline       {} with {}: ranks wait for {:.1f} % of the last step (predicted from the stages' times: "
        "{:.1f} %), pipeline.svg\n",
        s.pipeline->schedule,
        fmt::format("{} micro-batch{}", s.pipeline->micro_batches, s.pipeline->micro_batches == 1 ? "" : "es"),
        100 * s.pipeline->bubble, 100 * s.pipeline->predicted);
  }
  std::vector<std::string> peaks;
  for (const auto bytes : s.peak_rss_bytes) peaks.push_back(format_bytes(static_cast<std::uint64_t>(bytes)));
  constexpr std::size_t kShown = 8;
  const std::size_t hidden = peaks.size() > kShown ? peaks.size() - kShown : 0;
  peaks.resize(peaks.size() - hidden);
  text += fmt::format("  peak memory    {} a rank{}\n", fmt::join(peaks, ", "),
                      hidden > 0 ? fmt::format(" (and {} more)", hidden) : "");
  text += fmt::format("  a rank holds   {}\n", to_text(s.memory));
  text += fmt::format("  files          {}\n", s.directory.string());
  return text;
}

}  // namespace reigen::train
