#include "reigen/checkpoint/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/check.h"
#include "checkpoint/directory.h"
#include "checkpoint/write.h"
#include "reigen/format/safetensors.h"

namespace reigen::checkpoint {

namespace fs = std::filesystem;

std::string renamed(const std::string& name, const Renaming& rules) {
  for (const auto& [from, to] : rules) {
    if (name.starts_with(from)) return to + name.substr(from.size());
  }
  return name;
}

void write_whole(const Weights& from, const fs::path& path, const Renaming& rules) {
  std::error_code ignored;
  REIGEN_CHECK(!fs::equivalent(path, from.path(), ignored), "{} would take the place of what is read", path.string());
  from.require_readable();
  for (const auto& rule : rules) {
    const auto fits = [&](const TensorInfo& tensor) { return tensor.name.starts_with(rule.first); };
    REIGEN_CHECK(std::any_of(from.tensors().begin(), from.tensors().end(), fits),
                 "no name begins with \"{}\", which is to become \"{}\"\n  got: {}", rule.first, rule.second,
                 from.tensors().empty() ? "no tensors" : from.tensors().front().name + ", ...");
  }
  std::map<std::string, std::string> old_names;
  std::vector<format::TensorEntry> entries;
  for (const TensorInfo& tensor : from.tensors()) {
    const std::string name = renamed(tensor.name, rules);
    const auto [place, is_new] = old_names.emplace(name, tensor.name);
    REIGEN_CHECK(is_new, "{} and {} would both be named \"{}\"", place->second, tensor.name, name);
    entries.push_back({.name = name, .type = tensor.type, .shape = tensor.shape});
  }
  std::map<std::string, std::string> metadata = from.metadata();
  metadata.emplace("format", "pt");
  format::SafetensorsWriter writer(path, std::move(entries), metadata);
  std::vector<std::byte> bytes;
  for (const format::TensorEntry& entry : writer.tensors()) {
    bytes.resize(static_cast<std::size_t>(entry.bytes));
    from.read(old_names.at(entry.name), bytes);
    writer.write(bytes);
  }
  writer.commit();
}

namespace {

struct Shares {
  std::vector<std::vector<std::byte>> memory;
  Contents contents;
};

Shares shares_of(const Checkpoint& from, int rank, int ranks) {
  Shares result;
  for (const auto& [group, tensors] : from.manifest().groups) {
    for (const StoredTensor& tensor : tensors) {
      const std::int64_t count = layout::numel(tensor.shape);
      const std::int64_t begin = count / ranks * rank + std::min<std::int64_t>(rank, count % ranks);
      const std::int64_t size = count / ranks + (rank < count % ranks ? 1 : 0);
      const bool is_whole = size == count;
      if (size == 0 && !(count == 0 && rank == 0)) continue;
      const Part part = is_whole ? layout::whole(tensor.shape) : layout::flat_part(tensor.shape, begin, size);
      auto& bytes = result.memory.emplace_back(static_cast<std::size_t>(size) * format::size_of(tensor.type));
      from.read(group, {tensor.name, tensor.type, tensor.shape, part, bytes});
      result.contents[group].push_back({tensor.name, tensor.type, tensor.shape, part, bytes});
    }
  }
  return result;
}

}  // namespace

fs::path reshard(const Checkpoint& from, const fs::path& directory, int ranks) {
  REIGEN_CHECK(ranks >= 1, "a checkpoint of {} ranks", ranks);
  const DirectoryLock lock(directory);
  remove_unfinished(directory);
  require_room(directory, from.manifest().bytes());
  make_directories(hidden_path_of(directory, from.manifest().step));
  const Unfinished unfinished{hidden_path_of(directory, from.manifest().step)};
  std::map<std::string, int> givers;
  for (const auto& [group, tensors] : from.manifest().groups) givers[group] = ranks;
  std::vector<std::string> texts;
  for (int rank = 0; rank < ranks; ++rank) {
    texts.push_back(write_own(unfinished.path, shares_of(from, rank, ranks).contents, givers, rank, ranks));
  }
  Manifest manifest = from.manifest();
  manifest.world_size = ranks;
  manifest.mesh.clear();
  return finish(directory, manifest, texts, INT64_MAX);
}

}  // namespace reigen::checkpoint
