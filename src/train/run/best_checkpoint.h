// Finds the best checkpoint of a run (checkpoint.monitor).
// Thread rule: pure functions of the file system.
#pragma once

#include <cstdint>
#include <filesystem>

namespace reigen::train {

inline constexpr const char* kBestList = "best.json";  // in RUN/checkpoints/best

// The path of the best checkpoint of a run's directory, from best.json. Throws IoError (exit code 66) if there is none,
// and DataError if best.json is damaged.
std::filesystem::path best_checkpoint_of(const std::filesystem::path& run_directory);

// For a run that goes on after `step`: moves best checkpoints of later steps to checkpoints/best/set_aside, and takes
// them out of best.json. Throws IoError.
void keep_best_up_to(const std::filesystem::path& run_directory, std::int64_t step);

}  // namespace reigen::train
