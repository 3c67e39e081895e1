#include "container/write/sharded.h"

#include <fmt/format.h>

#include <utility>

#include "container/sample.h"
#include "container/shards/shard_set.h"

namespace reigen::container {

ShardedFiles::ShardedFiles(const std::filesystem::path& path, const WriterOptions& options, std::string ending,
                           std::function<std::string(format::AtomicFile&)> close)
    : staging_(path, options.force),
      stem_(staging_.target().stem().string()),
      ending_(std::move(ending)),
      close_(std::move(close)),
      shards_(options.shards),
      count_(options.count) {
  std::filesystem::create_directory(staging_.place());
}

std::string ShardedFiles::name_of_shard(int shard) const {
  return stem_ + fmt::format(fmt::runtime(ending_), shard, shards_);
}

format::AtomicFile& ShardedFiles::file_for(std::int64_t sample) {
  // Shard s has the samples from s * count / shards on, so sizes differ by one at most.
  while (shard_ < 0 || (shard_ + 1 < shards_ && sample >= (shard_ + 1) * count_ / shards_)) begin(shard_ + 1);
  return *file_;
}

void ShardedFiles::begin(int shard) {
  end();
  shard_ = shard;
  file_.emplace(staging_.place() / name_of_shard(shard), format::Hashed::kNot);
}

void ShardedFiles::end() {
  if (!file_) return;
  const std::string index = close_(*file_);
  file_->commit();
  file_.reset();
  format::write_file_atomically(index_path_of(staging_.place() / name_of_shard(shard_)), index);
}

void ShardedFiles::finish(const SampleCheck& samples) {
  end();
  Meta meta = samples.meta();
  for (int shard = 0; shard < shards_; ++shard) meta.shards.push_back(name_of_shard(shard));
  format::write_file_atomically(staging_.place() / kHashesName, bytes_of_hashes(samples.hashes()));
  format::write_file_atomically(staging_.place() / kMetaName, std::string_view(to_json(meta)));
  staging_.publish();
}

}  // namespace reigen::container
