// Converts checkpoints into other forms, without LibTorch and with little memory.
// Thread rule: the functions have no shared state.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reigen/checkpoint/checkpoint.h"
#include "reigen/checkpoint/weights.h"

namespace reigen::checkpoint {

// Rules (old prefix, new prefix) for the names of tensors. For each name, only the first rule whose old prefix begins
// the name is applied. Its new prefix replaces the old prefix. The rule {"module.", ""} changes "module.fc.weight" to
// "fc.weight".
using Renaming = std::vector<std::pair<std::string, std::string>>;
std::string renamed(const std::string& name, const Renaming& rules);

// Writes all tensors of `from` into one safetensors file, whole or not at all. Needs memory for the largest tensor.
// Throws IoError when writing fails. Throws DataError when `from` is damaged or has a tensor that cannot be read;
// Weights::select() can leave this tensor out. Throws InvalidArgument when two tensors would get the same name, when a
// rule fits no tensor, or when `path` is the file that is read.
void write_whole(const Weights& from, const std::filesystem::path& path, const Renaming& rules = {});

// Writes the content of `from` as a new checkpoint under `directory`. The new checkpoint has the files that `ranks`
// ranks would write if each rank held an equally long run of consecutive elements of every tensor (or one element
// more). With one rank the tensors are whole. Returns the path of the checkpoint. Needs memory for the data of one
// rank.
std::filesystem::path reshard(const Checkpoint& from, const std::filesystem::path& directory, int ranks);

}  // namespace reigen::checkpoint
