#include <fmt/format.h>

#include <utility>

#include "container/folder/class_folders.h"
#include "data/fingerprint.h"
#include "data/pictures/picture.h"
#include "data/pictures/picture_dataset.h"

namespace reigen::data {

namespace {

namespace fs = std::filesystem;

using File = container::LabelledFile;

class Folder final : public PictureDataset {
 public:
  Folder(std::string name, const ImageFolderOptions& options, fs::path root, std::vector<std::string> classes,
         std::vector<File> files)
      : PictureDataset(std::move(name), options.type, options.augment),
        root_(std::move(root)),
        classes_(std::move(classes)),
        files_(std::move(files)) {}

  std::int64_t size() const override { return static_cast<std::int64_t>(files_.size()); }
  Meaning meaning() const override {
    std::vector<LabelledPath> paths;
    std::vector<std::int64_t> counts(classes_.size());
    for (const File& file : files_) {
      paths.push_back({file.path, file.label});
      counts[static_cast<std::size_t>(file.label)] += 1;
    }
    std::vector<std::string> pictures;
    for (std::size_t i = 0; i < counts.size(); ++i) pictures.push_back(fmt::format("{} {}", classes_[i], counts[i]));
    return {{.name = "classes", .values = classes_, .one = "class"},
            {.name = "pictures", .values = std::move(pictures), .one = "number of pictures of class"},
            {.name = "files", .values = {fingerprint(root_, paths)}}};
  }

 protected:
  std::int64_t draw(std::int64_t index, Pixels& pixels) const override {
    const File& file = files_[static_cast<std::size_t>(index)];
    square(read_picture(file.path, static_cast<int>(kPictureSide)), kPictureSide, pixels);
    return file.label;
  }

 private:
  fs::path root_;
  std::vector<std::string> classes_;
  std::vector<File> files_;
};

}  // namespace

ImageFolder image_folder(const fs::path& folder, const ImageFolderOptions& options) {
  container::ClassFolders found = container::class_folders(folder, options.split);
  ImageFolder result{.data = {}, .classes = found.classes, .taken = std::move(found.taken)};
  const std::string name = fmt::format("'{}' {}", folder.string(), to_string(options.split));
  result.data = std::make_shared<Folder>(name, options, folder, std::move(found.classes), std::move(found.files));
  return result;
}

}  // namespace reigen::data
