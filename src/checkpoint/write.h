// The two steps of writing a checkpoint, for one rank after the other or all at once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "reigen/checkpoint/checkpoint.h"

namespace reigen::checkpoint {

// Writes the files of a rank into the hidden directory; gives a manifest of them alone, as text. `givers`: of how many
// ranks a group has parts.
std::string write_own(const std::filesystem::path& hidden, const Contents& contents,
                      const std::map<std::string, int>& givers, int rank, int ranks);

// Puts what the ranks wrote together, writes the manifest and gives the directory its name.
std::filesystem::path finish(const std::filesystem::path& directory, const Manifest& manifest,
                             const std::vector<std::string>& texts, std::int64_t keep);

}  // namespace reigen::checkpoint
