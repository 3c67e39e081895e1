// A checkpoint holds everything that a run needs to continue as if it had never stopped. The number of ranks, and the
// parts that each rank holds, may change between writing and reading.
//
//   checkpoints/step_00000100/
//     model.safetensors                           one rank held all of the group: any safetensors reader reads it
//     optimizer_rank_00001_of_00004.safetensors   the parts that rank 1 held
//     manifest.json                               the position of the run, and the hash of every piece
//
// Tensors have global names and shapes. Every rank gives the parts that it holds (piece.h); all ranks together must
// give each element exactly once. A rank reads the parts that it needs; these may differ from the parts that were
// given.
//
// A checkpoint is whole or absent: it is written into a hidden directory next to its final place, every file and
// directory is fsynced, and then the directory is renamed. find_newest() takes the newest whole checkpoint and verifies
// every byte of it (XXH64). It passes over checkpoints that are damaged or that the disk cannot read, and names them.
// All ranks must use the same directory, so ranks on several machines need a shared file system. Thread rule: only one
// thread of each rank writes to a directory at a time; any thread may read.
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

// Writes the checkpoint directory/step_N and replaces a checkpoint of the same step. Then keeps this checkpoint and the
// newest other whole checkpoints, `keep` in all (it checks their sizes, not their hashes), and deletes older ones. Also
// deletes checkpoints that set_aside_after() moved, if their steps are not after this one. Returns the checkpoint's
// path. Rank 0's manifest counts; save() overwrites the fields that it sets itself. Collective and blocking: three
// exchanges of a few bytes and one of the manifests. Throws the same error on every rank, and leaves earlier
// checkpoints as they are: IoError (before anything is written if the disk has too little room), or InvalidArgument
// naming a tensor of which an element was given twice or not at all. Cost: one pass over the pieces, and for each file
// an fsync of the file and of its directory.
std::filesystem::path save(const std::filesystem::path& directory, const Manifest& manifest, const Contents& contents,
                           std::int64_t keep, Communicator world = Communicator());

std::string name_of(std::int64_t step);  // "step_00000100"

// For a run that continues from an older checkpoint and gives up the newer ones. Moves the checkpoints of steps after
// `step`, whole or not, to places where no search finds them, and returns their new paths, newest first. The place is
// directory/set_aside, where save() deletes a checkpoint when it saves the same or a later step. Checkpoints in
// `unreadable` (Search), and others that the disk cannot read now, may become readable again: they are moved to
// directory/unreadable and never deleted. Throws IoError when a checkpoint cannot be moved.
std::vector<std::filesystem::path> set_aside_after(const std::filesystem::path& directory, std::int64_t step,
                                                   const std::vector<std::filesystem::path>& unreadable = {});
std::filesystem::path set_aside_path(const std::filesystem::path& directory);

class Checkpoint {
 public:
  // Reads the manifest and compares the files' sizes; does not read their bytes. Throws IoError (66 when there is no
  // checkpoint), DataError naming the damage, and Error 76 for another version of the format.
  explicit Checkpoint(std::filesystem::path path);
  ~Checkpoint();
  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;

  const std::filesystem::path& path() const;
  const Manifest& manifest() const;

  // Reads every byte and compares the hashes. With `shares` > 1 reads only part `share` (0, 1, ...) of `shares` parts
  // of about equal size. Throws DataError naming file, bytes and tensor of the first damage.
  void verify(int share = 0, int shares = 1) const;
  // Reads every byte like verify(), and returns all damage instead of throwing.
  std::vector<std::string> damage() const;

  // target = the target's part of the tensor, assembled from the pieces that hold it. Throws DataError when there is no
  // such tensor, or when it has another type or shape. Does not check hashes.
  void read(std::string_view group, const Target& target) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct Search {
  std::optional<Checkpoint> newest = {};
  std::vector<std::string> damaged = {};               // for each newer one, newest first: why it was passed over
  std::vector<std::filesystem::path> unreadable = {};  // those of these that the disk could not read
};

// Finds the newest whole checkpoint under `directory` (the directory that holds step_N) and verifies it. Finds nothing
// if the directory does not exist. Throws if a checkpoint that cannot be read may be intact: IoError 77 when this user
// may not read it, IoError 71 when memory or descriptors ran out, Error 76 for another version of the format.
Search find_newest(const std::filesystem::path& directory);

// Paths of all checkpoints under `directory`, whole or not, newest first.
std::vector<std::filesystem::path> list(const std::filesystem::path& directory);

// While this object lives, no other job can write checkpoints into `directory`. Throws IoError 73 naming the job that
// holds the lock. On a file system without locks it excludes nobody, and logs a warning unless `warns_without_locks` is
// false.
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
