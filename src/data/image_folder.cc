#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "data/picture.h"
#include "data/picture_dataset.h"
#include "reigen/base/error.h"

namespace reigen::data {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kTestShare = 10;  // one of so many, where there is no folder for testing
constexpr const char* kForm =
    "give a folder with one folder of JPEG or PNG files for each class, or train/ and test/ of them";

struct File {
  fs::path path;
  std::int64_t label = 0;
};

class Folder final : public PictureDataset {
 public:
  Folder(std::string name, const ImageFolderOptions& options, std::vector<File> files)
      : PictureDataset(std::move(name), options.type, options.augment), files_(std::move(files)) {}

  std::int64_t size() const override { return static_cast<std::int64_t>(files_.size()); }

 protected:
  std::int64_t draw(std::int64_t index, Pixels& pixels) const override {
    const File& file = files_[static_cast<std::size_t>(index)];
    square(read_picture(file.path, kPictureSide), kPictureSide, pixels);
    return file.label;
  }

 private:
  std::vector<File> files_;
};

bool is_picture(const fs::path& path) {
  std::string ending = path.extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return ending == ".jpg" || ending == ".jpeg" || ending == ".png";
}

// Names in a folder, sorted by bytes, those with a dot first left out.
std::vector<fs::path> list(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator at(folder, error); !error && at != fs::directory_iterator(); at.increment(error)) {
    if (!at->path().filename().string().starts_with('.')) entries.push_back(at->path());
  }
  if (error) {
    throw IoError(Report{.what = fmt::format("cannot read the folder '{}'", folder.string()),
                         .got = error.message(),
                         .expected = "a folder of pictures",
                         .fix = kForm},
                  base::exit_code_of_errno(error.value()));
  }
  std::sort(entries.begin(), entries.end());
  return entries;
}

std::vector<std::string> classes_in(const fs::path& folder) {
  std::vector<std::string> classes;
  for (const fs::path& entry : list(folder)) {
    std::error_code ignored;  // what cannot be looked at is no folder
    if (fs::is_directory(entry, ignored)) classes.push_back(entry.filename().string());
  }
  if (classes.size() < 2) {
    throw DataError(Report{.what = fmt::format("'{}' holds no classes of pictures", folder.string()),
                           .got = classes.empty() ? "no folder in it" : fmt::format("only '{}'", classes[0]),
                           .expected = "at least two folders, one for each class",
                           .fix = kForm});
  }
  return classes;
}

std::vector<File> files_in(const fs::path& folder, const std::vector<std::string>& classes) {
  std::vector<File> files;
  for (std::size_t i = 0; i < classes.size(); ++i) {
    const std::size_t before = files.size();
    for (const fs::path& entry : list(folder / classes[i])) {
      if (is_picture(entry)) files.push_back({entry, static_cast<std::int64_t>(i)});
    }
    if (files.size() > before) continue;
    throw DataError(Report{.what = fmt::format("no pictures in '{}'", (folder / classes[i]).string()),
                           .got = "no file named *.jpg, *.jpeg or *.png",
                           .expected = "at least one picture in each class",
                           .fix = kForm});
  }
  return files;
}

// The classes of train/, whose numbers the labels are, with the folders of test/.
std::vector<File> test_files(const fs::path& folder, const std::vector<std::string>& classes) {
  std::vector<File> files;
  for (const std::string& name : classes_in(folder)) {
    const auto found = std::lower_bound(classes.begin(), classes.end(), name);
    if (found == classes.end() || *found != name) {
      throw DataError(
          Report{.what = fmt::format("'{}' is a class that training does not know", (folder / name).string()),
                 .got = fmt::format("no '{}' beside the {} classes for training", name, classes.size()),
                 .expected = "only classes of train/",
                 .fix = kForm});
    }
    for (File& file : files_in(folder, {name})) {
      files.push_back({std::move(file.path), found - classes.begin()});
    }
  }
  return files;
}

// Every tenth for testing, the others for training.
std::vector<File> part_of(std::vector<File> all, Split split, const fs::path& folder) {
  std::vector<File> files;
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

}  // namespace

ImageFolder image_folder(const fs::path& folder, const ImageFolderOptions& options) {
  std::error_code error;
  if (!fs::is_directory(folder, error) && (!error || error == std::errc::no_such_file_or_directory)) {
    const bool file = fs::exists(folder, error);
    throw IoError(Report{.what = fmt::format("no folder of pictures '{}'", folder.string()),
                         .got = file ? "not a folder" : "no such folder",
                         .expected = "a folder of folders of pictures",
                         .fix = file ? "unpack it first, and give the folder" : kForm},
                  ExitCode::kInputMissing);
  }
  const std::string name = fmt::format("'{}' {}", folder.string(), to_string(options.split));
  const bool two = fs::is_directory(folder / "train", error);
  ImageFolder result;
  result.classes = classes_in(two ? folder / "train" : folder);
  std::vector<File> files;
  if (!two) {
    files = part_of(files_in(folder, result.classes), options.split, folder);
  } else if (options.split == Split::kTrain) {
    files = files_in(folder / "train", result.classes);
  } else {
    const bool val = !fs::is_directory(folder / "test", error) && fs::is_directory(folder / "val", error);
    files = test_files(folder / (val ? "val" : "test"), result.classes);
  }
  result.data = std::make_shared<Folder>(name, options, std::move(files));
  return result;
}

}  // namespace reigen::data
