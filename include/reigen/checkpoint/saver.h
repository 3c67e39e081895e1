// Saves checkpoints beside the work that goes on: what is given is copied, and a thread writes the copy.
//
//   reigen::checkpoint::Saver saver("run/checkpoints", world, {.keep = 3});
//   for (...) {
//     step();
//     saver.check();                                   // a save that failed in the background is told here
//     if (step % 100 == 0) saver.save(manifest, contents);
//   }
//   saver.wait();
//
// One save is under way at most: the next one waits for it. The stall is that of the copy, into memory that is kept for
// the next (as large as what this rank gives), and the first time also that of the kernel's giving it, unless
// prepare() had it taken before. No other job writes into the directory while it lives.
// Thread rule: one thread of each rank. The group for the writing threads is split off `world`, so its calls may run at
// the same time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "reigen/checkpoint/checkpoint.h"

namespace reigen::checkpoint {

struct SaverOptions {
  std::int64_t keep = 3;            // of whole ones
  bool asynchronous = true;         // false: save() returns when the checkpoint is on the disk
  bool warns_without_locks = true;  // of a file system that has none (DirectoryLock)
};

class Saver {
 public:
  // Collective. Throws IoError on every rank: 73 when another job writes there, 74 and 77 when nobody can.
  Saver(std::filesystem::path directory, Communicator world, const SaverOptions& options = {});
  // Waits for what is under way. An error that nobody has heard of is logged.
  ~Saver();
  Saver(const Saver&) = delete;  // its thread writes into its memory
  Saver& operator=(const Saver&) = delete;

  // Takes the memory for copies of contents as large as these, in the thread that writes. Nothing is saved, and returns
  // at once; a save waits for it. What goes wrong the save meets. Synchronous: does nothing. This rank's alone.
  void prepare(const Contents& contents);

  // Collective, as checkpoint::save(). Waits for the one before; throws its error, then nothing is begun. Asynchronous:
  // what this save itself meets is thrown by a later call.
  void save(const Manifest& manifest, const Contents& contents);

  // Throws what the last save met, once. Does not wait.
  void check();
  // Waits for the last save, then check().
  void wait();
  bool is_saving() const;
  // The newest checkpoint that a save of this object completed.
  std::optional<std::filesystem::path> last() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace reigen::checkpoint
