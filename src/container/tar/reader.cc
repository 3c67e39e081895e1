// Reads tar files as WebDataset divides them into samples.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "container/readers.h"
#include "container/sample.h"
#include "container/tar/members.h"
#include "container/tar/parts.h"

namespace reigen::container {
namespace {

constexpr std::uint64_t kMostTarIndex = std::uint64_t{1} << 34;  // bytes

struct TarShard {
  format::InputFile file;
  TarIndex index;
  std::vector<std::int64_t> ending_of_field;  // its number in the index; -1 if no file of the shard has it
};

TarIndex index_of(const format::InputFile& file, bool use_index) {
  const std::filesystem::path path = index_path_of(file.path());
  std::error_code ignored;
  if (use_index && std::filesystem::exists(path, ignored)) {
    // An index that does not fit is of another file. The scan gives the right one.
    auto index = parse_tar_index(read_small_file(path, kMostTarIndex), file.size());
    if (index && ends_as_indexed(file, *index)) return std::move(*index);
  }
  return scan_tar(file);
}

class TarReader final : public Reader {
 public:
  TarReader(const ShardSet& set, const OpenOptions& options) : name_(set.name) {
    for (const auto& path : set.files) {
      format::InputFile file(path);
      TarIndex index = index_of(file, options.use_index);
      table_.add(index.samples());
      shards_.push_back({std::move(file), std::move(index), {}});
    }
    require_count(set, table_.size());
    parts_ = fields_of_tar(set, options, first_sample());
    if (parts_.are_all) hashes_ = set.hashes;
    for (TarShard& shard : shards_) {
      const auto& endings = shard.index.endings;
      for (const std::string& ending : parts_.endings) {
        const auto found = std::find(endings.begin(), endings.end(), ending);
        shard.ending_of_field.push_back(found == endings.end() ? -1 : found - endings.begin());
      }
    }
  }

  ContainerKind kind() const override { return ContainerKind::kTar; }
  std::string name() const override { return name_; }
  std::int64_t size() const override { return table_.size(); }
  const std::vector<Field>& fields() const override { return parts_.fields; }
  const std::vector<std::string>& classes() const override { return parts_.classes; }
  std::span<const std::uint64_t> hashes() const override { return hashes_; }
  std::vector<std::string> stored_names() const override { return parts_.stored; }

  std::uint64_t stored_bytes() const override {
    std::uint64_t sum = 0;
    for (const TarShard& shard : shards_) sum += shard.file.size();
    return sum;
  }

  std::string where(std::int64_t index) const override {
    const auto place = table_.at(index);
    const TarShard& shard = shards_[place.shard];
    return fmt::format("{}, offset {}", std::filesystem::path(shard.file.path()).filename().string(),
                       shard.index.files[shard.index.firsts[place.sample]].offset);
  }

  Record read(std::int64_t index) const override {
    require_index(*this, index);
    const auto place = table_.at(index);
    const TarShard& shard = shards_[place.shard];
    std::vector<std::vector<std::byte>> files;
    for (std::size_t i = 0; i < parts_.fields.size(); ++i) {
      const TarFile* const file = find(shard, place.sample, shard.ending_of_field[i]);
      if (file == nullptr) {
        fail_damaged(place_of(*this, index), fmt::format("no file .{}", parts_.endings[i]),
                     "the files of the first sample");
      }
      files.push_back(bytes_of_file(shard, *file, index));
    }
    return parts_.record_of(std::move(files), place_of(*this, index));
  }

 private:
  static const TarFile* find(const TarShard& shard, std::size_t sample, std::int64_t ending) {
    for (std::uint64_t i = shard.index.firsts[sample]; i < shard.index.firsts[sample + 1]; ++i) {
      if (shard.index.files[i].ending == ending) return &shard.index.files[i];
    }
    return nullptr;
  }

  std::vector<std::byte> bytes_of_file(const TarShard& shard, const TarFile& file, std::int64_t index) const {
    std::vector<std::byte> bytes(file.size);
    if (shard.file.read_at(file.offset, bytes) != bytes.size()) {
      fail_damaged(place_of(*this, index), "the end of the file",
                   fmt::format("{} bytes at offset {}", file.size, file.offset));
    }
    return bytes;
  }

  std::vector<TarPart> first_sample() const {
    const auto place = table_.at(0);
    const TarShard& shard = shards_[place.shard];
    std::vector<TarPart> parts;
    for (std::uint64_t i = shard.index.firsts[place.sample]; i < shard.index.firsts[place.sample + 1]; ++i) {
      const TarFile& file = shard.index.files[i];
      parts.push_back({shard.index.endings[file.ending], bytes_of_file(shard, file, 0)});
    }
    return parts;
  }

  std::string name_;
  std::vector<TarShard> shards_;
  ShardTable table_;
  TarFields parts_;
  std::vector<std::uint64_t> hashes_;
};

}  // namespace

std::unique_ptr<Reader> open_tar(const ShardSet& shards, const OpenOptions& options) {
  return std::make_unique<TarReader>(shards, options);
}

}  // namespace reigen::container
