// Finds the best checkpoint of a run (checkpoint.monitor).
// Thread rule: pure functions of the file system.
#pragma once

#include <filesystem>

namespace reigen::train {

inline constexpr const char* kBestList = "best.json";  // in RUN/checkpoints/best

// The path of the best checkpoint of a run's directory, from best.json. Throws IoError (exit code 66) if there is none,
// and DataError if best.json is damaged.
std::filesystem::path best_checkpoint_of(const std::filesystem::path& run_directory);

}  // namespace reigen::train
