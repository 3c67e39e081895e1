#include "container/folder/class_folders.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "container/folder/walk.h"
#include "reigen/base/error.h"

namespace reigen::container {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kTestShare = 10;  // without a folder for testing, every tenth picture is for testing
constexpr const char* kForm =
    "give a folder with one folder of JPEG or PNG files for each class, or train/ and test/ of them";

WalkOptions walk_of_pictures() { return {.wanted = is_picture_name, .fix = kForm, .loose = "in no class"}; }

std::vector<std::string> names_of(const std::vector<fs::path>& folders) {
  std::vector<std::string> names;
  for (const fs::path& folder : folders) names.push_back(folder.filename().string());
  return names;
}

void require_classes(const fs::path& folder, const std::vector<std::string>& classes) {
  if (classes.size() >= 2) return;
  throw DataError(Report{.what = fmt::format("'{}' holds no classes of pictures", folder.string()),
                         .got = classes.empty() ? "no folder in it" : fmt::format("only '{}'", classes[0]),
                         .expected = "at least two folders, one for each class",
                         .fix = kForm});
}

std::vector<LabelledFile> files_in(const fs::path& folder, const std::vector<std::string>& classes, Taken& taken) {
  std::vector<LabelledFile> files;
  for (std::size_t i = 0; i < classes.size(); ++i) {
    Taken here;
    const auto found = walk(folder / classes[i], walk_of_pictures(), here);
    if (found.empty()) {
      throw DataError(Report{.what = fmt::format("no pictures in '{}'", (folder / classes[i]).string()),
                             .got = "no file named *.jpg, *.jpeg or *.png: " + here.text(),
                             .expected = "at least one picture in each class",
                             .fix = kForm});
    }
    for (const fs::path& path : found) files.push_back({path, static_cast<std::int64_t>(i)});
    taken.add(here);
  }
  taken.files += static_cast<std::int64_t>(files.size());
  return files;
}

// Throws if the names of all folders mean training or testing, because such folders are no classes.
void require_training(const fs::path& folder, const std::vector<fs::path>& folders) {
  const bool only_splits = std::all_of(folders.begin(), folders.end(), [](const fs::path& path) {
    return split_word(path.filename().string()).has_value();
  });
  if (folders.empty() || !only_splits) return;
  throw DataError(Report{.what = fmt::format("nothing to train with in '{}'", folder.string()),
                         .got = fmt::format("'{}' and no train/", folders[0].filename().string()),
                         .expected = "a folder train/ beside it",
                         .fix = kForm});
}

// Whether the folders are those for training and testing, not classes. A class may be named Train, so the name of the
// training folder alone does not decide. If there is a folder for testing, one of these conditions is enough: the
// training folder is named exactly `train`, or holds folders of classes, or the names of all folders mean training or
// testing. Without a folder for testing, the result is true if the training folder is named exactly `train` and holds
// folders of classes and no pictures. If the caller wants the test data, test_folder() throws for the missing folder.
bool are_splits(const std::vector<fs::path>& folders, const SplitFolders& splits) {
  const WalkOptions options = walk_of_pictures();
  Taken beside;
  const bool has_classes = !folders_in(splits.train, options, beside).empty();
  const bool has_pictures = std::any_of(beside.passed_over.begin(), beside.passed_over.end(),
                                        [&](const PassedOver& files) { return files.reason == options.loose; });
  const bool exact = splits.train.filename() == "train";
  const bool nothing_else = std::all_of(folders.begin(), folders.end(), [](const fs::path& path) {
    return split_word(path.filename().string()).has_value();
  });
  if (splits.test.empty()) return exact && has_classes && !has_pictures;
  return exact || has_classes || nothing_else;
}

// Returns the first folder for testing that holds classes, because test/ may hold unsorted pictures.
fs::path test_folder(const fs::path& folder, const SplitFolders& splits) {
  if (splits.test.empty()) {
    throw IoError(Report{.what = fmt::format("nothing to test with in '{}'", folder.string()),
                         .got = fmt::format("'{}' alone", splits.train.filename().string()),
                         .expected = "a folder test/ or val/ beside it",
                         .fix = kForm},
                  ExitCode::kInputMissing);
  }
  for (const fs::path& candidate : splits.test) {
    Taken ignored;
    if (!folders_in(candidate, walk_of_pictures(), ignored).empty()) return candidate;
  }
  return splits.test[0];
}

// Returns the files of the folder for testing. A file's label is the number of its class among `classes`, the classes
// for training.
std::vector<LabelledFile> test_files(const fs::path& folder, const std::vector<std::string>& classes, Taken& taken) {
  std::vector<LabelledFile> files;
  const auto present = names_of(folders_in(folder, walk_of_pictures(), taken));
  require_classes(folder, present);
  for (const std::string& name : present) {
    const auto found = std::lower_bound(classes.begin(), classes.end(), name);
    if (found == classes.end() || *found != name) {
      throw DataError(
          Report{.what = fmt::format("'{}' is a class that training does not know", (folder / name).string()),
                 .got = fmt::format("no '{}' beside the {} classes for training", name, classes.size()),
                 .expected = "only classes of train/",
                 .fix = kForm});
    }
    for (LabelledFile& file : files_in(folder, {name}, taken)) {
      files.push_back({std::move(file.path), found - classes.begin()});
    }
  }
  return files;
}

// Every tenth picture is for testing, the others for training.
std::vector<LabelledFile> part_of(std::vector<LabelledFile> all, Split split, const fs::path& folder) {
  std::vector<LabelledFile> files;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const bool test = i % kTestShare == kTestShare - 1;
    if (test == (split == Split::kTest)) files.push_back(std::move(all[i]));
  }
  if (!files.empty()) return files;
  throw DataError(Report{.what = fmt::format("too few pictures in '{}' to test with every tenth", folder.string()),
                         .got = fmt::format("{} pictures", all.size()),
                         .expected = fmt::format("at least {}", kTestShare),
                         .fix = "add pictures, or a folder test/ beside train/"});
}

void require_folder(const fs::path& folder) {
  std::error_code error;
  if (fs::is_directory(folder, error) || (error && error != std::errc::no_such_file_or_directory)) return;
  const bool file = fs::exists(folder, error);
  throw IoError(Report{.what = fmt::format("no folder of pictures '{}'", folder.string()),
                       .got = file ? "not a folder" : "no such folder",
                       .expected = "a folder of folders of pictures",
                       .fix = file ? "unpack it first, and give the folder" : kForm},
                ExitCode::kInputMissing);
}

// A program that packs a folder wants all of its pictures. With train/ and val/ it must say which of the two.
[[noreturn]] void fail_for_two(const fs::path& folder, const SplitFolders& splits) {
  throw InvalidArgument(Report{.what = fmt::format("'{}' holds folders for training and for testing", folder.string()),
                               .got = fmt::format("'{}'", splits.train.filename().string()),
                               .expected = "a folder with one folder of pictures for each class",
                               .fix = fmt::format("give one of them, as {}", splits.train.string())});
}

}  // namespace

ClassFolders class_folders(const fs::path& folder, std::optional<Split> split) {
  require_folder(folder);
  ClassFolders result;
  const auto folders = folders_in(folder, walk_of_pictures(), result.taken);
  const SplitFolders splits = split_folders(folders);
  const bool two = !splits.train.empty() && are_splits(folders, splits);
  if (two && !split) fail_for_two(folder, splits);
  for (const fs::path& other : folders) {
    const std::string other_name = other.filename().string();
    if (two && !split_word(other_name)) result.taken.pass_over("beside train/", other_name);
  }
  const fs::path& place = two ? splits.train : folder;
  Taken of_training;
  result.classes = names_of(two ? folders_in(place, walk_of_pictures(), of_training) : folders);
  require_classes(place, result.classes);
  if (!two) {
    require_training(folder, folders);
    result.files = files_in(folder, result.classes, result.taken);
    if (split) result.files = part_of(std::move(result.files), *split, folder);
  } else if (split == Split::kTrain) {
    result.taken.add(of_training);
    result.files = files_in(place, result.classes, result.taken);
  } else {
    result.files = test_files(test_folder(folder, splits), result.classes, result.taken);
  }
  return result;
}

bool has_class_folders(const fs::path& folder, const fs::path& file, bool is_alone) {
  WalkOptions first_picture = walk_of_pictures();
  first_picture.most = 1;
  Taken ignored;
  std::vector<fs::path> found;
  for (const fs::path& one : folders_in(folder, first_picture, ignored)) {
    if (walk(one, first_picture, ignored).empty()) continue;
    found.push_back(one);
    if (found.size() == 2) break;
  }
  if (found.size() == 2 && is_alone) return true;
  if (found.empty()) return false;
  throw InvalidArgument(
      Report{.what = fmt::format("'{}' holds files of a container and a folder of pictures", folder.string()),
             .got = fmt::format("'{}' beside '{}'", file.filename().string(), found[0].filename().string()),
             .expected = "either files of a container, or a folder of pictures for each class",
             .fix = fmt::format("give the files, as '{}', or the folder '{}', or move one of the two away",
                                (folder / ("*" + file.extension().string())).string(), found[0].string())});
}

bool is_picture_name(const fs::path& path) {
  const std::string ending = lower(path.extension().string());
  return ending == ".jpg" || ending == ".jpeg" || ending == ".png";
}

}  // namespace reigen::container
