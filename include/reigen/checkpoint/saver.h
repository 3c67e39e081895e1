// Saves checkpoints while training goes on: save() copies the contents, and a thread writes the copy.
//
//   reigen::checkpoint::Saver saver("run/checkpoints", world, {.keep = 3});
//   for (...) {
//     step();
//     saver.check();                                   // throws the error of a save that failed in the background
//     if (step % 100 == 0) saver.save(manifest, contents);
//   }
//   saver.wait();
//
// At most one save is in flight: the next one waits for it. Training stalls only for the copy, into memory that is kept
// for the next save (as large as what this rank gives). The first time it also stalls while the kernel provides that
// memory, unless prepare() was called before. While the Saver lives, no other job can write to the directory. Thread
// rule: one thread of each rank. The writing threads have a group of their own, which is split off `world`, so that
// their calls may run at the same time as the training's calls.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "reigen/checkpoint/checkpoint.h"

namespace reigen::checkpoint {

struct SaverOptions {
  std::int64_t keep = 3;            // how many whole checkpoints stay
  bool asynchronous = true;         // false: save() returns when the checkpoint is on the disk
  bool warns_without_locks = true;  // warn if the file system has no locks (DirectoryLock)
};

class Saver {
 public:
  // Collective. Throws IoError on every rank: 73 when another job writes there, 74 or 77 when the directory cannot be
  // written.
  Saver(std::filesystem::path directory, Communicator world, const SaverOptions& options = {});
  // Waits for the save that is in flight. An error that no call has thrown yet is logged.
  ~Saver();
  Saver(const Saver&) = delete;  // its thread writes into its memory
  Saver& operator=(const Saver&) = delete;

  // Makes the writing thread take the memory for a copy of contents as large as these, so that the first save need not.
  // It saves nothing and returns at once; the next save waits for it. If it fails, the next save meets the error. If
  // the Saver is not asynchronous it does nothing. Not collective.
  void prepare(const Contents& contents);

  // Collective, as checkpoint::save(). First waits for the save before; if that save failed, throws its error and
  // begins nothing. An asynchronous save's own errors are thrown by a later call.
  void save(const Manifest& manifest, const Contents& contents);

  // Throws the error of the last save, once. Does not wait.
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
