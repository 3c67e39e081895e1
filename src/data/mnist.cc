#include "reigen/data/mnist.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <tuple>
#include <utility>

#include "container/folder/walk.h"
#include "data/fingerprint.h"
#include "data/pictures/image_dataset.h"
#include "reigen/base/error.h"
#include "reigen/format/idx.h"

namespace reigen::data {
namespace {

namespace fs = std::filesystem;

using container::lower;
using container::Taken;
using container::walk;
using container::WalkOptions;

class Mnist : public ImageDataset {
 public:
  Mnist(std::string name, c10::ScalarType type, format::IdxArray images, format::IdxArray labels)
      : ImageDataset(std::move(name), type), images_(std::move(images)), labels_(std::move(labels)) {}

  std::int64_t size() const override { return images_.dims[0]; }
  Meaning meaning() const override {
    format::Hash64 hash;
    hash.update(images_.bytes());
    hash.update(labels_.bytes());
    return {{.name = "content", .values = {fmt::format("{} of images and labels", fingerprint(hash))}}};
  }

 protected:
  Image image(std::int64_t index, Pixels&) const override {
    const auto i = static_cast<std::size_t>(index);
    return {reinterpret_cast<const std::uint8_t*>(images_.storage.get()) + i * kDigitPixels,
            std::to_integer<std::uint8_t>(labels_.storage[i])};
  }

 private:
  format::IdxArray images_;
  format::IdxArray labels_;
};

constexpr const char* kFix = "give the folder with the four original MNIST files";
constexpr int kFolders = 3;        // number of levels of subfolders that are searched: two for MNIST/raw, and one more
constexpr std::size_t kShown = 5;  // how many names of other files an error lists

// The original spelling of a file's name: "train-images.idx3-ubyte.gz" -> "train-images-idx3-ubyte".
std::string spelled(const fs::path& path) {
  std::string name = lower(path.filename().string());
  if (name.ends_with(".gz")) name.resize(name.size() - 3);
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '.' || c == '_' || c == ' '; }, '-');
  return name.starts_with("test-") ? "t10k" + name.substr(4) : name;
}

std::ptrdiff_t depth_of(const fs::path& path) { return std::distance(path.begin(), path.end()); }

// The order of preference: nearer folders first, then by the folder's name, then plain files before packed files,
// then original names before other spellings.
bool comes_before(const fs::path& a, const fs::path& b, const std::string& name) {
  const auto rank = [&](const fs::path& path) {
    const bool packed = lower(path.extension().string()) == ".gz";
    const bool other = !path.filename().string().starts_with(name);
    return std::tuple(depth_of(path), path.parent_path(), packed, other, path);
  };
  return rank(a) < rank(b);
}

// The content of the folder, for an error message.
std::string present_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error); !error && at != fs::directory_iterator(); at.increment(error)) {
    std::error_code ignored;
    const std::string name = at->path().filename().string();
    if (!name.starts_with('.')) names.push_back(at->is_directory(ignored) ? "a folder " + name : name);
  }
  if (names.empty()) return "no such file: the folder is empty";
  std::sort(names.begin(), names.end());
  const std::size_t shown = std::min(names.size(), kShown);
  const bool more = shown < names.size();
  names.resize(shown);
  return fmt::format("no such file; there: {}{}", fmt::join(names, ", "), more ? ", ..." : "");
}

fs::path find(const fs::path& folder, const std::string& name) {
  Taken ignored;
  std::vector<fs::path> found;
  for (const int depth : {0, kFolders}) {
    if (!found.empty()) break;
    found = walk(folder,
                 {.wanted = [&](const fs::path& path) { return spelled(path) == name; },
                  .depth = depth,
                  .pass_over_unreadable = true,
                  .fix = kFix},
                 ignored);
  }
  if (found.empty()) {
    throw IoError(Report{.what = fmt::format("no MNIST file '{}' in '{}'", name, folder.string()),
                         .got = present_in(folder),
                         .expected = fmt::format("'{}' or '{}.gz'", (folder / name).string(), name),
                         .fix = kFix},
                  ExitCode::kInputMissing);
  }
  std::sort(found.begin(), found.end(), [&](const fs::path& a, const fs::path& b) { return comes_before(a, b, name); });
  const auto other = std::find_if(found.begin(), found.end(), [&](const fs::path& path) {
    return depth_of(path) == depth_of(found[0]) && path.parent_path() != found[0].parent_path();
  });
  if (other != found.end()) {
    throw DataError(Report{.what = fmt::format("two files are '{}' in '{}'", name, folder.string()),
                           .got = fmt::format("'{}' and '{}'", found[0].string(), other->string()),
                           .expected = "one",
                           .fix = "give the folder of the one that is meant"});
  }
  return found[0];
}

format::IdxArray read(const fs::path& path, const std::vector<std::int64_t>& sample, const char* what) {
  format::IdxArray array = format::read_idx(path);
  const bool fits = array.type == format::IdxType::kU8 && array.dims.size() == sample.size() + 1 && array.dims[0] > 0 &&
                    std::equal(sample.begin(), sample.end(), array.dims.begin() + 1);
  if (!fits) {
    throw DataError(Report{
        .what = fmt::format("'{}' does not hold {}", path.string(), what),
        .got = fmt::format("[{}] of IDX type {:#04x}", fmt::join(array.dims, ", "), static_cast<unsigned>(array.type)),
        .expected = sample.empty() ? std::string("[N] bytes, N at least 1")
                                   : fmt::format("[N, {}] bytes, N at least 1", fmt::join(sample, ", ")),
        .fix = kFix});
  }
  return array;
}

}  // namespace

MnistFiles mnist_files(const fs::path& folder, Split split) {
  std::error_code error;
  if (!fs::is_directory(folder, error) && (!error || error == std::errc::no_such_file_or_directory)) {
    throw IoError(Report{.what = fmt::format("no MNIST folder '{}'", folder.string()),
                         .got = fs::exists(folder, error) ? "not a folder" : "no such folder",
                         .expected = "a folder with train-images-idx3-ubyte.gz and its three companions",
                         .fix = kFix},
                  ExitCode::kInputMissing);
  }
  const std::string prefix = split == Split::kTrain ? "train" : "t10k";
  return {find(folder, prefix + "-images-idx3-ubyte"), find(folder, prefix + "-labels-idx1-ubyte")};
}

DatasetPtr mnist(const fs::path& folder, Split split, c10::ScalarType type) {
  const auto [images_path, labels_path] = mnist_files(folder, split);
  auto labels = read(labels_path, {}, "labels");
  auto images = read(images_path, {28, 28}, "images of 28x28 pixels");
  if (images.dims[0] != labels.dims[0]) {
    throw DataError(
        Report{.what = fmt::format("'{}' and '{}' do not belong together", images_path.string(), labels_path.string()),
               .got = fmt::format("{} images and {} labels", images.dims[0], labels.dims[0]),
               .expected = "as many labels as images",
               .fix = "fetch both files again"});
  }
  const auto bytes = labels.bytes();
  const auto wrong = std::find_if(bytes.begin(), bytes.end(), [](std::byte label) { return label > std::byte{9}; });
  if (wrong != bytes.end()) {
    throw DataError(Report{.what = fmt::format("'{}' has a wrong label at byte {} (unpacked)", labels_path.string(),
                                               8 + (wrong - bytes.begin())),
                           .got = fmt::format("{}", std::to_integer<int>(*wrong)),
                           .expected = "0 to 9",
                           .fix = "fetch the file again"});
  }
  return std::make_shared<Mnist>(fmt::format("mnist {}", to_string(split)), type, std::move(images), std::move(labels));
}

}  // namespace reigen::data
