#include "container/shards/shard_set.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <map>
#include <system_error>
#include <utility>

#include "base/text.h"
#include "container/folder/class_folders.h"
#include "container/folder/walk.h"
#include "container/sample.h"
#include "container/shards/detect.h"
#include "format/input_file.h"
#include "reigen/base/error.h"

namespace reigen::container {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMostMeta = std::uint64_t{1} << 28;
constexpr std::uint64_t kMostHashes = std::uint64_t{1} << 40;
constexpr std::int64_t kMostFiles = 1'000'000;  // of a range

// "train-00003-of-00064" and "train.tfrecord-00003-of-00064.gz": the parts before and after the two numbers.
struct Numbered {
  std::string before;
  std::string after;
  std::int64_t number = 0;
  std::int64_t of = 0;
  std::size_t width = 0;  // digits of the number
};

std::size_t digits_at(const std::string& text, std::size_t at) {
  std::size_t count = 0;
  while (at + count < text.size() && text[at + count] >= '0' && text[at + count] <= '9') ++count;
  return count;
}

std::optional<Numbered> numbered(const std::string& name) {
  const auto of = name.find("-of-");
  if (of == std::string::npos) return std::nullopt;
  std::size_t begin = of;
  while (begin > 0 && name[begin - 1] >= '0' && name[begin - 1] <= '9') --begin;
  const std::size_t after = of + 4;
  const std::size_t digits = digits_at(name, after);
  const auto number = base::parse<std::int64_t>(name.substr(begin, of - begin));
  const auto all = base::parse<std::int64_t>(name.substr(after, digits));
  if (!number || !all || *all > kMostFiles) return std::nullopt;
  return Numbered{name.substr(0, begin), name.substr(after + digits), *number, *all, of - begin};
}

[[noreturn]] void fail_of_missing(const fs::path& missing, const std::string& name) {
  throw IoError(Report{.what = fmt::format("a shard of '{}' is missing", name),
                       .got = fmt::format("no file '{}'", missing.string()),
                       .expected = "all shards",
                       .fix = "fetch or restore it; a pattern can also name fewer shards"},
                ExitCode::kInputMissing);
}

void require_there(const fs::path& path, const std::string& name) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) fail_of_missing(path, name);
}

// Files with -00003-of-00064 in their names must be one set, and all of it.
void require_whole(const std::vector<fs::path>& files, const std::string& name) {
  std::map<std::pair<std::string, std::int64_t>, std::vector<fs::path>> sets;
  for (const fs::path& file : files) {
    if (const auto parts = numbered(file.filename().string())) sets[{parts->before, parts->of}].push_back(file);
  }
  if (sets.size() > 1) {
    const auto& first = sets.begin()->second.front();
    const auto& other = std::next(sets.begin())->second.front();
    throw DataError(Report{.what = fmt::format("several sets of shards in '{}'", name),
                           .got = fmt::format("'{}' and '{}'", first.filename().string(), other.filename().string()),
                           .expected = "one set",
                           .fix = fmt::format("give a pattern: '{}'",
                                              (first.parent_path() / (sets.begin()->first.first + "*")).string())});
  }
  for (const auto& [key, shards] : sets) {
    const Numbered parts = *numbered(shards.front().filename().string());
    for (std::int64_t i = 0; i < key.second; ++i) {
      const fs::path path =
          shards.front().parent_path() / fmt::format("{}{:0{}}-of-{}{}", parts.before, i, parts.width,
                                                     fmt::format("{:0{}}", key.second, parts.width), parts.after);
      if (std::find(files.begin(), files.end(), path) == files.end()) fail_of_missing(path, name);
    }
  }
}

// "a-{000000..000063}.tar" as 64 names; nothing without such a range.
std::vector<std::string> expanded(const std::string& text) {
  const auto open = text.find('{');
  const auto dots = text.find("..", open);
  const auto close = text.find('}', open);
  if (open == std::string::npos || dots == std::string::npos || close == std::string::npos || dots > close) return {};
  const std::string from_text = text.substr(open + 1, dots - open - 1);
  const auto from = base::parse<std::int64_t>(from_text);
  const auto to = base::parse<std::int64_t>(text.substr(dots + 2, close - dots - 2));
  if (!from || !to || *from < 0 || *to < *from || *to - *from >= kMostFiles) {
    throw InvalidArgument(Report{.what = fmt::format("'{}' is no pattern of shards", text),
                                 .got = text.substr(open, close - open + 1),
                                 .expected = "a range such as {000000..000063}",
                                 .fix = "check the two numbers"});
  }
  std::vector<std::string> names;
  for (std::int64_t i = *from; i <= *to; ++i) {
    names.push_back(fmt::format("{}{:0{}}{}", text.substr(0, open), i, from_text.size(), text.substr(close + 1)));
  }
  return names;
}

std::vector<fs::path> files_that_fit(const fs::path& pattern) {
  const fs::path folder = pattern.has_parent_path() ? pattern.parent_path() : fs::path(".");
  const std::string wanted = pattern.filename().string();
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator at(folder, error); !error && at != fs::directory_iterator(); at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (::fnmatch(wanted.c_str(), name.c_str(), FNM_PERIOD) != 0 || name.ends_with(".idx")) continue;
    files.push_back(pattern.has_parent_path() ? at->path() : fs::path(name));
  }
  std::sort(files.begin(), files.end());
  return files;
}

// The index files, what is hidden, and Reigen's own files are no shards.
bool may_be_shard(const fs::directory_entry& entry) {
  const std::string name = entry.path().filename().string();
  std::error_code ignored;
  return entry.is_regular_file(ignored) && !name.starts_with('.') && !name.starts_with("__") &&
         !name.ends_with(".idx") && !name.ends_with(".tmp");
}

}  // namespace

std::string read_small_file(const fs::path& path, std::uint64_t most) {
  const format::InputFile file(path);
  if (file.size() > most) {
    fail_damaged(fmt::format("'{}'", path.string()), fmt::format("{} bytes", file.size()),
                 fmt::format("at most {}", most));
  }
  std::string text(file.size(), '\0');
  text.resize(file.read_at(0, std::as_writable_bytes(std::span(text.data(), text.size()))));
  return text;
}

ShardSet shards_of_pattern(const fs::path& pattern) {
  ShardSet set{.name = pattern.string()};
  std::error_code ignored;
  if (fs::exists(pattern, ignored)) {
    set.files = {pattern};
    return set;
  }
  for (const std::string& name : expanded(pattern.string())) {
    require_there(name, set.name);
    set.files.emplace_back(name);
  }
  if (!set.files.empty()) return set;
  if (pattern.filename().string().find_first_of("*?[") != std::string::npos) set.files = files_that_fit(pattern);
  if (set.files.empty()) format::InputFile{pattern};  // throws for a missing file
  require_whole(set.files, set.name);
  return set;
}

ShardSet shards_in_folder(const fs::path& folder) {
  ShardSet set{.name = folder.string()};
  std::error_code ignored;
  const fs::path meta = folder / kMetaName;
  if (fs::exists(meta, ignored)) {
    set.meta = parse_meta(read_small_file(meta, kMostMeta), fmt::format("'{}'", meta.string()));
    const std::string hashes = read_small_file(folder / kHashesName, kMostHashes);
    set.hashes = parse_hashes(bytes_of_text(hashes), *set.meta, fmt::format("'{}'", set.name));
    for (const std::string& name : set.meta->shards) {
      set.files.push_back(folder / name);
      require_there(set.files.back(), set.name);
    }
    return set;
  }
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (may_be_shard(entry)) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  for (const fs::path& file : files) {
    const FileForm form = form_of_file(file);
    const bool is_shard = form.kind == ContainerKind::kTar || form.kind == ContainerKind::kTfRecord;
    const std::string name = lower(file.filename().string());
    const bool is_packed_tar =
        !form.packed_by.empty() && (name.find(".tar") != std::string::npos || name.ends_with(".tgz"));
    // A shard that is damaged at its beginning must not be left out in silence.
    const bool has_name = numbered(name).has_value() || name.ends_with(".tar") || name.ends_with(".tfrecord");
    if (is_shard || is_packed_tar || has_name) set.files.push_back(file);
  }
  if (!set.files.empty() && has_class_folders(folder, set.files[0], set.files.size() == 1)) return {.name = set.name};
  require_whole(set.files, set.name);
  return set;
}

bool is_lmdb_folder(const fs::path& folder) {
  std::error_code ignored;
  const fs::path file = folder / "data.mdb";
  return fs::exists(file, ignored) && !has_class_folders(folder, file, /*is_alone=*/false);
}

ShardTable::Place ShardTable::at(std::int64_t index) const {
  const auto end = std::upper_bound(ends_.begin(), ends_.end(), index);
  const std::int64_t first = end == ends_.begin() ? 0 : *std::prev(end);
  return {static_cast<std::size_t>(end - ends_.begin()), static_cast<std::size_t>(index - first)};
}

void require_count(const ShardSet& set, std::int64_t count) {
  if (set.meta && count != set.meta->count) {
    fail_damaged(fmt::format("'{}'", set.name), fmt::format("{} samples in its shards", count),
                 fmt::format("{}, as {} says", set.meta->count, kMetaName));
  }
  if (count > 0) return;
  throw DataError(Report{.what = fmt::format("'{}' has no samples", set.name),
                         .got = fmt::format("{} files without samples", set.files.size()),
                         .expected = "at least one sample",
                         .fix = "check the path"});
}

fs::path index_path_of(const fs::path& shard) {
  const std::string ending = shard.extension().string();
  if (ending == ".tar" || ending == ".tfrecord" || ending == ".tfrecords")
    return fs::path(shard).replace_extension(".idx");
  return shard.string() + ".idx";
}

}  // namespace reigen::container
