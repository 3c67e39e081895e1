#include "reigen/train/picture_data.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "reigen/base/error.h"
#include "reigen/data/drawn_photos.h"
#include "reigen/image/operations.h"

namespace reigen::train {

namespace fs = std::filesystem;

struct PictureData::Parts {
  data::Pipeline training;
  data::Pipeline validation;
  std::vector<std::string> classes;  // names, if the data have them
};

namespace {

constexpr std::string_view kTrainingNames[] = {"train", "training"};
constexpr std::string_view kEndings[] = {".lmdb", ".mdb", ".h5", ".hdf5", ".tfrecord", ".tar"};
constexpr std::string_view kValidationNames[] = {"val", "valid", "validation", "test", "testing"};

// The entry of the folder whose name, without its ending, is one of `names`; an earlier name is preferred. A set of
// shards is a pattern: train-*-of-00064, train-*.tar.
std::optional<fs::path> part_in(const fs::path& folder, std::span<const std::string_view> names) {
  std::vector<fs::path> entries;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".idx") entries.push_back(entry.path());  // an index lies beside its container
  }
  std::sort(entries.begin(), entries.end());
  for (const std::string_view one : names) {
    const std::string name(one);
    for (const fs::path& entry : entries) {
      const std::string file = entry.filename().string();
      if (file == name || file.starts_with(name + ".")) return entry;
    }
    for (const fs::path& entry : entries) {
      const std::string file = entry.filename().string();
      if (file.size() <= name.size() + 1 || !file.starts_with(name + "-") || file[name.size() + 1] < '0' ||
          file[name.size() + 1] > '9') {
        continue;
      }
      const auto end = file.find_first_not_of("0123456789", name.size() + 1);
      return folder / (name + "-*" + (end == std::string::npos ? "" : file.substr(end)));
    }
  }
  return std::nullopt;
}

std::vector<std::string> classes_of(const data::Pipeline& pipeline) {
  for (const data::Fact& fact : pipeline.dataset()->meaning()) {
    if (fact.name == "classes") return fact.values;
  }
  return {};
}

// Every tenth sample is for validation, as in folders of pictures.
std::pair<data::Pipeline, data::Pipeline> by_tenths(const data::Pipeline& all) {
  std::vector<std::int64_t> training;
  std::vector<std::int64_t> validation;
  for (std::int64_t i = 0; i < all.size(); ++i) (i % 10 == 9 ? validation : training).push_back(i);
  if (validation.empty()) {
    throw DataError(Report{.what = fmt::format("'{}' has too few samples to leave some for validation", all.name()),
                           .got = fmt::format("{}", all.size()),
                           .expected = "at least 10",
                           .fix = "give a folder with train.* and val.*"});
  }
  return {all.subset(std::move(training)), all.subset(std::move(validation))};
}

// A step that refuses a target that is no class.
data::Step checks_classes(std::int64_t classes) {
  return [classes](data::Sample& sample, Random&) {
    const at::Tensor& target = sample.tensor("target");
    const auto label = target.item<std::int64_t>();
    if (label >= 0 && label < classes) return;
    throw DataError(Report{.what = fmt::format("the label of {} is outside of the classes", sample.where()),
                           .got = std::to_string(label),
                           .expected = fmt::format("0..{}", classes - 1),
                           .fix = "reigen data verify finds damage; labels that count from 1 need to be packed with "
                                  "--label-offset 1"});
  };
}

// Of ImageNet's photos hardly less than the whole, as torchvision's evaluation sees it: of 256 pixels the middle 224.
data::Pipeline seen_whole(const data::Pipeline& pictures, const PictureDataOptions& options) {
  const auto size = static_cast<int>(options.size);
  if (options.style == PictureStyle::kImageNet)
    return pictures.map(image::resize_shorter(size * 256 / 224)).map(image::center_crop(size));
  return pictures.map(image::resize_shorter(size))
      .map(image::center_crop(size))
      .output({.mean = image::kCifar10Mean, .deviation = image::kCifar10Deviation});
}

data::Pipeline changed_at_random(const data::Pipeline& pictures, const PictureDataOptions& options) {
  const auto size = static_cast<int>(options.size);
  if (options.style == PictureStyle::kImageNet)
    return pictures.map(image::random_resized_crop(size)).map(image::random_flip());
  return seen_whole(pictures, options).map(image::pad_and_crop(size, size / 8)).map(image::random_flip());
}

// Whether it is the file of a container or a pattern of such files, by its name; or a folder of LMDB or of shards. A
// folder that has folders is none: these may be classes.
bool is_container(const fs::path& path) {
  const auto has_name_of_container = [](const fs::path& file) {
    const std::string name = file.filename().string();
    return name.find("-of-") != std::string::npos ||
           std::any_of(std::begin(kEndings), std::end(kEndings), [&](auto ending) { return name.ends_with(ending); });
  };
  std::error_code error;
  if (!fs::is_directory(path, error)) return has_name_of_container(path);
  bool has_files = false;
  for (const auto& entry : fs::directory_iterator(path, error)) {
    if (entry.is_directory()) return false;
    has_files |= has_name_of_container(entry.path());
  }
  return has_files;
}

}  // namespace

const PictureData::Parts& PictureData::parts() {
  if (parts_) return *parts_;
  const fs::path& path = options_.path;
  const data::OpenOptions opens{.fast_decode = options_.fast_decode};
  std::optional<std::pair<data::Pipeline, data::Pipeline>> both;
  if (path.empty()) {
    both.emplace(data::drawn_photos({}), data::drawn_photos({.split = data::Split::kTest}));
  } else {
    std::error_code none;
    const auto training = fs::is_directory(path, none) ? part_in(path, kTrainingNames) : std::nullopt;
    const auto validation = training ? part_in(path, kValidationNames) : std::nullopt;
    if (training && validation) {
      both.emplace(data::open(*training, opens), data::open(*validation, opens));
    } else if (training) {
      throw DataError(Report{.what = fmt::format("'{}' has data for training and none for validation", path.string()),
                             .got = training->filename().string(),
                             .expected = "val.* or test.* beside it"});
    } else {
      both.emplace(by_tenths(data::open(path, opens)));
    }
  }
  std::vector<std::string> classes = classes_of(both->first);
  const std::vector<std::string> of_validation = classes_of(both->second);
  // A container of a flat folder has numbers of classes only; checks_classes() looks at these.
  if (!of_validation.empty() && of_validation != classes) {
    throw DataError(
        Report{.what = fmt::format("the classes of '{}' and '{}' differ", both->first.name(), both->second.name()),
               .got = fmt::format("{} classes", of_validation.size()),
               .expected = fmt::format("the same {} in the same order", classes.size())});
  }
  parts_ = std::make_shared<const Parts>(Parts{both->first, both->second, std::move(classes)});
  return *parts_;
}

std::int64_t PictureData::classes() {
  if (options_.classes > 0) return options_.classes;
  const auto count = static_cast<std::int64_t>(parts().classes.size());
  if (count > 0) return count;
  throw InvalidArgument(Report{.what = fmt::format("'{}' does not name its classes", options_.path.string()),
                               .expected = "names of classes, as `reigen data pack` writes them",
                               .fix = "say how many there are with --model.classes N"});
}

data::DatasetPtr PictureData::training() {
  if (!options_.augment) return seen_whole(parts().training, options_).map(checks_classes(classes()));
  return changed_at_random(parts().training, options_).map(checks_classes(classes())).mix_pairs(options_.mixing);
}

data::DatasetPtr PictureData::validation() {
  return seen_whole(parts().validation, options_).map(checks_classes(classes()));
}

bool PictureData::has_containers(const fs::path& path) {
  if (path.empty()) return false;
  if (is_container(path)) return true;
  std::error_code error;
  fs::directory_iterator(path, error);
  if (error) return false;  // no folder, or one that cannot be read
  const auto training = part_in(path, kTrainingNames);
  return training && is_container(*training);
}

std::string PictureData::kind_of_samples() const {
  if (options_.path.empty()) return "drawn photos";
  if (!parts_ || parts_->classes.empty()) return fmt::format("pictures from {}", options_.path.string());
  return fmt::format("pictures of {} classes from {}", parts_->classes.size(), options_.path.string());
}

}  // namespace reigen::train
