// Checkpoints: what a run needs to go on as if it had never stopped.
//
//   checkpoints/step_00000100/model.safetensors       parameters and buffers
//                             optimizer.safetensors   "<parameter>.<what>"
//                             manifest.json           where the run was, its options, size and hash of both files
//
// A checkpoint is whole or absent: written into a hidden directory beside, every file fsynced, then renamed. Reading
// verifies every byte (XXH64) and takes the newest whole one; what is damaged is named and passed over.
// Thread rule: one thread (of one rank) writes a directory at a time; reading is free.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "reigen/checkpoint/tensors.h"

namespace reigen::checkpoint {

struct Manifest {
  std::int64_t step = 0;      // steps done
  std::int64_t epoch = 0;     // of the next sample
  std::int64_t position = 0;  // samples of that epoch that are used up, over all ranks
  std::int64_t global_batch = 0;
  std::int64_t seed = 0;
  std::int64_t world_size = 1;  // of the run that wrote it
  std::int64_t optimizer_steps = 0;
  std::map<std::string, std::string> options = {};  // of the run, as text
  std::string version = {};                         // of the program that wrote it; set by save()
};

struct Contents {
  std::vector<NamedTensor> model;
  std::vector<NamedTensor> optimizer;
};

// Writes checkpoints/step_N under `directory`, replacing a checkpoint of the same step, then deletes all but the `keep`
// newest whole ones (of those before, sizes are checked, not hashes). Returns its path. Throws IoError; what was there
// stays. Cost: one pass over the tensors and two fsyncs a file.
std::filesystem::path save(const std::filesystem::path& directory, const Manifest& manifest, const Contents& contents,
                           std::int64_t keep);

// Deletes the checkpoints of steps after `step`: those of a future that a run which goes on from an older one gave up.
void drop_after(const std::filesystem::path& directory, std::int64_t step);

struct Found {
  std::filesystem::path path;
  Manifest manifest;
};

// Reads and verifies one checkpoint. Throws IoError (66 when it is not there), DataError naming the damaged file, and
// Error 76 when a newer version of the format wrote it.
Found open(const std::filesystem::path& path);

struct Search {
  std::optional<Found> newest = {};
  std::vector<std::string> damaged = {};  // why newer ones were passed over, newest first
};

// The newest whole checkpoint under `directory` (the one that holds step_N). An absent directory holds none.
Search find_newest(const std::filesystem::path& directory);

// Reads the tensors of a checkpoint that open() or find_newest() found.
std::vector<NamedTensor> read_optimizer(const Found& found);
void read_model_into(const Found& found, const std::vector<NamedTensor>& model);

}  // namespace reigen::checkpoint
