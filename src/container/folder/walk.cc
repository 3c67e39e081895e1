#include "container/folder/walk.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <set>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "reigen/base/error.h"

namespace reigen::container {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kOfSystems[] = {"lost+found", "__macosx",     "@eadir",
                                           "#recycle",   "$recycle.bin", "system volume information"};

// Identifies a folder, independently of the path or link through which it was found.
using Identity = std::pair<dev_t, ino_t>;

bool is_of_a_system(const std::string& name) {
  const std::string low = lower(name);
  return std::find(std::begin(kOfSystems), std::end(kOfSystems), low) != std::end(kOfSystems);
}

[[noreturn]] void fail_to_read(const fs::path& path, const std::error_code& error, const char* fix) {
  throw IoError(Report{.what = fmt::format("cannot read the folder '{}'", path.string()),
                       .got = error.message(),
                       .expected = "a folder that can be read",
                       .fix = fix},
                base::exit_code_of_errno(error.value()));
}

[[noreturn]] void fail_of_link(const fs::path& path) {
  std::error_code ignored;
  throw IoError(Report{.what = fmt::format("'{}' is a link that leads nowhere", path.string()),
                       .got = fmt::format("no file '{}'", fs::read_symlink(path, ignored).string()),
                       .expected = "the file that it stands for",
                       .fix = "fetch that file (git annex get, dvc pull), or remove the link"},
                ExitCode::kInputMissing);
}

constexpr const char* kOtherEnding = "of another ending";

// Records in `taken` that the file is passed over. If the reason is the ending of the file, records the ending,
// otherwise the file's name.
void pass_over_ending(const fs::path& path, std::string_view reason, Taken& taken) {
  const bool ending = reason == kOtherEnding && path.has_extension();
  taken.pass_over(reason, ending ? path.extension().string() : path.filename().string());
}

struct Walk {
  const WalkOptions& options;
  Taken& taken;
  std::vector<fs::path> files = {};
  std::vector<Identity> above = {};  // the folder that is being read, and its parents
  std::set<Identity> linked = {};    // folders that were entered through a link

  void enter(const fs::path& folder, int depth);
  void look_at(const fs::path& path, int depth);
};

std::vector<fs::path> entries_of(const fs::path& folder, std::error_code& error) {
  std::vector<fs::path> entries;
  for (fs::directory_iterator at(folder, error); !error && at != fs::directory_iterator(); at.increment(error)) {
    entries.push_back(at->path());
  }
  std::sort(entries.begin(), entries.end());
  return entries;
}

bool passed_over_by_name(const fs::path& path, Taken& taken) {
  const std::string name = path.filename().string();
  if (name.starts_with('.')) {
    taken.pass_over("hidden", name);
    return true;
  }
  std::error_code ignored;
  if (!is_of_a_system(name) || !fs::is_directory(path, ignored)) return false;
  taken.pass_over("of a system", name);
  return true;
}

void Walk::enter(const fs::path& folder, int depth) {
  struct ::stat status {};
  std::error_code error;
  if (::stat(folder.c_str(), &status) != 0) error.assign(errno, std::generic_category());
  const Identity identity{status.st_dev, status.st_ino};
  if (!error && std::find(above.begin(), above.end(), identity) != above.end()) {
    taken.pass_over("links to a folder that holds them", folder.filename().string());
    return;
  }
  // A second link to a folder is not followed, because folders that link to each other have too many paths to walk.
  std::error_code ignored;
  if (!error && !above.empty() && fs::is_symlink(folder, ignored) && !linked.insert(identity).second) {
    taken.pass_over("links to a folder that another link led to", folder.filename().string());
    return;
  }
  const std::vector<fs::path> entries = error ? std::vector<fs::path>() : entries_of(folder, error);
  if (error) {
    if (!options.pass_over_unreadable || above.empty()) fail_to_read(folder, error, options.fix);
    taken.pass_over("not readable", folder.filename().string());
    return;
  }
  above.push_back(identity);
  for (const fs::path& path : entries) {
    if (files.size() >= options.most) break;
    look_at(path, depth);
  }
  above.pop_back();
}

void Walk::look_at(const fs::path& path, int depth) {
  if (passed_over_by_name(path, taken)) return;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::is_directory(status)) {
    if (depth < options.depth) enter(path, depth + 1);
  } else if (!options.wanted(path)) {
    pass_over_ending(path, kOtherEnding, taken);
  } else if (fs::is_regular_file(status)) {
    files.push_back(path);
  } else if (fs::exists(status)) {
    taken.pass_over("neither file nor folder", path.filename().string());
  } else if (std::error_code ignored; fs::is_symlink(path, ignored)) {
    fail_of_link(path);
  } else {
    fail_to_read(path.parent_path(), error, options.fix);
  }
}

struct Word {
  std::string_view text;
  SplitWord meaning;
};

constexpr Word kWords[] = {
    {"train", {Split::kTrain, 0}},     {"training", {Split::kTrain, 0}}, {"test", {Split::kTest, 0}},
    {"testing", {Split::kTest, 0}},    {"val", {Split::kTest, 1}},       {"valid", {Split::kTest, 1}},
    {"validation", {Split::kTest, 1}},
};

}  // namespace

const char* to_string(Split split) { return split == Split::kTrain ? "train" : "test"; }

std::vector<fs::path> walk(const fs::path& folder, const WalkOptions& options, Taken& taken) {
  Walk walk{.options = options, .taken = taken};
  walk.enter(folder, 0);
  return std::move(walk.files);
}

std::vector<fs::path> folders_in(const fs::path& folder, const WalkOptions& options, Taken& taken) {
  std::error_code error;
  std::vector<fs::path> folders;
  for (const fs::path& path : entries_of(folder, error)) {
    std::error_code ignored;  // an entry that cannot be examined counts as no folder
    if (passed_over_by_name(path, taken)) continue;
    if (fs::is_directory(path, ignored)) {
      folders.push_back(path);
    } else {
      pass_over_ending(path, options.wanted(path) ? options.loose : kOtherEnding, taken);
    }
  }
  if (error) fail_to_read(folder, error, options.fix);
  return folders;
}

SplitFolders split_folders(const std::vector<fs::path>& folders) {
  std::array<std::vector<fs::path>, 3> by_word;  // folders named train, test, val
  for (const fs::path& folder : folders) {
    const auto word = split_word(folder.filename().string());
    if (word)
      by_word[word->split == Split::kTrain ? 0 : static_cast<std::size_t>(1 + word->preference)].push_back(folder);
  }
  if (by_word[0].empty()) return {};
  SplitFolders found;
  for (const auto& same : by_word) {
    if (same.size() > 1) {
      throw DataError(
          Report{.what = fmt::format("two folders for one purpose in '{}'", same[0].parent_path().string()),
                 .got = fmt::format("'{}' and '{}'", same[0].filename().string(), same[1].filename().string()),
                 .expected = "one of the two",
                 .fix = "move one of them away"});
    }
    if (same.empty()) continue;
    if (found.train.empty()) {
      found.train = same[0];
    } else {
      found.test.push_back(same[0]);
    }
  }
  return found;
}

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

std::optional<SplitWord> split_word(std::string_view name) {
  const std::string low = lower(name);
  for (const Word& word : kWords) {
    if (low == word.text) return word.meaning;
  }
  return std::nullopt;
}

std::optional<SplitWord> split_in_last_word(std::string_view name) {
  const auto before = name.find_last_of("._- ");
  return split_word(before == std::string_view::npos ? name : name.substr(before + 1));
}

}  // namespace reigen::container
