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

// Rules (old prefix, new prefix) for the names of tensors. The first rule whose old prefix a name has replaces this
// prefix by the new one. The rule {"module.", ""} makes "fc.weight" of "module.fc.weight".
using Renaming = std::vector<std::pair<std::string, std::string>>;  // "module.", ""
std::string renamed(const std::string& name, const Renaming& rules);

// Writes all tensors into one safetensors file, whole or not at all. Memory: the largest tensor. Throws IoError;
// DataError (also for a tensor that cannot be read: leave it out with Weights::select); and InvalidArgument when two
// tensors would get one name, when a rule fits no tensor, or when `path` is the file that is read.
void write_whole(const Weights& from, const std::filesystem::path& path, const Renaming& rules = {});

// Writes the same state as a new checkpoint under `directory`, in the form in which `ranks` ranks write it that hold
// equal flat shares of every tensor; with one rank the tensors are whole. Returns the path of the checkpoint. Memory:
// one share.
std::filesystem::path reshard(const Checkpoint& from, const std::filesystem::path& directory, int ranks);

}  // namespace reigen::checkpoint
