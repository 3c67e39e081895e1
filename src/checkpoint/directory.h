// The names in a directory of checkpoints (step_N, and hidden directories that are being written), and the functions
// that add and remove checkpoints.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

namespace reigen::checkpoint {

inline constexpr const char* kManifestName = "manifest.json";

// The step of a path whose last part is "step_" and a number; nullopt for any other path.
std::optional<std::int64_t> step_of(const std::filesystem::path& path);
// The path at which a checkpoint is written until it is whole. It is in the same directory, so that a rename gives the
// checkpoint its final name.
std::filesystem::path hidden_path_of(const std::filesystem::path& directory, std::int64_t step);

// Makes the directory and its parents. New directories are fsynced when the function returns.
void make_directories(const std::filesystem::path& path);
// Deletes the checkpoints of steps up to `step` that set_aside_after() set aside. When no such checkpoint is left, also
// deletes the files of metrics next to them, and their folder unless it contains other files.
void drop_set_aside(const std::filesystem::path& directory, std::int64_t step);
// Removes the hidden directories that killed writers left.
void remove_unfinished(const std::filesystem::path& directory);
// Throws NoRoom if the directory's disk has less than `bytes` free; the error says how much is free.
void require_room(const std::filesystem::path& directory, std::uint64_t bytes);
// Deletes checkpoints of steps before `spared`, the oldest first, until `bytes` are free. Deletes none if deleting all
// of them would not free that much. Returns the steps whose checkpoints were deleted.
std::vector<std::int64_t> make_room(const std::filesystem::path& directory, std::uint64_t bytes,
                                    std::optional<std::int64_t> spared = {});
// Renames `hidden` to `target`. If `target` existed before, readers find a whole checkpoint of this step at every
// moment. The rename is fsynced when the function returns.
void publish(const std::filesystem::path& hidden, const std::filesystem::path& target);
// Keeps `keep` checkpoints and deletes the others. It keeps `written`, whatever its step, and the newest of the others
// that look whole.
void retain(const std::filesystem::path& directory, std::int64_t keep, const std::filesystem::path& written);
void sync_directory(const std::filesystem::path& path);

// Removes an unfinished directory when it goes out of scope, so that a checkpoint for which there was no room does not
// leave the disk full.
struct Unfinished {
  std::filesystem::path path;  // if empty, the destructor removes nothing
  ~Unfinished();
};

}  // namespace reigen::checkpoint
