#include "reigen/train/picture_data.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "reigen/base/error.h"
#include "reigen/container/container.h"
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

// The entries of the folder by name, without indices, which lie beside their containers.
std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator at(folder, error); !error && at != fs::directory_iterator(); at.increment(error)) {
    if (at->path().extension() != ".idx") entries.push_back(at->path());
  }
  if (error) {
    throw IoError(Report{.what = fmt::format("cannot list the folder '{}'", folder.string()),
                         .got = base::errno_text(error.value()),
                         .expected = "a folder that may be read",
                         .fix = "check its permissions, or give another data.path"},
                  base::exit_code_of_errno(error.value()));
  }
  std::sort(entries.begin(), entries.end());
  return entries;
}

// The name of a shard with * in place of its number: train-*-of-00064, train.tfrecord-*-of-00064, train-*.tar or
// train.*.tar. Empty for a name without such a number behind `front`.
std::string pattern_of(const std::string& file, const std::string& front) {
  constexpr const char* kNumerals = "0123456789";
  const auto of = file.find("-of-");
  if (of != std::string::npos) {
    const auto before = file.find_last_not_of(kNumerals, of - 1);
    return before + 1 < of && before + 1 >= front.size() ? file.substr(0, before + 1) + "*" + file.substr(of) : "";
  }
  const auto end = std::min(file.find_first_not_of(kNumerals, front.size() + 1), file.size());
  return end > front.size() + 1 ? file.substr(0, front.size() + 1) + "*" + file.substr(end) : "";
}

// The entry of the folder whose name, without its ending, is one of `names`, or the pattern of a set of such shards. An
// earlier name is preferred.
std::optional<fs::path> part_in(const fs::path& folder, std::span<const std::string_view> names) {
  const std::vector<fs::path> entries = entries_of(folder);
  for (const std::string_view one : names) {
    const std::string name(one);
    std::vector<fs::path> shards;
    std::string of_shards;
    for (const fs::path& entry : entries) {
      const std::string file = entry.filename().string();
      if (file == name) return entry;
      const bool has_ending = file.starts_with(name + ".");
      if (!has_ending && !file.starts_with(name + "-")) continue;
      const std::string pattern = pattern_of(file, name);
      if (pattern.empty() && has_ending) return entry;
      if (of_shards.empty()) of_shards = pattern;
      if (!pattern.empty() && pattern == of_shards) shards.push_back(entry);
    }
    if (shards.empty()) continue;
    const bool is_set = shards.size() > 1 || !shards.front().filename().string().starts_with(name + ".") ||
                        of_shards.find("-of-") != std::string::npos;
    return is_set ? folder / of_shards : shards.front();  // train.2012.lmdb is one container
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

// Whether it is the file of a container or a pattern of such files, by its name; or a folder of LMDB or of shards.
bool is_container(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return container::is_container(path);
  const std::string name = path.filename().string();
  return name.find("-of-") != std::string::npos ||
         std::any_of(std::begin(kEndings), std::end(kEndings), [&](auto ending) { return name.ends_with(ending); });
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
  const data::Pipeline& pictures = parts().training;
  const data::Pipeline changed =
      options_.augment ? changed_at_random(pictures, options_) : seen_whole(pictures, options_);
  return changed.map(checks_classes(classes())).mix_pairs(options_.mixing);
}

data::DatasetPtr PictureData::validation() {
  return seen_whole(parts().validation, options_).map(checks_classes(classes()));
}

bool PictureData::has_containers(const fs::path& path) {
  if (path.empty()) return false;
  std::error_code error;
  fs::directory_iterator(path, error);
  if (error) return is_container(path);  // no folder, or one that cannot be read
  // The parts first: two sets of shards in one folder are no container, but each of them is.
  const auto training = part_in(path, kTrainingNames);
  return is_container(training ? *training : path);
}

std::string PictureData::kind_of_samples() const {
  if (options_.path.empty()) return "drawn photos";
  if (!parts_ || parts_->classes.empty()) return fmt::format("pictures from {}", options_.path.string());
  return fmt::format("pictures of {} classes from {}", parts_->classes.size(), options_.path.string());
}

}  // namespace reigen::train
