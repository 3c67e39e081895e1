// The two steps of writing a checkpoint, for one rank after the other or all at once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "reigen/checkpoint/checkpoint.h"

namespace reigen::checkpoint {

// Room on the disk for what a rank gives: its bytes, and of its share in headers, manifest and file system about as
// much as they take. Of all ranks together: the sum.
std::uint64_t room_for(const Contents& contents);

// Writes the files of a rank into the hidden directory; gives a manifest of them alone, as text. `givers`: of how many
// ranks a group has parts.
std::string write_own(const std::filesystem::path& hidden, const Contents& contents,
                      const std::map<std::string, int>& givers, int rank, int ranks);

// Puts what the ranks wrote together, writes the manifest and gives the directory its name.
std::filesystem::path finish(const std::filesystem::path& directory, const Manifest& manifest,
                             const std::vector<std::string>& texts, std::int64_t keep);

}  // namespace reigen::checkpoint
