#include "train/start/resume.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "reigen/base/error.h"
#include "train/run/best_checkpoint.h"
#include "train/start/meaning.h"

namespace reigen::train {

namespace fs = std::filesystem;

namespace {

// A resumed run may not change these options. Otherwise samples would be repeated or skipped, or the run would train
// a different model.
constexpr const char* kFixed[] = {"task", "train.seed", "train.precision", "optim.name", "task.optimizers"};
// The same holds for these options of the data, but data.may_differ allows the change.
constexpr const char* kOfData[] = {"data.limit", "data.samples"};
// These options decide which states the optimizer has, the types of the weights, and the order of the samples. They are
// compared only if the
// checkpoint has them, because checkpoints of earlier versions do not.
constexpr const char* kFixedIfTold[] = {"train.weights", "optim.amsgrad", "optim.centered", "optim.bf16_states",
                                        "data.shuffle"};

// Which operations compute the layers of a model of Reigen's (nn/kernels.h). An option of a program may have this name
// too, with other values.
constexpr const char* kKernels = "model.kernels";
bool are_kernels(const std::string& value) {
  return value == "auto" || value == "fused" || value == "torch" || value == "not set";
}

// Whether a resumed run may have a new value of this option, although it then trains differently. The user is told of
// such a change.
bool is_noted(const std::string& key) {
  return key.starts_with("optim.") || key == "train.clip_norm" || key == "train.clip_value" ||
         key == "train.label_smoothing" || key == "data.path" || key == kKernels;
}

// Does the same as is_noted(), with one addition. If `schedule` (the name of the learning rate's schedule) has an end,
// the options that set the number of steps are noted too.
bool is_noted_for(const std::string& key, const std::string& schedule) {
  const bool has_end =
      schedule != "constant" && schedule != "step" && schedule != "multi_step" && schedule != "not set";
  return is_noted(key) || (has_end && (key == "train.epochs" || key == "train.max_steps"));
}

std::string value_in(const std::map<std::string, std::string>& options, const char* key) {
  const auto found = options.find(key);
  return found == options.end() ? "not set" : found->second;
}

checkpoint::Checkpoint verified(const fs::path& path) {
  checkpoint::Checkpoint checkpoint(path);
  checkpoint.verify();
  return checkpoint;
}

// Finds the newest whole checkpoint in any of the folders. If they have no checkpoint at all, ResumePoint::checkpoint
// is empty.
ResumePoint newest_in(const std::vector<fs::path>& folders, const std::string& others) {
  ResumePoint point;
  std::string damaged;  // the first of the damaged ones
  std::int64_t newest = -1;
  for (const fs::path& folder : folders) {
    const checkpoint::Search search = checkpoint::find_newest(folder);
    point.unreadable.insert(point.unreadable.end(), search.unreadable.begin(), search.unreadable.end());
    for (const std::string& one : search.damaged) point.notes.push_back("passed over a damaged checkpoint: " + one);
    if (damaged.empty() && !search.damaged.empty()) damaged = search.damaged.front();
    if (!search.newest || search.newest->manifest().step <= newest) continue;
    newest = search.newest->manifest().step;
    point.checkpoint = search.newest->path();
  }
  if (point.checkpoint.empty() && !damaged.empty()) {
    throw DataError(
        Report{.what = fmt::format("no whole checkpoint in {}; the newest: {}", folders.front().string(), damaged),
               .fix = "start anew in another --run.dir" + others});
  }
  return point;
}

ResumePoint newest_of(const fs::path& run_directory) {
  const fs::path checkpoints = run_directory / "checkpoints";
  std::error_code ignored;
  const fs::path aside = checkpoint::set_aside_path(checkpoints);
  const std::string others =
      fs::exists(aside, ignored) ? fmt::format("; {} holds checkpoints that the run gave up", aside.string()) : "";
  // A run that went on from one of its best checkpoints may have no newer one yet.
  ResumePoint point = newest_in({checkpoints, checkpoints / "best"}, others);
  point.run_directory = run_directory;
  if (!point.checkpoint.empty()) return point;
  if (fs::exists(run_directory / "model.safetensors", ignored)) {
    const bool has_ended = steps_of_summary(run_directory / "summary.json") > 0;
    throw IoError(Report{.what = fmt::format("cannot resume: {} holds {}", run_directory.string(),
                                             has_ended ? "a run that has ended, and no checkpoint of it"
                                                       : "the weights of a run whose checkpoint could not be written"),
                         .got = "model.safetensors, which a start at step 1 would replace",
                         .fix = "start anew in another --run.dir" + others},
                  ExitCode::kInputMissing);
  }
  point.notes.push_back(fmt::format("no checkpoint in {}: starting at step 1{}", run_directory.string(), others));
  return point;
}

}  // namespace

fs::path run_directory_of(const fs::path& checkpoint) {
  const fs::path folder = checkpoint.parent_path();
  return (folder.filename() == "best" ? folder.parent_path() : folder).parent_path();
}

bool wants_resume(const Config& config) { return !config.run.resume.empty() && config.run.resume != "false"; }

std::int64_t steps_of_summary(const std::filesystem::path& path) {
  std::ifstream in(path);
  const auto json = nlohmann::json::parse(in, nullptr, false);
  const auto steps = json.is_object() ? json.find("steps") : json.end();
  return steps != json.end() && steps->is_number_integer() ? steps->get<std::int64_t>() : -1;
}

ResumePoint find_resume_point(const Config& config) {
  const bool best = config.run.resume == "best";
  const bool newest = config.run.resume == "true" || config.run.resume == "last";
  if ((newest || best) && config.run.dir.empty()) {
    throw InvalidArgument(Report{.what = fmt::format("run.resume = {}: which run?", config.run.resume),
                                 .fix = "name it with --run.dir DIR, or give --run.resume its path"});
  }
  const fs::path source = best     ? best_checkpoint_of(config.run.dir)
                          : newest ? fs::path(config.run.dir)
                                   : fs::path(config.run.resume);
  std::error_code ignored;
  if (!fs::is_directory(source, ignored)) {
    throw IoError(Report{.what = fmt::format("cannot resume: there is no directory {}", source.string()),
                         .fix = "give the directory of a run, or of one of its checkpoints"},
                  ExitCode::kInputMissing);
  }
  ResumePoint point;
  const bool is_checkpoint = fs::exists(source / "manifest.json", ignored);
  const bool is_run = fs::exists(source / "config.toml", ignored) || fs::exists(source / "checkpoints", ignored);
  const fs::path place = fs::absolute(source / ".").lexically_normal().parent_path();
  if (is_checkpoint) {
    point.checkpoint = verified(source).path();
    const fs::path directory = run_directory_of(place);
    const bool is_of_run =
        place.parent_path() == directory / "checkpoints" || place.parent_path() == directory / "checkpoints" / "best";
    if (is_of_run) point.run_directory = directory;
  } else if (!is_run && !checkpoint::list(source).empty()) {
    // `source` is the folder `checkpoints` of a run, or a folder with nothing but checkpoints, such as `reigen
    // checkpoint reshard` makes.
    if (place.filename() == "checkpoints" && fs::exists(place.parent_path() / "config.toml", ignored)) {
      point = newest_of(place.parent_path());
    } else {
      point = newest_in({source}, "");
    }
  } else {
    if (!is_run) {
      throw IoError(Report{.what = fmt::format("cannot resume: {} holds no run", source.string()),
                           .got = "neither config.toml nor checkpoints/ nor step_N",
                           .fix = "give the directory of a run, or of one of its checkpoints"},
                    ExitCode::kInputMissing);
    }
    point = newest_of(source);
  }
  point.same_run = !point.run_directory.empty();
  if (!config.run.dir.empty()) {
    point.same_run = point.same_run && fs::weakly_canonical(config.run.dir, ignored) ==
                                           fs::weakly_canonical(point.run_directory, ignored);
    point.run_directory = config.run.dir;
  }
  return point;
}

std::map<std::string, std::string> options_of(const Config& config, const std::string& task, std::int64_t samples) {
  Config copy = config;
  copy.parallel.strategy.note_given();  // so that the options of the strategy are listed too
  std::map<std::string, std::string> options;
  for (const Field& field : fields(copy)) options[field.name()] = field.text();
  options["task"] = task;
  options["data.samples"] = std::to_string(samples);
  return options;
}

namespace {

// Lists how the data differ from those with which the run began.
std::vector<std::string> differences_of_data(const std::map<std::string, std::string>& before,
                                             const std::map<std::string, std::string>& options,
                                             const data::Meaning& meaning) {
  std::vector<std::string> found;
  for (const Difference& one : differences(meaning, before)) {
    if (!one.is_told_only) found.push_back(one.text);
  }
  for (const char* key : kOfData) {
    if (value_in(before, key) == value_in(options, key)) continue;
    found.push_back(fmt::format("{} is {}, it was {}", key, value_in(options, key), value_in(before, key)));
  }
  return found;
}

// The options of the model that the run began with, and that the program does not have any more.
std::vector<std::string> gone_options_of_model(const std::map<std::string, std::string>& before,
                                               const std::map<std::string, std::string>& options) {
  std::vector<std::string> gone;
  for (const auto& [key, value] : before) {
    if (key.starts_with("model.") && !options.contains(key)) gone.push_back(key);
  }
  return gone;
}

}  // namespace

std::vector<std::string> require_compatible(const checkpoint::Checkpoint& found,
                                            const std::map<std::string, std::string>& options,
                                            const data::Meaning& meaning, std::optional<std::int64_t> global_batch) {
  const auto refuse = [&](const std::string& key, const std::string& got, const std::string& expected) {
    return InvalidArgument(
        Report{.what = fmt::format("{} differs from the run that is to go on", key),
               .got = got,
               .expected = fmt::format("{} (from {})", expected, found.path().string()),
               .fix = fmt::format("give the options of that run, e.g. --config {}",
                                  (found.path().parent_path().parent_path() / "config.toml").string())});
  };
  const auto& before = found.manifest().options;
  for (const char* key : kFixed) {
    if (value_in(before, key) != value_in(options, key))
      throw refuse(key, value_in(options, key), value_in(before, key));
  }
  // All options of the model are compared, because not every one of them shows in the shapes of the parameters. An
  // option that the program did not have when the run began is only told. But if another one is gone, the new one may
  // be the old one with another name.
  const std::vector<std::string> gone = gone_options_of_model(before, options);
  for (const auto& [key, value] : options) {
    if (!key.starts_with("model.") || value_in(before, key.c_str()) == value) continue;
    if (key == kKernels && are_kernels(value) && are_kernels(value_in(before, kKernels))) continue;
    if (!before.contains(key) && gone.empty()) continue;
    throw refuse(key, value, value_in(before, key.c_str()));
  }
  if (global_batch && *global_batch != found.manifest().global_batch) {
    throw refuse("train.global_batch", std::to_string(*global_batch), std::to_string(found.manifest().global_batch));
  }
  for (const char* key : kFixedIfTold) {
    if (before.contains(key) && value_in(before, key) != value_in(options, key))
      throw refuse(key, value_in(options, key), value_in(before, key));
  }
  std::vector<std::string> notes;
  for (const std::string& key : gone)
    notes.push_back(fmt::format("warning: the run began with {} = {}, an option that is no more", key, before.at(key)));
  const std::vector<std::string> other_data = differences_of_data(before, options, meaning);
  if (!other_data.empty() && value_in(options, "data.may_differ") != "true") {
    const std::string path = value_in(before, "data.path");
    throw InvalidArgument(Report{.what = "the data differ from those of the run that is to go on",
                                 .got = fmt::format("{}", fmt::join(other_data, "; ")),
                                 .expected = fmt::format("the data of {} (data.path was {})", found.path().string(),
                                                         path.empty() ? "not given" : path),
                                 .fix = "give those data, or go on with these on purpose: --data.may_differ true"});
  }
  for (const std::string& one : other_data) notes.push_back("data.may_differ: " + one);
  for (const Difference& one : differences(meaning, before)) {
    if (one.is_told_only)
      notes.push_back(fmt::format("warning: {}; if they are computed, another machine may round otherwise", one.text));
  }
  if (!meaning.empty() && !has_meaning(before)) {
    notes.push_back("the checkpoint does not say what its data were, so these are not compared with them");
  }
  for (const auto& [key, value] : options) {
    if (key.starts_with("model.") && !before.contains(key))
      notes.push_back(fmt::format("{} is {}; the run began without this option", key, value));
    if (!before.contains(key) || before.at(key) == value || !is_noted_for(key, value_in(options, "optim.schedule")))
      continue;
    notes.push_back(fmt::format("{} is {} from here on; it was {}", key, value, before.at(key)));
  }
  return notes;
}

std::string what_differs_in_strategy(const checkpoint::Checkpoint& found,
                                     const std::map<std::string, std::string>& options) {
  const auto& before = found.manifest().options;
  // A checkpoint of an earlier version has only the options that the user gave, and lacks options that were added
  // later. A missing option had the value that is its default in this version.
  Config usual;
  usual.parallel.strategy.name = value_in(options, "parallel.strategy");
  const std::map<std::string, std::string> defaults = options_of(usual, "", 0);
  for (const auto& [key, value] : options) {
    const bool shapes_no_state = key == "parallel.bucket_mb" || key == "parallel.overlap" || key == "parallel.shard" ||
                                 key == "parallel.buffers" || key == "parallel.replicas" ||
                                 key == "parallel.reshard_after_forward" || key == "parallel.reshard_to" ||
                                 key == "parallel.unit_size" || key == "parallel.offload" ||
                                 key == "parallel.gather_type" || key == "parallel.reduce_type";
    if (!key.starts_with("parallel.") || shapes_no_state) continue;
    std::string was = value_in(before, key.c_str());
    if (was == "not set" || !before.contains(key)) was = value_in(defaults, key.c_str());
    if (was != value) return fmt::format("{} is {}; it was {}", key, value, was);
  }
  return "";
}

void require_as_many_steps(const TrainConfig& config, std::int64_t total, std::int64_t done,
                           const fs::path& directory) {
  if (total >= done) return;
  InvalidArgument error(
      Report{.what = fmt::format("the checkpoint is of step {}, and the options ask for fewer steps", done),
             .got = fmt::format("{}, by train.epochs {} and train.max_steps {}", base::counted(total, "step"),
                                config.epochs, config.max_steps),
             .expected = fmt::format("at least {} steps", done),
             .fix = fmt::format("give the options with which the run began: --config {}; or begin another run in "
                                "another --run.dir",
                                base::quote_shell((directory / "config.toml").string()))});
  error.mark_common();
  throw error;
}

}  // namespace reigen::train
