// The readers of the kinds of containers; container::open() chooses one by the content. They throw what open() throws.
// Thread rule: as of open().
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "container/shards/shard_set.h"
#include "reigen/container/container.h"

namespace reigen::container {

std::unique_ptr<Reader> open_class_folders(const std::filesystem::path& path, const OpenOptions& options);
std::unique_ptr<Reader> open_flat_folder(const std::filesystem::path& path, const OpenOptions& options);
std::unique_ptr<Reader> open_lmdb(const std::filesystem::path& path, const OpenOptions& options);
std::unique_ptr<Reader> open_hdf5(const std::filesystem::path& path, const OpenOptions& options);
std::unique_ptr<Reader> open_tfrecord(const ShardSet& shards, const OpenOptions& options);
std::unique_ptr<Reader> open_tar(const ShardSet& shards, const OpenOptions& options);
// Compressed tars through libarchive, in order only.
std::unique_ptr<Reader> open_packed_tar(const ShardSet& shards, const OpenOptions& options);

}  // namespace reigen::container
