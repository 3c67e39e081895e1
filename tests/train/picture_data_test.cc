#include "reigen/train/picture_data.h"

#include <ATen/ATen.h>
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
#include "reigen/container/writer.h"
#include "reigen/data/loader.h"
#include "reigen/image/draft.h"
#include "reigen/image/encode.h"
#include "reigen/train/resnet18_task.h"

namespace reigen::train {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// A grey picture of 40 x 48 pixels.
void write_picture(const fs::path& path, int grey) {
  image::Picture picture{.width = 40, .height = 48};
  picture.pixels.assign(3 * 40 * 48, static_cast<std::uint8_t>(grey));
  const auto bytes = image::encode_jpeg(picture, 95);
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

class PictureDataTest : public ::testing::Test {
 protected:
  fs::path at(const std::string& name) const { return folder_.path() / name; }
  // `count` grey pictures in `classes` folders; picture i has the value 10 i.
  void make(const fs::path& path, int count, int classes) const {
    for (int i = 0; i < count; ++i) {
      write_picture(path / fmt::format("class{}", i * classes / count) / fmt::format("{:02}.jpg", i), 10 * i);
    }
  }
  void pack(const fs::path& from, const fs::path& to, int shards = 1) const {
    container::pack(*container::open(from), to, {.kind = container::kind_of_target(to), .shards = shards});
  }
  static PictureData data(const fs::path& path, std::int64_t classes = 0) {
    return PictureData({.path = path, .size = 32, .augment = false, .classes = classes});
  }

 private:
  tests::TemporaryFolder folder_;
};

// Small pictures of a container are those of folders: the same values without changes at random.
TEST_F(PictureDataTest, SmallPicturesOfContainersAreThoseOfFolders) {
  make(at("a/train"), 12, 3);
  make(at("a/test"), 6, 3);
  fs::create_directories(at("tar"));
  pack(at("a/train"), at("tar/train.tar"));
  pack(at("a/test"), at("tar/test.tar"), 2);
  EXPECT_FALSE(PictureData::has_containers(at("a")));
  EXPECT_FALSE(PictureData::has_containers(at("a/train")));
  EXPECT_FALSE(PictureData::has_containers(at("nowhere")));
  EXPECT_TRUE(PictureData::has_containers(at("tar")));
  EXPECT_TRUE(PictureData::has_containers(at("tar/train.tar")));
  EXPECT_TRUE(PictureData::has_containers(at("tar/test.tar"))) << "a folder of shards";
  EXPECT_TRUE(PictureData::has_containers(at("tar/train-*-of-00002"))) << "a pattern";
  // Names of classes and files beside them make no container of a folder.
  make(at("b/bird-of-paradise"), 12, 3);
  std::ofstream(at("b/photos.tar")) << "the archive of these folders";
  std::ofstream(at("b/train.csv")) << "notes";
  EXPECT_FALSE(PictureData::has_containers(at("b")));
  std::ofstream(at("a/photos.tar")) << "the archive of these folders";
  EXPECT_FALSE(PictureData::has_containers(at("a")));
  fs::remove(at("a/photos.tar"));
  ResNet18Task folders({.path = at("a").string()});
  ResNet18Task containers({.path = at("tar").string()});
  EXPECT_EQ(containers.training()->size(), 12);
  EXPECT_EQ(containers.module().forward(at::zeros({1, 3, 32, 32})).size(1), 3);
  const std::vector<std::int64_t> all = {0, 1, 2, 3, 4, 5};
  const data::Samples expected = folders.validation()->gather(all);
  const data::Samples got = containers.validation()->gather(all);
  EXPECT_TRUE(at::equal(got.target, expected.target));
  EXPECT_EQ(got.input.sizes(), expected.input.sizes());
  EXPECT_LE((got.input - expected.input).abs().max().item<double>(), 1e-6);
  // Training pads with black: a pixel at the edge has the value of a black one or that of the picture.
  const double black = -image::kCifar10Mean[0] / image::kCifar10Deviation[0];
  const data::Samples changed = containers.training()->gather_in({.seed = 1, .epoch = 0}, all);
  const data::Samples whole = folders.training()->gather(all);
  bool has_border = false;
  for (std::int64_t i = 0; i < 6; ++i) {
    const at::Tensor red = changed.input[i][0];
    const double inside = whole.input[i][0][16][16].item<double>();
    EXPECT_TRUE(at::logical_or((red - black).abs() < 1e-5, (red - inside).abs() < 1e-5).all().item<bool>()) << i;
    has_border |= ((red - black).abs() < 1e-5).any().item<bool>() && i > 0;  // picture 0 is black
  }
  EXPECT_TRUE(has_border);
}

TEST_F(PictureDataTest, FindsTrainingAndValidationInEveryForm) {
  make(at("a/train"), 12, 3);
  make(at("a/val"), 6, 3);
  for (const std::string kind : {"tfrecord", "tar"}) {
    fs::create_directories(at(kind));
    pack(at("a/train"), at(kind) / ("train." + kind));
    pack(at("a/val"), at(kind) / ("test." + kind), 2);
  }
  // Shards that lie in the folder itself.
  fs::create_directories(at("shards"));
  pack(at("a/train"), at("t.tar"), 2);
  pack(at("a/val"), at("v.tar"), 2);
  for (const auto& file : fs::directory_iterator(at("t.tar"))) {
    const std::string name = file.path().filename().string();
    if (name.starts_with("t-")) fs::copy(file.path(), at("shards") / ("train" + name.substr(1)));
  }
  for (const auto& file : fs::directory_iterator(at("v.tar"))) {
    const std::string name = file.path().filename().string();
    if (name.starts_with("v-")) fs::copy(file.path(), at("shards") / ("val" + name.substr(1)));
  }
  // Names that others give to shards: train.0.tar, train.tfrecord-00000-of-00002.
  fs::create_directories(at("dotted"));
  for (const auto& file : fs::directory_iterator(at("shards"))) {
    std::string name = file.path().filename().string();
    fs::copy(file.path(), at("dotted") / name.replace(name.find('-'), 1, "."));
  }
  fs::create_directories(at("of"));
  for (const auto& [part, name] : {std::pair("train", "a/train"), std::pair("val", "a/val")}) {
    pack(at(name), at("p.tfrecord"), 2);
    for (const auto& file : fs::directory_iterator(at("p.tfrecord"))) {
      const std::string old = file.path().filename().string();
      if (old.starts_with("p-")) fs::copy(file.path(), at("of") / (std::string(part) + ".tfrecord" + old.substr(1)));
    }
    fs::remove_all(at("p.tfrecord"));
  }
  for (const std::string name : {"a", "tfrecord", "tar", "shards", "dotted", "of"}) {
    EXPECT_EQ(PictureData::has_containers(at(name)), name != "a") << name;
    PictureData pictures = data(at(name), name == "shards" || name == "dotted" || name == "of" ? 3 : 0);
    EXPECT_EQ(pictures.training()->size(), 12) << name;
    EXPECT_EQ(pictures.validation()->size(), 6) << name;
    EXPECT_EQ(pictures.classes(), 3) << name;
    const data::Samples samples = pictures.validation()->gather(std::vector<std::int64_t>{0, 5});
    EXPECT_EQ(samples.input.sizes(), (std::vector<std::int64_t>{2, 3, 32, 32})) << name;
    EXPECT_EQ(samples.target[1].item<std::int64_t>(), 2) << name;
    EXPECT_NEAR(samples.input[1][0][0][0].item<float>(), (50.0 / 255 - 0.485) / 0.229, 0.02) << name;
  }
}

TEST_F(PictureDataTest, MixesAlsoPicturesThatAreNotAugmented) {
  make(at("m/train"), 12, 3);
  make(at("m/val"), 6, 3);
  PictureData mixed({.path = at("m"), .size = 32, .augment = false, .mixing = {.mixup = 1}});
  PictureData plain({.path = at("m"), .size = 32, .augment = false});
  const auto first = [](PictureData& from) {
    data::Loader loader(from.training(), {.batch_size = 12, .workers = 0});
    auto epoch = loader.epoch(0);
    return epoch.next()->input.clone();
  };
  EXPECT_FALSE(at::equal(first(mixed), first(plain)));
}

TEST_F(PictureDataTest, LeavesEveryTenthSampleForValidation) {
  make(at("flat"), 21, 2);
  fs::rename(at("flat"), at("all"));
  pack(at("all"), at("one.tar"));
  PictureData pictures = data(at("one.tar"));
  EXPECT_EQ(pictures.training()->size(), 19);
  EXPECT_EQ(pictures.validation()->size(), 2);
  const auto one = pictures.validation()->gather(std::vector<std::int64_t>{0});
  EXPECT_NEAR(one.input[0][0][0][0].item<float>(), (90.0 / 255 - 0.485) / 0.229, 0.02);  // sample 9
  EXPECT_THAT(pictures.kind_of_samples(), HasSubstr("pictures of 2 classes from"));
}

TEST_F(PictureDataTest, RefusesWhatDoesNotFitTogether) {
  make(at("b/train"), 4, 2);
  EXPECT_THAT([&] { data(at("b")).training(); },
              ThrowsMessage<DataError>(HasSubstr("has data for training and none for validation")));
  make(at("b/val"), 4, 4);
  EXPECT_THAT([&] { data(at("b")).training(); },
              ThrowsMessage<DataError>(AllOf(HasSubstr("the classes of"), HasSubstr("4 classes"))));
  make(at("c/train"), 4, 4);
  make(at("c/val"), 4, 4);
  PictureData few = data(at("c"), 3);
  EXPECT_THAT([&] { few.training()->gather(std::vector<std::int64_t>{3}); },
              ThrowsMessage<DataError>(
                  AllOf(HasSubstr("sample 3"), HasSubstr("is outside of the classes"), HasSubstr("expected: 0..2"))));
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
