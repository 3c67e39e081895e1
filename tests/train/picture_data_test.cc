#include "reigen/train/picture_data.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "format/temporary_folder.h"
#include "reigen/base/error.h"
#include "reigen/container/container.h"
#include "reigen/container/pack.h"
#include "reigen/image/encode.h"

namespace reigen::train {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

void write_picture(const fs::path& path, int grey) {
  image::Picture picture{.width = 40, .height = 36};
  picture.pixels.assign(3 * 40 * 36, static_cast<std::uint8_t>(grey));
  const auto bytes = image::encode_jpeg(picture, 90);
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

void pack(const fs::path& source, const fs::path& target, const fs::path& labels = {}) {
  container::pack(*container::open(source, {.labels_file = labels}), target,
                  {.kind = container::ContainerKind::kTar, .workers = 1});
}

// Training in class folders; validation in a flat folder with a file of labels, as ImageNet has it.
class PictureDataOfImageNet : public ::testing::Test {
 protected:
  void prepare(const std::string& labels) {
    for (int i = 0; i < 12; ++i)
      write_picture(path("raw/train") / fmt::format("n{}", i % 3) / fmt::format("{}.jpg", i), 20 * i);
    for (int i = 0; i < 4; ++i) write_picture(path("raw/val") / fmt::format("{}.jpg", i), 50 * i);
    fs::create_directories(path("packed"));
    pack(path("raw/train"), path("packed/train.tar"));
    pack(path("raw/val"), path("packed/val.tar"), folder_.write("labels", labels));
  }
  fs::path path(const std::string& name) const { return folder_.path() / name; }
  const tests::TemporaryFolder folder_;
};

TEST_F(PictureDataOfImageNet, TakesTheClassesOfTheTrainingForAValidationThatHasNumbersOnly) {
  prepare("0.jpg 2\n1.jpg 0\n2.jpg 1\n3.jpg 2\n");
  PictureData data({.path = path("packed"), .size = 32});
  EXPECT_EQ(data.classes(), 3);
  EXPECT_EQ(data.training()->size(), 12);
  const auto validation = data.validation();
  ASSERT_EQ(validation->size(), 4);
  const std::vector<std::int64_t> all = {0, 1, 2, 3};
  const auto samples = validation->gather(all);
  EXPECT_EQ(samples.input.sizes(), (std::vector<std::int64_t>{4, 3, 32, 32}));
  const std::vector<std::int64_t> expected = {2, 0, 1, 2};
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), samples.target.const_data_ptr<std::int64_t>()));
}

TEST_F(PictureDataOfImageNet, RefusesALabelOutsideOfTheClasses) {
  prepare("0.jpg 2\n1.jpg 3\n");
  PictureData data({.path = path("packed"), .size = 32});
  const std::vector<std::int64_t> second = {1};
  EXPECT_THAT([&] { data.validation()->gather(second); },
              ThrowsMessage<DataError>(AllOf(HasSubstr("got: 3"), HasSubstr("expected: 0..2"))));
}

TEST_F(PictureDataOfImageNet, RefusesAValidationWithOtherClasses) {
  prepare("0.jpg 0\n");
  for (int i = 0; i < 3; ++i) write_picture(path("raw/other") / fmt::format("m{}", i) / "a.jpg", 9);
  fs::remove_all(path("packed/val.tar"));
  pack(path("raw/other"), path("packed/val.tar"));
  PictureData data({.path = path("packed"), .size = 32});
  EXPECT_THAT([&] { data.validation(); },
              ThrowsMessage<DataError>(AllOf(HasSubstr("the classes of"), HasSubstr("differ"))));
}

}  // namespace
}  // namespace reigen::train
