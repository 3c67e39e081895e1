// From which checkpoint a run goes on, and whether it may.
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

bool wants_resume(const Config& config);

struct ResumePoint {
  std::filesystem::path run_directory = {};            // empty: a new one
  bool same_run = false;                               // the directory is that of the run that goes on
  std::filesystem::path checkpoint = {};               // empty: none yet, start with step 0
  std::vector<std::string> notes = {};                 // for the user: damaged checkpoints that were passed over
  std::vector<std::filesystem::path> unreadable = {};  // of these, those that the disk did not give
};

// What run.resume and run.dir mean together. Throws InvalidArgument 78 (true without run.dir), IoError 66 (nothing
// there), DataError 65 (only damaged checkpoints).
ResumePoint find_resume_point(const Config& config);

// The steps of a run that ended, by its summary.json; -1 when there is none.
std::int64_t steps_of_summary(const std::filesystem::path& path);

// What a checkpoint remembers of its run.
std::map<std::string, std::string> options_of(const Config& config, const std::string& task, std::int64_t samples);

// Throws InvalidArgument (78) naming the first option whose change would make this another run, or what the data say
// otherwise than those of then. Returns notes on changes that are allowed (learning rate; with data.may_differ, data).
std::vector<std::string> require_compatible(const checkpoint::Checkpoint& found,
                                            const std::map<std::string, std::string>& options,
                                            const data::Meaning& meaning, std::optional<std::int64_t> global_batch);

// Why what the checkpoint holds of a strategy does not belong to this run's, or nothing: with another strategy, or
// another option of it, a run may go on, but the strategy begins anew.
std::string what_differs_in_strategy(const checkpoint::Checkpoint& found,
                                     const std::map<std::string, std::string>& options);

}  // namespace reigen::train
