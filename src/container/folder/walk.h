// Decides which entries of a data folder are taken. Texts, pictures and digits use the same rules:
//   hidden        files and folders whose name begins with a dot are passed over
//   of a system   folders of operating systems and archivers are passed over too: lost+found, __MACOSX, @eaDir, ...
//   links         links to files and folders are followed; a folder that contains itself through a link is entered
//                 once, and a folder to which several links lead is entered through the first of them
//   nested        subfolders are entered to any depth; files are in the order of their paths, compared byte by byte
//   other         files with other endings, and entries that are neither file nor folder, are passed over
//   splits        the names train and training mean training; the names test, testing, val, valid and validation mean
//                 testing; each may be in upper or lower case
// A link that leads nowhere and has a wanted ending is an error, because its file was not fetched. Thread rule: pure
// functions of the file system.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reigen/container/split.h"
#include "reigen/container/taken.h"

namespace reigen::container {

struct WalkOptions {
  std::function<bool(const std::filesystem::path&)> wanted;    // whether the file with this path is wanted
  int depth = std::numeric_limits<int>::max();                 // most levels of subfolders that are entered
  std::size_t most = std::numeric_limits<std::size_t>::max();  // walk() ends after so many wanted files
  bool pass_over_unreadable = false;                           // if false, a folder that cannot be read is an error
  const char* fix = "check the path and its permissions";      // advice in the error
  const char* loose = "in no folder";                          // reason that folders_in() records for a wanted file
};

// Returns the wanted files of a folder and its subfolders, in order. Adds the entries that it passes over to `taken`,
// but not the wanted files. Throws IoError: with exit code 66 for a link that leads nowhere, with 77 for a folder that
// cannot be read.
std::vector<std::filesystem::path> walk(const std::filesystem::path& folder, const WalkOptions& options, Taken& taken);

// Returns the folders directly in a folder, in order, without hidden folders and folders of a system. Files are added
// to `taken` as passed over. Throws IoError.
std::vector<std::filesystem::path> folders_in(const std::filesystem::path& folder, const WalkOptions& options,
                                              Taken& taken);

// Finds the folders for training and testing among the folders of one parent. Those for testing are in order of
// preference, test/ before val/. Both members are empty if there is no folder for training. Throws DataError if there
// are two folders for one purpose.
struct SplitFolders {
  std::filesystem::path train;
  std::vector<std::filesystem::path> test;
};
SplitFolders split_folders(const std::vector<std::filesystem::path>& folders);

// Converts ASCII to lower case: ".JPG" -> ".jpg".
std::string lower(std::string_view text);

// Whether a name means training or testing data. split_word() looks at the whole name, split_in_last_word() at its last
// word ("wiki.valid", "TinyStories-train"). Several words mean testing; the word with the smallest `preference` is
// taken. So test/ is taken if both test/ and val/ exist.
struct SplitWord {
  Split split = Split::kTrain;
  int preference = 0;
};
std::optional<SplitWord> split_word(std::string_view name);
std::optional<SplitWord> split_in_last_word(std::string_view name);

}  // namespace reigen::container
