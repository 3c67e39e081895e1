// The two steps of writing a checkpoint: write_own() for every rank, then finish() once. All ranks may run write_own()
// at the same time, or one process may run it for one rank after another.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "reigen/checkpoint/checkpoint.h"

namespace reigen::checkpoint {

// The disk space that a rank's contents need: their bytes, and an estimate of this rank's part of headers, manifest and
// file system blocks. A checkpoint needs the sum of these numbers over all ranks.
std::uint64_t room_for(const Contents& contents);

// Writes the files of one rank into the hidden directory, and returns a manifest of these files alone, as text.
// `givers`: for each group of tensors ("model", "optimizer") the number of ranks that have parts of it.
std::string write_own(const std::filesystem::path& hidden, const Contents& contents,
                      const std::map<std::string, int>& givers, int rank, int ranks);

// Merges the ranks' manifests, writes the whole manifest and gives the directory its final name.
std::filesystem::path finish(const std::filesystem::path& directory, const Manifest& manifest,
                             const std::vector<std::string>& texts, std::int64_t keep);

}  // namespace reigen::checkpoint
