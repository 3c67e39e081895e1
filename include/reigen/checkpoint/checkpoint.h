// Checkpoints hold what a run needs to go on as if it had never stopped. The number of ranks and what each rank holds
// may change between writing and reading.
//
//   checkpoints/step_00000100/
//     model.safetensors                           one rank held all of the group: any safetensors reader reads it
//     optimizer_rank_00001_of_00004.safetensors   the parts that rank 1 held
//     manifest.json                               where the run was, and the hash of every piece
//
// Tensors have global names and shapes. Every rank gives the parts of them that it holds (piece.h), so that all ranks
// together give each element once. A rank reads the parts that it needs, which may be other parts than any rank gave.
//
// A checkpoint is whole or absent: it is written into a hidden directory next to its final place, every file and
// directory is fsynced, and then the directory is renamed. Reading takes the newest whole checkpoint and verifies every
// byte of it (XXH64). A checkpoint that is damaged, or that the disk cannot read, is named and passed over. All ranks
// must use the same directory, so ranks on several machines need a shared file system. Thread rule: only one thread of
// each rank writes to a directory at a time; any thread may read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "reigen/base/unique_fd.h"
#include "reigen/checkpoint/manifest.h"
#include "reigen/checkpoint/piece.h"
#include "reigen/comm/communicator.h"

namespace reigen::checkpoint {

// The pieces that a rank gives, by group: {"model", ...}, {"optimizer", ...}.
using Contents = std::map<std::string, std::vector<Piece>>;

// Writes checkpoints/step_N under `directory` and replaces a checkpoint of the same step. Then keeps this checkpoint
// and the newest other whole ones, `keep` in all (it checks their sizes, not their hashes), and deletes older ones and
// what was set aside of steps up to this one. Returns the checkpoint's path. Rank 0's manifest counts; the fields that
// save() sets itself are overwritten. Collective and blocking: three exchanges of a few bytes and one of the manifests.
// Throws the same error on every rank: IoError (also before anything is written, when the disk lacks the room), or
// InvalidArgument naming a tensor of which ranks gave an element twice or not at all; earlier checkpoints then stay.
// Cost: one pass over the pieces, and for each file an fsync of the file and of its directory.
std::filesystem::path save(const std::filesystem::path& directory, const Manifest& manifest, const Contents& contents,
                           std::int64_t keep, Communicator world = Communicator());

std::string name_of(std::int64_t step);  // "step_00000100"

// For a run that goes on from an older checkpoint and gives up the newer ones: moves the checkpoints of steps after
// `step`, whole or not, to where no search finds them, and returns their new paths, newest first. They go to
// directory/set_aside, where save() deletes those whose step it has reached. `unreadable` checkpoints (Search), which
// may become readable again, go to directory/unreadable, which stays. Throws IoError when one cannot be moved.
std::vector<std::filesystem::path> set_aside_after(const std::filesystem::path& directory, std::int64_t step,
                                                   const std::vector<std::filesystem::path>& unreadable = {});
std::filesystem::path set_aside_path(const std::filesystem::path& directory);

class Checkpoint {
 public:
  // Reads the manifest and compares the files' sizes; does not read their bytes. Throws IoError (66 when there is no
  // checkpoint), DataError naming what is damaged, and Error 76 for another version of the format.
  explicit Checkpoint(std::filesystem::path path);
  ~Checkpoint();
  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;

  const std::filesystem::path& path() const;
  const Manifest& manifest() const;

  // Reads every byte and compares the hashes; with `shares` > 1 only the `share`-th of `shares` parts of about equal
  // size. Throws DataError naming file, bytes and tensor of the first damage.
  void verify(int share = 0, int shares = 1) const;
  // Reads every byte like verify(), and returns all damage instead of throwing.
  std::vector<std::string> damage() const;

  // target = that part of the tensor, put together from the pieces that hold it. Throws DataError when there is no such
  // tensor, or when it has another type or shape. Does not check hashes.
  void read(std::string_view group, const Target& target) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct Search {
  std::optional<Checkpoint> newest = {};
  std::vector<std::string> damaged = {};               // why newer ones were passed over, newest first
  std::vector<std::filesystem::path> unreadable = {};  // those among them that the disk could not read
};

// Finds the newest whole checkpoint under `directory` (the directory that holds step_N) and verifies it. A directory
// that does not exist holds none. Throws instead of passing a checkpoint over when that checkpoint may be intact:
// IoError 77 when this user may not read it, 71 when memory or descriptors ran out, Error 76 for another version of the
// format.
Search find_newest(const std::filesystem::path& directory);

// Paths of all checkpoints under `directory`, whole or not, newest first.
std::vector<std::filesystem::path> list(const std::filesystem::path& directory);

// While it lives, no other job can write checkpoints into `directory`. Throws IoError 73 naming the job that holds the
// lock. On a file system without locks it keeps nobody out and logs a warning, unless `warns_without_locks` is false.
class DirectoryLock {
 public:
  explicit DirectoryLock(const std::filesystem::path& directory, bool warns_without_locks = true);
  ~DirectoryLock();
  DirectoryLock(DirectoryLock&&) noexcept = default;
  DirectoryLock& operator=(DirectoryLock&&) noexcept = default;

 private:
  UniqueFd fd_;
};

}  // namespace reigen::checkpoint
