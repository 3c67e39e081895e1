// The names and the life of a directory of checkpoints: step_N beside step_M, hidden ones under way.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

namespace reigen::checkpoint {

inline constexpr const char* kManifestName = "manifest.json";

// What name_of() made the last part of a path of; nothing for any other.
std::optional<std::int64_t> step_of(const std::filesystem::path& path);
// Where it is written before it is whole. On the same file system.
std::filesystem::path hidden_path_of(const std::filesystem::path& directory, std::int64_t step);

// With those above it; new ones are on the disk when it returns.
void make_directories(const std::filesystem::path& path);
// Deletes what set_aside_after() set aside of steps up to `step`; with the last of them the metrics beside them, and
// the folder unless it holds something else.
void drop_set_aside(const std::filesystem::path& directory, std::int64_t step);
// Left by writers that were killed.
void remove_unfinished(const std::filesystem::path& directory);
// Throws NoRoom naming the room there is, when it is less than `bytes`.
void require_room(const std::filesystem::path& directory, std::uint64_t bytes);
// Deletes checkpoints, the oldest first, until there are `bytes` of room, but none of step `spared` or later. None
// where all of them would not make that much. Returns the steps that are gone.
std::vector<std::int64_t> make_room(const std::filesystem::path& directory, std::uint64_t bytes,
                                    std::optional<std::int64_t> spared = {});
// hidden = target, at once: there is a checkpoint of this step at every moment if there was one. On the disk when it
// returns.
void publish(const std::filesystem::path& hidden, const std::filesystem::path& target);
// Keeps `written`, of whatever step, and beside it the newest that look whole, `keep` in all; deletes the others.
void retain(const std::filesystem::path& directory, std::int64_t keep, const std::filesystem::path& written);
void sync_directory(const std::filesystem::path& path);

// Removes a directory that is not whole when it goes out of scope: a disk that is full shall not stay so because of a
// checkpoint that did not fit.
struct Unfinished {
  std::filesystem::path path;  // empty: nothing
  ~Unfinished();
};

}  // namespace reigen::checkpoint
