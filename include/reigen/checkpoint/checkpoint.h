// Checkpoints: what a run needs to go on as if it had never stopped, whatever the number of ranks and what each holds.
//
//   checkpoints/step_00000100/
//     model.safetensors                           one rank held all of it: any safetensors reader reads it
//     optimizer_rank_00001_of_00004.safetensors   what rank 1 held
//     manifest.json                               where the run was, and the hash of every piece
//
// Tensors have global names and shapes; every rank gives the parts of them that it holds (piece.h), each element once
// over all ranks, and reads the parts that it needs, which need not be those that anybody gave.
//
// A checkpoint is whole or absent: written into a hidden directory beside, every file and directory fsynced, then
// renamed. Reading takes the newest whole one, every byte of it verified (XXH64); what is damaged, or on a disk that
// cannot read it, is named and passed over. The directory must be one for all ranks: a shared file system, where there
// are several machines. Thread rule: one thread (of each rank) writes a directory at a time; reading is free.
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

// What a rank gives, by kind: {"model", ...}, {"optimizer", ...}.
using Contents = std::map<std::string, std::vector<Piece>>;

// Writes checkpoints/step_N under `directory`, replacing a checkpoint of the same step. Then keeps it and the newest
// whole ones, `keep` in all (sizes are checked, not hashes), and deletes older ones, and what was set aside of steps up
// to this one. Returns its path. Uses rank 0's manifest; the fields that save() sets itself are overwritten. Collective
// and blocking, three exchanges of a few bytes and the manifest's. Throws on every rank alike: IoError
// (also before anything is written, when the disk lacks the room), InvalidArgument naming a tensor of which ranks gave
// an element twice or not at all; what was there stays. Cost: one pass over the pieces, and for each file an fsync of
// it and of its directory.
std::filesystem::path save(const std::filesystem::path& directory, const Manifest& manifest, const Contents& contents,
                           std::int64_t keep, Communicator world = Communicator());

std::string name_of(std::int64_t step);  // "step_00000100"

// A run that goes on from an older checkpoint gives up the future that was: moves checkpoints of steps after `step`,
// whole or not, to where no search sees them, and returns where they are, newest first. They come into
// directory/set_aside, where save() deletes those that it has caught up with; `unreadable` ones (Search), which may be
// as good as ever some day, into directory/unreadable, which stays. Throws IoError where one cannot be moved.
std::vector<std::filesystem::path> set_aside_after(const std::filesystem::path& directory, std::int64_t step,
                                                   const std::vector<std::filesystem::path>& unreadable = {});
std::filesystem::path set_aside_path(const std::filesystem::path& directory);

class Checkpoint {
 public:
  // Reads the manifest and looks at the files' sizes, not at their bytes. Throws IoError (66 when it is not there),
  // DataError naming what is damaged, and Error 76 for another version of the format.
  explicit Checkpoint(std::filesystem::path path);
  ~Checkpoint();
  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;

  const std::filesystem::path& path() const;
  const Manifest& manifest() const;

  // Reads every byte, or the `share`-th of `shares` parts of about equal size, and compares the hashes. Throws
  // DataError naming file, bytes and tensor of the first damage.
  void verify(int share = 0, int shares = 1) const;
  // The same, all damage there is.
  std::vector<std::string> damage() const;

  // target = that part of the tensor, put together from the pieces that hold it. Throws DataError when there is no such
  // tensor, or it has another type or shape. Does not look at hashes.
  void read(std::string_view group, const Target& target) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct Search {
  std::optional<Checkpoint> newest = {};
  std::vector<std::string> damaged = {};               // why newer ones were passed over, newest first
  std::vector<std::filesystem::path> unreadable = {};  // of these, those that the disk did not give
};

// The newest whole checkpoint under `directory` (the one that holds step_N), verified. An absent directory holds none.
// Throws where the newest may be as good as ever: IoError 77 when this user may not read it, 71 without memory or
// descriptors, Error 76 for another version of the format.
Search find_newest(const std::filesystem::path& directory);

// Paths of all checkpoints under `directory`, whole or not, newest first.
std::vector<std::filesystem::path> list(const std::filesystem::path& directory);

// Keeps others from writing checkpoints into `directory` while it lives. Throws IoError 73 naming who does. Where the
// file system has no locks it keeps nobody out, which is logged as a warning unless that is known.
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
