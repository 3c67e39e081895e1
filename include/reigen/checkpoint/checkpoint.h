// A checkpoint holds everything that a run needs to continue as if it had never stopped. The number of ranks, and the
// parts that each rank holds, may change between writing and reading.
//
// Each rank passes to save() the parts of tensors that it gives to the checkpoint. Tensors are stored in named groups,
// such as "model" and "optimizer". If one rank gives all tensors of a group, the group is one file, which any
// safetensors reader reads. Otherwise each rank that gives parts of the group writes a file:
//
//   checkpoints/step_00000100/
//     model.safetensors                           the whole group "model", which one rank gave
//     optimizer_rank_00001_of_00004.safetensors   the parts that rank 1 of 4 gave of the group "optimizer"
//     manifest.json                               the position of the run, and the hash of every part
//
// A tensor has the same name and the same whole shape on all ranks. Every rank gives the parts that it holds (piece.h);
// all ranks together must give each element exactly once. When a checkpoint is read, a rank may ask for other parts
// than those that were written.
//
// A checkpoint is either whole or absent: it is written into a hidden directory next to its final place, every file and
// directory is fsynced, and then the directory is renamed. find_newest() returns the newest whole checkpoint. To know
// that a checkpoint is whole, it reads every byte and compares the hashes (XXH64). It passes over checkpoints that are
// damaged or that the disk cannot read, and reports them too. All ranks must use the same directory, so ranks on
// several machines need a shared file system. Thread rule: only one thread of each rank writes to a directory at a
// time; any thread may read.
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

// The parts of tensors that a rank gives, by group: {"model", ...}, {"optimizer", ...}.
using Contents = std::map<std::string, std::vector<Piece>>;

// Writes the checkpoint directory/step_N and replaces a checkpoint of the same step. Then keeps this checkpoint and the
// newest other whole checkpoints, `keep` in all, and deletes older ones. To find out which checkpoints are whole, it
// checks the sizes of their files, not their hashes. Also deletes the checkpoints of this step and of earlier steps
// that set_aside_after() moved. Returns the checkpoint's path. Only rank 0's `manifest` is used; save() overwrites the
// fields that it sets itself (manifest.h). Collective and blocking: the ranks exchange a few bytes three times, and
// once the lists of the parts that they have written. If writing fails on any rank, every rank throws the same IoError.
// If the disk has too little room, this error comes before anything is written. If an element of a tensor was given
// twice or not at all, every rank throws InvalidArgument naming the tensor. After an error the earlier checkpoints are
// unchanged. Cost: one pass over the given parts, and for each file an fsync of the file and of its directory.
std::filesystem::path save(const std::filesystem::path& directory, const Manifest& manifest, const Contents& contents,
                           std::int64_t keep, Communicator world = Communicator());

std::string name_of(std::int64_t step);  // "step_00000100"

// For a run that continues from the checkpoint of `step` and gives up the newer checkpoints. Moves the checkpoints of
// later steps, whole or not, to folders in which find_newest() and list() do not look, and returns their new paths,
// newest first. Most are moved to directory/set_aside. When save() saves a step, it deletes the checkpoints of this
// step and of earlier steps from that folder. Checkpoints that the disk cannot read now, and those in `unreadable`
// (Search::unreadable), may become readable again. So they are moved to directory/unreadable and never deleted. Throws
// IoError when a checkpoint cannot be moved.
std::vector<std::filesystem::path> set_aside_after(const std::filesystem::path& directory, std::int64_t step,
                                                   const std::vector<std::filesystem::path>& unreadable = {});
std::filesystem::path set_aside_path(const std::filesystem::path& directory);  // directory/set_aside

class Checkpoint {
 public:
  // Reads the manifest and compares the files' sizes; does not read their bytes. Throws IoError with exit code 66 when
  // there is no checkpoint, DataError naming the damage, and an Error with exit code 76 when the checkpoint has another
  // version of the format.
  explicit Checkpoint(std::filesystem::path path);
  ~Checkpoint();
  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;

  const std::filesystem::path& path() const;
  const Manifest& manifest() const;

  // Reads every byte and compares the hashes with those in the manifest. With `shares` > 1 the bytes are divided into
  // `shares` shares of about equal size, and verify() reads only number `share` (0, 1, ...). Throws DataError naming
  // file, bytes and tensor of the first damage.
  void verify(int share = 0, int shares = 1) const;
  // Reads every byte like verify(), and returns all damage instead of throwing.
  std::vector<std::string> damage() const;

  // Fills target.bytes with the elements of target.part of the tensor target.name, whichever files hold them. Throws
  // DataError when there is no such tensor, or when it has another type or shape. Does not check hashes.
  void read(std::string_view group, const Target& target) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct Search {
  std::optional<Checkpoint> newest = {};
  // Why each checkpoint that is newer than `newest` was passed over. The reason for the newest checkpoint comes first.
  std::vector<std::string> damaged = {};
  std::vector<std::filesystem::path> unreadable = {};  // the newer checkpoints that the disk could not read
};

// Finds the newest whole checkpoint under `directory` (the directory that holds step_N) and verifies it. Finds nothing
// if the directory does not exist. Throws if a checkpoint cannot be read now but may be intact: IoError with exit code
// 77 when this user has no permission to read it, IoError with exit code 71 when memory or descriptors ran out, and an
// Error with exit code 76 when it has another version of the format.
Search find_newest(const std::filesystem::path& directory);

// Paths of all checkpoints under `directory`, whole or not, newest first.
std::vector<std::filesystem::path> list(const std::filesystem::path& directory);

// While this object lives, no other job can write checkpoints into `directory`. Throws IoError with exit code 73 naming
// the job that holds the lock. On a file system without locks it excludes nobody, and logs a warning unless
// `warns_without_locks` is false.
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
