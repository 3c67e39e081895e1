// The files of a container of several shards, in the folder where it is written. Samples are in the order of the
// shards. Thread rule: belongs to one thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "container/write/samples.h"
#include "container/write/staging.h"
#include "reigen/format/atomic_file.h"

namespace reigen::container {

class ShardedFiles {
 public:
  // `ending` ("-{0:05}-of-{1:05}", "-{0:06}.tar") makes the names of shards, after the stem of the path. `close` writes
  // what ends a shard, and returns the text of its index.
  ShardedFiles(const std::filesystem::path& path, const WriterOptions& options, std::string ending,
               std::function<std::string(format::AtomicFile&)> close);

  // The file for the sample of this index. The indices come in order.
  format::AtomicFile& file_for(std::int64_t sample);
  // Closes the last shard, writes __meta__ and __hashes__, and publishes the folder.
  void finish(const SampleCheck& samples);

 private:
  void begin(int shard);
  void end();
  std::string name_of_shard(int shard) const;

  Staging staging_;
  std::string stem_;
  std::string ending_;
  std::function<std::string(format::AtomicFile&)> close_;
  int shards_;
  std::int64_t count_;
  int shard_ = -1;
  std::optional<format::AtomicFile> file_;
};

}  // namespace reigen::container
