// Which entries of a folder of data are taken: one rule for texts, pictures and digits.
//   hidden        what has a name that begins with a dot is passed over, files and folders
//   of a system   so are the folders that systems and archives leave beside data: lost+found, __MACOSX, @eaDir, ...
//   links         are followed, to files and to folders; a folder that holds itself by a link is entered once,
//                 and one that several links lead to by the first of them
//   nested        folders are entered to any depth; the order is that of the paths, by bytes
//   other         files of other endings, and what is neither file nor folder, are passed over
//   splits        the words for training and testing are train, training and test, testing, val, valid, validation,
//                 in capitals or not
// A link that leads nowhere and has a wanted ending is an error: what it stands for was not fetched.
// Thread rule: pure functions of the file system.
#pragma once

#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reigen/data/dataset.h"
#include "reigen/data/taken.h"

namespace reigen::data {

struct WalkOptions {
  std::function<bool(const std::filesystem::path&)> wanted;  // asked with paths of files
  int depth = std::numeric_limits<int>::max();               // of folders below the first one
  bool pass_over_unreadable = false;                         // else a folder that cannot be read is an error
  const char* fix = "check the path and its permissions";    // of that error
  const char* loose = "in no folder";                        // why folders_in() passes over a wanted file
};

// The wanted files of a folder and those below it, in order. What was passed over is added to `taken`; the files are
// not. Throws IoError (66: a link that leads nowhere; 77: not readable).
std::vector<std::filesystem::path> walk(const std::filesystem::path& folder, const WalkOptions& options, Taken& taken);

// The folders right in a folder, in order, hidden ones and those of a system left out. Files are passed over. Throws
// IoError.
std::vector<std::filesystem::path> folders_in(const std::filesystem::path& folder, const WalkOptions& options,
                                              Taken& taken);

// The folders for training and testing among those of one folder; those for testing in the order in which they are
// preferred, test/ before val/. All empty: there is none for training. Throws DataError: two for one purpose.
struct SplitFolders {
  std::filesystem::path train;
  std::vector<std::filesystem::path> test;
};
SplitFolders split_folders(const std::vector<std::filesystem::path>& folders);

// Lower-case ASCII. ".JPG" -> ".jpg".
std::string lower(std::string_view text);

// What a name says of the split: the whole of it, or its last word ("wiki.valid", "TinyStories-train").
// `preference`: 0 for the words that come first, so that test/ is taken and val/ left where there are both.
struct SplitWord {
  Split split = Split::kTrain;
  int preference = 0;
};
std::optional<SplitWord> split_word(std::string_view name);
std::optional<SplitWord> split_in_last_word(std::string_view name);

}  // namespace reigen::data
