// The files that make up a container: one file, the files of a folder, or those that fit a pattern.
// Thread rule: pure functions of the file system.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "container/meta.h"
#include "reigen/container/container.h"

namespace reigen::container {

struct ShardSet {
  std::string name = {};                          // the path as the user gave it, for messages
  std::vector<std::filesystem::path> files = {};  // in the order of their samples
  std::optional<Meta> meta = {};                  // of a folder that Reigen wrote
  std::vector<std::uint64_t> hashes = {};         // with the meta data
};

// A file or a pattern: "a.tar", "a-{000000..000063}.tar", "train-*-of-00064". Throws IoError with exit code 66 if
// nothing fits, for a file that a range names and that is missing, and for a missing one of -00000-of-00064 and its
// siblings if the pattern means several.
ShardSet shards_of_pattern(const std::filesystem::path& pattern);

// The shards in a folder; no files if it has none, or if it is a folder of classes with an archive left in it
// (has_class_folders). A folder of Reigen has them in __meta__; in another folder the first file decides whether they
// are TFRecords or tars. Throws as shards_of_pattern() and has_class_folders(), and DataError for several sets of
// shards in one folder.
ShardSet shards_in_folder(const std::filesystem::path& folder);

// Whether the folder is an LMDB, by its data.mdb. Throws as has_class_folders().
bool is_lmdb_folder(const std::filesystem::path& folder);

// The path of a shard's index: "a.tar" -> "a.idx", "train-00000-of-00064" -> "train-00000-of-00064.idx".
std::filesystem::path index_path_of(const std::filesystem::path& shard);

// Which shard holds which samples.
class ShardTable {
 public:
  struct Place {
    std::size_t shard = 0;
    std::size_t sample = 0;  // in the shard
  };

  void add(std::size_t samples) { ends_.push_back(size() + static_cast<std::int64_t>(samples)); }
  std::int64_t size() const { return ends_.empty() ? 0 : ends_.back(); }
  Place at(std::int64_t index) const;  // 0..size()-1

 private:
  std::vector<std::int64_t> ends_;  // the first sample after each shard
};

// Throws DataError unless the shards hold as many samples as the meta data say, and at least one.
void require_count(const ShardSet& set, std::int64_t count);

// The content of a small file. Throws IoError, and DataError for more than `most` bytes.
std::string read_small_file(const std::filesystem::path& path, std::uint64_t most);

}  // namespace reigen::container
