// Converts checkpoints into other forms, without LibTorch and with little memory.
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

// The new name of a tensor: the first rule whose first text the name begins with replaces that beginning by its second
// text. With {"module.", ""} "module.fc.weight" becomes "fc.weight".
using Renaming = std::vector<std::pair<std::string, std::string>>;  // "module.", ""
std::string renamed(const std::string& name, const Renaming& rules);

// Writes all tensors into one safetensors file, whole or not at all. Memory: the largest tensor. Throws IoError;
// DataError (also when a tensor cannot be read: Weights::select can leave it out); and InvalidArgument when two tensors
// would get one name, when no tensor fits a rule, or when `path` is the file that is read.
void write_whole(const Weights& from, const std::filesystem::path& path, const Renaming& rules = {});

// Writes the same state again under `directory`, as if `ranks` ranks had written it that hold equal flat shares of
// every tensor; for one rank, whole tensors. Returns the path of the checkpoint. Memory: one share.
std::filesystem::path reshard(const Checkpoint& from, const std::filesystem::path& directory, int ranks);

}  // namespace reigen::checkpoint
