#include "reigen/data/mnist.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "data/image_dataset.h"
#include "reigen/base/error.h"
#include "reigen/format/idx.h"

namespace reigen::data {
namespace {

namespace fs = std::filesystem;

class Mnist : public ImageDataset {
 public:
  Mnist(std::string name, c10::ScalarType type, format::IdxArray images, format::IdxArray labels)
      : ImageDataset(std::move(name), type), images_(std::move(images)), labels_(std::move(labels)) {}

  std::int64_t size() const override { return images_.dims[0]; }

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

fs::path find(const fs::path& folder, const std::string& name) {
  const fs::path plain = folder / name;
  const fs::path packed = folder / (name + ".gz");
  std::error_code error;  // a folder that cannot be searched is reported when the file is opened
  if (fs::exists(plain, error) || error) return plain;
  if (fs::exists(packed, error) || error) return packed;
  throw IoError(Report{.what = fmt::format("no MNIST file '{}' in '{}'", name, folder.string()),
                       .got = "no such file",
                       .expected = fmt::format("'{}' or '{}'", plain.string(), packed.string()),
                       .fix = "give the folder with the four original MNIST files"},
                ExitCode::kInputMissing);
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
        .fix = "give the folder with the four original MNIST files"});
  }
  return array;
}

}  // namespace

DatasetPtr mnist(const fs::path& folder, Split split, c10::ScalarType type) {
  std::error_code error;
  if (!fs::is_directory(folder, error) && (!error || error == std::errc::no_such_file_or_directory)) {
    throw IoError(Report{.what = fmt::format("no MNIST folder '{}'", folder.string()),
                         .got = fs::exists(folder, error) ? "not a folder" : "no such folder",
                         .expected = "a folder with train-images-idx3-ubyte.gz and its three companions",
                         .fix = "give the folder with the four original MNIST files"},
                  ExitCode::kInputMissing);
  }
  const std::string prefix = split == Split::kTrain ? "train" : "t10k";
  const fs::path images_path = find(folder, prefix + "-images-idx3-ubyte");
  const fs::path labels_path = find(folder, prefix + "-labels-idx1-ubyte");
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
