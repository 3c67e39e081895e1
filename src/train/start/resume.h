// Decides from which checkpoint a run is resumed, and whether this run's options and data allow it.
// Thread rule: no shared state.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "reigen/checkpoint/checkpoint.h"
#include "reigen/data/meaning.h"
#include "reigen/train/config.h"

namespace reigen::train {

// The directory of the run to which a checkpoint belongs: of RUN/checkpoints/step_N and RUN/checkpoints/best/step_N.
std::filesystem::path run_directory_of(const std::filesystem::path& checkpoint);

bool wants_resume(const Config& config);

struct ResumePoint {
  std::filesystem::path run_directory = {};            // empty means that a new directory is created
  bool same_run = false;                               // the directory is that of the run to be resumed
  std::filesystem::path checkpoint = {};               // empty if there is none; the run then starts at step 0
  std::vector<std::string> notes = {};                 // for the user, e.g. damaged checkpoints that were passed over
  std::vector<std::filesystem::path> unreadable = {};  // damaged checkpoints that could not be read from the disk
};

// Interprets run.resume together with run.dir. Throws InvalidArgument with exit code 78 if run.resume is true without
// run.dir, IoError with 66 if there is nothing to resume from, and DataError with 65 if all checkpoints are damaged.
ResumePoint find_resume_point(const Config& config);

// The number of steps of a run that ended, read from its summary.json, or -1 if there is none.
std::int64_t steps_of_summary(const std::filesystem::path& path);

// Returns the options that the checkpoints of a run store.
std::map<std::string, std::string> options_of(const Config& config, const std::string& task, std::int64_t samples);

// Throws InvalidArgument with exit code 78 if an option has changed that must stay the same in a run, or if the data
// differ from those of the checkpoint. The error names the option or the differences. Returns notes on changes that are
// allowed, for example of the learning rate, or of the data if data.may_differ is true.
std::vector<std::string> require_compatible(const checkpoint::Checkpoint& found,
                                            const std::map<std::string, std::string>& options,
                                            const data::Meaning& meaning, std::optional<std::int64_t> global_batch);

// Throws InvalidArgument with exit code 78 if the options ask for fewer steps than the run in `directory` has made:
// somebody has resumed it without its options, and the run would be written as ended.
// `total`: the steps that the options ask for; `done`: those of the checkpoint.
void require_as_many_steps(const TrainConfig& config, std::int64_t total, std::int64_t done,
                           const std::filesystem::path& directory);

// Says why the strategy's state in the checkpoint does not fit this run's strategy. Returns an empty text if it fits. A
// run may be resumed with another strategy, or with other options of its strategy, but the strategy then begins with a
// new state.
std::string what_differs_in_strategy(const checkpoint::Checkpoint& found,
                                     const std::map<std::string, std::string>& options);

}  // namespace reigen::train
