// Saves checkpoints while training continues: save() copies the contents, and a thread writes the copy.
//
//   reigen::checkpoint::Saver saver("run/checkpoints", world, {.keep = 3});
//   for (...) {
//     step();
//     saver.check();                                   // throws the error of a save that failed in the background
//     if (step % 100 == 0) saver.save(manifest, contents);
//   }
//   saver.wait();
//
// At most one save is in flight: the next save waits for it. Training waits only for the copy. The copy needs as much
// memory as the contents that this rank gives; the memory is kept for the next save. The first save also waits until
// the kernel has provided this memory, unless prepare() was called before. While the Saver lives, no other job can
// write to the directory. The writing threads of the ranks communicate in a group of their own, which is split off
// `world`. So the calls of these threads may run at the same time as the training's calls.
// Thread rule: only one thread of each rank calls the functions.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "reigen/checkpoint/checkpoint.h"

namespace reigen::checkpoint {

struct SaverOptions {
  std::int64_t keep = 3;            // how many whole checkpoints are kept
  bool asynchronous = true;         // false: save() returns when the checkpoint is on the disk
  bool warns_without_locks = true;  // warn if the file system has no locks (DirectoryLock)
};

class Saver {
 public:
  // Collective. Throws IoError on every rank: with exit code 73 when another job writes to the directory, with 77 when
  // the permission to write to the directory is missing, and with 74 when writing to it is impossible for another
  // reason.
  Saver(std::filesystem::path directory, Communicator world, const SaverOptions& options = {});
  // Waits for the save that is in flight. Logs an error that no call has thrown yet.
  ~Saver();
  Saver(const Saver&) = delete;  // the writing thread uses the memory of this object
  Saver& operator=(const Saver&) = delete;

  // Makes the writing thread allocate the memory for a copy of contents of this size, so that the first save need not
  // wait for the allocation. Saves nothing. Returns at once unless the writing thread is busy. The next save waits
  // until the allocation is done; if the allocation failed, the next save tries again. Does nothing if the Saver is not
  // asynchronous. Not collective.
  void prepare(const Contents& contents);

  // Collective, as checkpoint::save(). First waits for the previous save; if that save failed, throws its error and
  // begins nothing. The error of an asynchronous save is thrown by a later call of save(), check() or wait(). If there
  // is no memory for the copy, this rank logs a warning and writes its contents before save() returns.
  void save(const Manifest& manifest, const Contents& contents);

  // If the last save has failed, throws its error, but only once. Does not wait.
  void check();
  // Waits for the last save, then calls check().
  void wait();
  bool is_saving() const;
  // The newest checkpoint that a save of this object has completed.
  std::optional<std::filesystem::path> last() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace reigen::checkpoint
