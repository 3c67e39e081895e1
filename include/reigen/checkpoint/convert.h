// Checkpoints into other forms, without LibTorch and with little memory.
// Thread rule: no shared state.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reigen/checkpoint/checkpoint.h"
#include "reigen/checkpoint/weights.h"

namespace reigen::checkpoint {

// A tensor's new name: the first rule whose beginning it has puts another in its place.
using Renaming = std::vector<std::pair<std::string, std::string>>;  // "module.", ""
std::string renamed(const std::string& name, const Renaming& rules);

// Writes all tensors into one safetensors file, whole or not at all. Memory: the largest tensor. Throws IoError,
// DataError (also where a tensor cannot be read: Weights::select leaves it out), and InvalidArgument when two tensors
// get one name, a rule fits none, or the file is what is read.
void write_whole(const Weights& from, const std::filesystem::path& path, const Renaming& rules = {});

// Writes the same state once more under `directory`, as `ranks` ranks would that hold equal flat shares of every
// tensor; one rank: whole tensors. Returns the path of the checkpoint. Memory: a share.
std::filesystem::path reshard(const Checkpoint& from, const std::filesystem::path& directory, int ranks);

}  // namespace reigen::checkpoint
