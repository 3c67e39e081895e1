// Finds the best checkpoint of a run (checkpoint.monitor).
// Thread rule: pure functions of the file system.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace reigen::train {

inline constexpr const char* kBestList = "best.json";  // in RUN/checkpoints/best

// The path of the best checkpoint of a run's directory, from best.json. Throws IoError (exit code 66) if there is none,
// and DataError if best.json is damaged.
std::filesystem::path best_checkpoint_of(const std::filesystem::path& run_directory);

// The figure by which best.json in the folder lists checkpoints. Not set if there is no best.json, and empty if it is
// damaged.
std::optional<std::string> monitor_of_best(const std::filesystem::path& folder);

// For a run that goes on after `step`: moves best checkpoints of later steps to checkpoints/best/set_aside, and takes
// them out of best.json, which is deleted if it becomes empty. Those that cannot be read (`unreadable`) are moved to
// checkpoints/best/unreadable. Throws IoError.
void keep_best_up_to(const std::filesystem::path& run_directory, std::int64_t step,
                     const std::vector<std::filesystem::path>& unreadable);

}  // namespace reigen::train
