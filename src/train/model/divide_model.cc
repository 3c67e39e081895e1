#include "train/model/divide_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/text.h"
#include "comm/agree.h"
#include "data/checked.h"
#include "reigen/base/error.h"
#include "reigen/nn/without_memory.h"
#include "reigen/schedule/generate.h"
#include "reigen/schedule/text.h"
#include "reigen/schedule/validate.h"
#include "train/model/device.h"

namespace reigen::train {

namespace {

// The degrees with which the option could stand in place of its value.
std::string possible_degrees(std::int64_t ranks, std::int64_t others) {
  std::vector<std::int64_t> possible;
  for (std::int64_t degree = 1; degree * others <= ranks; ++degree) {
    if (ranks % (degree * others) == 0) possible.push_back(degree);
  }
  return fmt::format("{}", fmt::join(possible, ", "));
}

void require_memory(const Run& run, const char* option, const char* fix) {
  const std::vector<at::Tensor> parameters = run.task.module().parameters();
  if (std::none_of(parameters.begin(), parameters.end(), nn::has_no_memory)) return;
  throw InvalidArgument(Report{.what = fmt::format("{} needs a model with memory", option),
                               .got = "a module that was made under nn::WithoutMemory",
                               .fix = fix});
}

// Rank 0 reads the file for all ranks. `samples`: of this rank in a whole step.
schedule::Schedule schedule_of_file(Run& run, std::int64_t samples) {
  const std::string& path = run.config.mesh.schedule;
  const std::string text = comm::attempt_first(run.world, "file of a schedule", [&] {
    std::ifstream file(path, std::ios::binary);
    if (!file) {
      throw IoError(Report{.what = "mesh.schedule: the file cannot be read",
                           .got = fmt::format("{}: {}", path, base::errno_text(errno)),
                           .fix = "correct the path, or name a known schedule"},
                    ExitCode::kInputMissing);
    }
    std::ostringstream all;
    all << file.rdbuf();
    return all.str();
  });
  schedule::Schedule found;
  try {
    found = schedule::parse_schedule(text);
    schedule::validate(schedule::with_messages(found));
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(fmt::format("mesh.schedule {}: {}", path, error.what()));
  }
  const std::int64_t micro = run.config.train.micro_batch;
  const std::int64_t made = micro > 0 ? (samples + micro - 1) / micro : 1;
  if (found.micro_batches == made) return found;
  const std::int64_t right = (samples + found.micro_batches - 1) / found.micro_batches;
  const bool is_possible = (samples + right - 1) / right == found.micro_batches;
  throw InvalidArgument(
      Report{.what = fmt::format("mesh.schedule {} is for another number of micro-batches", path),
             .got = fmt::format("{} samples on each rank in a step, train.micro_batch {}: {}", samples, micro,
                                made == 1 ? "1 micro-batch" : fmt::format("{} micro-batches", made)),
             .expected = fmt::format("{}, as the file has", found.micro_batches),
             .fix = is_possible ? fmt::format("--train.micro_batch {}, or another file", right)
                                : fmt::format("a train.global_batch that {} micro-batches divide, or another file",
                                              found.micro_batches)});
}

std::string text_of_times(const std::vector<nn::Unit>& units, const std::vector<double>& seconds) {
  std::vector<std::string> words;
  for (std::size_t i = 0; i < units.size(); ++i)
    words.push_back(fmt::format("{} {:.2g}", units[i].name(), seconds[i] * 1e3));
  return fmt::format("{}", fmt::join(words, ", "));
}

// The first samples of the training data, on the device.
data::Samples first_samples(Run& run, std::int64_t count) {
  std::vector<std::int64_t> first(static_cast<std::size_t>(count));
  std::iota(first.begin(), first.end(), 0);
  const data::DatasetPtr training = run.data_module.training();
  return samples_on(run.device, data::checked(training->gather(first), *training, count));
}

}  // namespace

bool is_file(const std::string& schedule) { return schedule.find_first_of("./") != std::string::npos; }

void open_mesh(Run& run) {
  const config::MeshConfig& mesh = run.config.mesh;
  const std::vector<std::pair<std::string, std::int64_t>> degrees{
      {"mesh.tp", mesh.tp}, {"mesh.cp", mesh.cp}, {"mesh.pp", mesh.pp}};
  const std::int64_t replicas = run.config.parallel.replicas;
  std::int64_t product = replicas;
  std::vector<std::string> named, given;
  for (const auto& [name, degree] : degrees) {
    product *= degree;
    if (degree == 1) continue;
    named.push_back(name);
    given.push_back(fmt::format("{} {}", name, degree));
  }
  if (named.empty()) return;
  const std::int64_t ranks = run.world.size();
  if (ranks % product != 0) {
    std::vector<std::string> fit;
    for (const auto& [name, degree] : degrees) {
      const std::string possible = degree == 1 ? "" : possible_degrees(ranks, product / degree);
      if (!possible.empty()) fit.push_back(fmt::format("{} {}", name, possible));
    }
    throw InvalidArgument(Report{.what = fmt::format("{} does not divide the ranks", fmt::join(named, " times ")),
                                 .got = fmt::format("{}, parallel.replicas {}, {}", fmt::join(given, ", "), replicas,
                                                    base::counted(ranks, "rank")),
                                 .expected = fit.empty() ? "a number of ranks that their product divides"
                                                         : fmt::format("{}", fmt::join(fit, "; or ")),
                                 .fix = fmt::format("choose one of these, or start {}",
                                                    base::counted((ranks / product + 1) * product, "rank"))});
  }
  run.mesh.emplace(run.world, std::vector<mesh::Axis>{{"pp", static_cast<int>(mesh.pp)},
                                                      {"dp_replicate", static_cast<int>(replicas)},
                                                      {"dp_shard", mesh::kRest},
                                                      {"cp", static_cast<int>(mesh.cp)},
                                                      {"tp", static_cast<int>(mesh.tp)}});
  run.data = run.mesh->along({"dp_replicate", "dp_shard"});
  run.say("mesh: " + run.mesh->to_text());
  if (mesh.tp > 1 && !run.mesh->along("tp").shares_memory() && run.device.is_cpu()) {
    run.say(
        fmt::format("warning: the {} ranks of mesh.tp share no memory, so each layer sends activations over the "
                    "network",
                    mesh.tp));
  }
}

parallel::TensorParallel divide_layers(Run& run) {
  const parallel::Plan plan = run.task.tensor_plan();
  if (plan.empty()) {
    throw InvalidArgument(
        Report{.what = fmt::format("mesh.tp: the task {} does not say how to divide its model", run.name()),
               .expected = "the recipe gpt or llama, or a task with tensor_plan()",
               .fix = "leave mesh.tp out, or give the task a plan (reigen/parallel/tensor_parallel.h)"});
  }
  return parallel::parallelize(run.task.module(), *run.mesh, plan, {.sequence = run.config.mesh.sequence});
}

parallel::ContextParallel divide_sequences(Run& run) {
  parallel::ContextParallel context(*run.mesh);
  if (!run.task.divide_sequences(context)) {
    throw InvalidArgument(Report{.what = fmt::format("mesh.cp: the task {} cannot divide its sequences", run.name()),
                                 .expected = "the recipe gpt or llama, or a task with divide_sequences()",
                                 .fix = "leave mesh.cp out, or teach the task (reigen/train/task.h)"});
  }
  (void)run.task.first_input(first_samples(run, 1));  // refuses a length that the ranks cannot divide
  return context;
}

parallel::Pipeline divide_stages(Run& run, std::int64_t samples, int& micro_batches_of_file) {
  const config::MeshConfig& mesh = run.config.mesh;
  parallel::PipelineOptions options{
      .virtual_stages = static_cast<int>(mesh.virtual_stages), .units = run.task.units(), .skips = run.task.skips()};
  if (is_file(mesh.schedule)) {
    if (mesh.virtual_stages > 1) {
      throw InvalidArgument(
          Report{.what = "mesh.virtual_stages and a file in mesh.schedule do not go together",
                 .got = fmt::format("mesh.virtual_stages {}, mesh.schedule {}", mesh.virtual_stages, mesh.schedule),
                 .fix = "leave mesh.virtual_stages out: the file places the stages"});
    }
    options.own = schedule_of_file(run, samples);
    run.config.mesh.schedule = std::filesystem::absolute(mesh.schedule).string();
    micro_batches_of_file = options.own->micro_batches;
  } else {
    options.schedule = schedule::name_of(mesh.schedule);
  }
  if (options.units.empty()) {
    throw InvalidArgument(Report{.what = fmt::format("mesh.pp: the model of {} has no units", run.name()),
                                 .expected = "a task with units(), for example the recipe gpt or llama",
                                 .fix = "leave mesh.pp out, or give the task's model units (reigen/nn/unit.h)"});
  }
  if (mesh.cut == "count") options.costs.assign(options.units.size(), 1);
  if (mesh.cut == "time") {
    require_memory(run, "mesh.cut time", "choose mesh.cut size, or make the module without that");
    const std::int64_t micro = run.config.train.micro_batch;
    const data::Samples taken = first_samples(run, micro > 0 ? std::min(micro, samples) : samples);
    options.costs = parallel::measure_units(options.units, run.task.first_input(taken), run.world, options.skips);
    run.say(fmt::format("measured, ms: {}", text_of_times(options.units, options.costs)));
  }
  parallel::Pipeline made = parallel::make_pipeline(run.task.module(), *run.mesh, std::move(options));
  std::vector<std::string> stages;
  const std::vector<std::size_t>& first = made.first_units();
  const std::vector<int> placement = made.schedule_of(std::max(1, micro_batches_of_file)).placement;
  for (std::size_t s = 0; s < first.size(); ++s) {
    const std::size_t last = (s + 1 < first.size() ? first[s + 1] : made.units().size()) - 1;
    const std::string& name = made.units()[first[s]].name();
    const std::string named = last == first[s] ? name : fmt::format("{} to {}", name, made.units()[last].name());
    stages.push_back(fmt::format("{} on pp {}", named, placement[s]));
  }
  run.say(fmt::format("stages: {}", fmt::join(stages, "; ")));
  return made;
}

PipelineTimes times_of(const parallel::Pipeline& pipeline, int micro_batches) {
  PipelineTimes times{.measured = pipeline.gather_last()};
  const schedule::Schedule& schedule = pipeline.schedule_of(micro_batches);
  schedule::Times mean{.stages = std::vector<schedule::StageTimes>(
                           static_cast<std::size_t>(schedule.stages()),
                           {.forward = 0, .backward = 0, .backward_input = 0, .backward_weight = 0})};
  for (const std::vector<schedule::Span>& rank : times.measured.ranks) {
    for (const auto& [action, start, end] : rank) {
      schedule::StageTimes& stage = mean.stages[static_cast<std::size_t>(action.stage)];
      const double share = (end - start) / micro_batches;
      if (action.kind == schedule::Kind::kForward) stage.forward += share;
      if (action.kind == schedule::Kind::kBackward) stage.backward += share;
      if (action.kind == schedule::Kind::kBackwardInput) stage.backward_input += share;
      if (action.kind == schedule::Kind::kBackwardWeight) stage.backward_weight += share;
    }
  }
  times.predicted = schedule::replay(schedule, mean);
  return times;
}

}  // namespace reigen::train
