#include "reigen/data/pictures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <numeric>

#include "data/pictures/picture.h"
#include "format/temporary_folder.h"
#include "harness/folders.h"
#include "image/picture_files.h"
#include "reigen/base/error.h"
#include "reigen/data/loader.h"
#include "reigen/format/hash.h"

namespace reigen::data::pictures_test {
namespace {

using image::Picture;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using tests::flat;
using tests::jpeg_of;
using tests::png_of;
using tests::TemporaryFolder;
using Pixels = std::array<std::uint8_t, kPictureBytes>;
namespace fs = std::filesystem;

void add(const TemporaryFolder& folder, const std::string& name, const std::string& content) {
  fs::create_directories((folder.path() / name).parent_path());
  folder.write(name, content);
}

TEST(Picture, EveryCutIsRefusedByName) {
  std::vector<std::uint8_t> pixels;
  for (int i = 0; i < 40 * 40 * 3; ++i) pixels.push_back(static_cast<std::uint8_t>(i * i % 251));
  const std::string jpeg = jpeg_of(40, 40, 3, pixels);
  const std::string png = png_of(40, 40, 3, pixels);
  for (const std::string& whole : {jpeg, png}) {
    const TemporaryFolder folder;
    for (std::size_t part = 0; part < 20; ++part) {
      const auto path = folder.write("cut", whole.substr(0, whole.size() * part / 20));
      try {
        read_picture(path, 32);
        ADD_FAILURE() << "read " << part << " parts of 20";
      } catch (const DataError& error) {
        EXPECT_THAT(error.what(), HasSubstr(path.string()));
      }
    }
    EXPECT_EQ(read_picture(folder.write("whole", whole), 32).width, 40);
  }
}

TEST(Picture, TheMiddleSquareIsBroughtToSize) {
  // Columns 0, 1, 2, ... so that a mean of two neighbours is known.
  Picture wide{.width = 12, .height = 8, .pixels = {}};
  for (int y = 0; y < 8; ++y) {
    for (int x = 0; x < 12; ++x) wide.pixels.insert(wide.pixels.end(), 3, static_cast<std::uint8_t>(10 * x));
  }
  std::vector<std::uint8_t> out(4 * 4 * 3);
  square(wide, 4, out);
  const auto row = [&](std::size_t y) {
    return std::vector<int>{out[12 * y], out[12 * y + 3], out[12 * y + 6], out[12 * y + 9]};
  };
  EXPECT_THAT(row(0), ElementsAre(25, 45, 65, 85));  // columns 2 and 3, 4 and 5, ...
  EXPECT_EQ(row(3), row(0));

  Picture two{.width = 2, .height = 2, .pixels = {0, 0, 0, 100, 100, 100, 0, 0, 0, 100, 100, 100}};
  square(two, 4, out);
  EXPECT_THAT(row(0), ElementsAre(0, 25, 75, 100));

  Picture same{.width = 4, .height = 5, .pixels = std::vector<std::uint8_t>(60)};
  std::iota(same.pixels.begin(), same.pixels.end(), 0);
  square(same, 4, out);
  EXPECT_TRUE(std::equal(out.begin(), out.end(), same.pixels.begin()));
}

TEST(Picture, ShrinkingByAFractionWeighsWhatIsCovered) {
  Picture three{.width = 3, .height = 3, .pixels = {}};
  for (int i = 0; i < 9; ++i) three.pixels.insert(three.pixels.end(), 3, static_cast<std::uint8_t>(i % 3 * 60));
  std::vector<std::uint8_t> out(2 * 2 * 3);
  square(three, 2, out);
  EXPECT_EQ(out[0], 20);  // (0 + 60 / 2) / 1.5
  EXPECT_EQ(out[3], 100);
}

// Writes folders cat/ and dog/ with flat pictures, in two colours each.
void write_two_classes(const TemporaryFolder& folder, const std::string& at, int count) {
  for (int i = 0; i < count; ++i) {
    const auto tone = static_cast<std::uint8_t>(i);
    add(folder, at + "dog/" + std::to_string(100 + i) + ".JPEG", jpeg_of(32, 32, 3, flat(32, 32, {tone, 200, tone})));
    add(folder, at + "cat/" + std::to_string(100 + i) + ".png", png_of(32, 32, 3, flat(32, 32, {tone, 0, tone})));
  }
}

TEST(ImageFolder, ClassesAreTheFoldersInOrder) {
  const TemporaryFolder folder;
  write_two_classes(folder, "train/", 3);
  write_two_classes(folder, "test/", 2);
  add(folder, "train/dog/notes.txt", "no picture");
  add(folder, "train/dog/.hidden.png", "no picture");
  const ImageFolder train = image_folder(folder.path(), {.type = torch::kDouble});
  EXPECT_THAT(train.classes, ElementsAre("cat", "dog"));
  EXPECT_EQ(train.data->size(), 6);
  EXPECT_EQ(image_folder(folder.path(), {.split = Split::kTest}).data->size(), 4);
  const std::vector<std::int64_t> indices = {5, 1};
  const Samples samples = train.data->gather(indices);
  ASSERT_EQ(samples.input.sizes().vec(), (std::vector<std::int64_t>{2, 3, 32, 32}));
  EXPECT_TRUE(samples.target.equal(torch::tensor({1, 0}, torch::kLong)));
  EXPECT_EQ(samples.input[1][0][7][9].item<double>(), (1 / 255.0 - 0.4914) / 0.2470);
  EXPECT_EQ(samples.input[1][1][7][9].item<double>(), (0 / 255.0 - 0.4822) / 0.2435);
  EXPECT_EQ(samples.input[1][2][7][9].item<double>(), (1 / 255.0 - 0.4465) / 0.2616);
}

TEST(ImageFolder, WithoutAFolderForTestingEveryTenthIsForIt) {
  const TemporaryFolder folder;
  write_two_classes(folder, "", 10);
  const auto train = image_folder(folder.path()).data;
  const auto test = image_folder(folder.path(), {.split = Split::kTest}).data;
  EXPECT_EQ(train->size(), 18);
  EXPECT_EQ(test->size(), 2);
  const std::vector<std::int64_t> both = {0, 1};
  EXPECT_TRUE(test->gather(both).target.equal(torch::tensor({0, 1}, torch::kLong)));
}

struct Wrong {
  const char* name;
  std::function<void(const TemporaryFolder&)> write;
  ExitCode code;
  const char* text;
};

TEST(ImageFolder, WrongFoldersAreNamed) {
  const std::string png = png_of(2, 2, 1, flat(2, 2, {9}));
  const std::vector<Wrong> table = {
      {"empty", [](const TemporaryFolder&) {}, ExitCode::kBadData, "no folder in it"},
      {"files only", [&](const TemporaryFolder& f) { add(f, "a.png", png); }, ExitCode::kBadData, "no folder in it"},
      {"one class", [&](const TemporaryFolder& f) { add(f, "cat/a.png", png); }, ExitCode::kBadData, "only 'cat'"},
      {"a class without pictures",
       [&](const TemporaryFolder& f) {
         add(f, "cat/a.png", png);
         add(f, "dog/a.gif", png);
       },
       ExitCode::kBadData, "dog"},
      {"too few for testing",
       [&](const TemporaryFolder& f) {
         add(f, "cat/a.png", png);
         add(f, "dog/a.png", png);
       },
       ExitCode::kBadData, "every tenth"},
      {"train without test",
       [&](const TemporaryFolder& f) {
         add(f, "train/cat/a.png", png);
         add(f, "train/dog/a.png", png);
       },
       ExitCode::kInputMissing, "test"},
      {"another class in test",
       [&](const TemporaryFolder& f) {
         for (const char* name : {"train/cat/a.png", "train/dog/a.png", "test/cat/a.png", "test/owl/a.png"}) {
           add(f, name, png);
         }
       },
       ExitCode::kBadData, "owl"},
  };
  for (const Wrong& wrong : table) {
    SCOPED_TRACE(wrong.name);
    const TemporaryFolder folder;
    wrong.write(folder);
    try {
      image_folder(folder.path(), {.split = Split::kTest});
      ADD_FAILURE() << "read without complaint";
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), wrong.code) << error.what();
      EXPECT_THAT(error.what(), HasSubstr(folder.path().string()));
      EXPECT_THAT(error.what(), HasSubstr(wrong.text));
    }
  }
  const TemporaryFolder folder;
  for (const auto& path : {folder.path() / "absent", folder.write("file.tar.gz", "x")}) {
    try {
      image_folder(path);
      ADD_FAILURE() << path << " was read";
    } catch (const IoError& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::kInputMissing);
      EXPECT_THAT(error.what(), HasSubstr(path.string()));
    }
  }
}

TEST(ImageFolder, ADamagedPictureIsNamedWhenItIsAskedFor) {
  const TemporaryFolder folder;
  write_two_classes(folder, "train/", 2);
  add(folder, "train/cat/101.png", "GIF89a");
  const auto data = image_folder(folder.path()).data;
  const std::vector<std::int64_t> good = {0};
  const std::vector<std::int64_t> bad = {0, 1};
  EXPECT_NO_THROW(data->gather(good));
  Loader loader(data, {.batch_size = 4, .workers = 2}, {0, 1});
  const auto named =
      ::testing::Throws<DataError>(::testing::Property(&std::exception::what, HasSubstr("train/cat/101.png")));
  EXPECT_THAT([&] { data->gather(bad); }, named);
  EXPECT_THAT([&] { loader.epoch(0).next(); }, named);
}

TEST(ImageFolder, AnUnreadablePictureIsNamed) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may read everything";
  const TemporaryFolder folder;
  write_two_classes(folder, "train/", 1);
  const auto data = image_folder(folder.path()).data;
  fs::permissions(folder.path() / "train/cat/100.png", fs::perms::none);
  const std::vector<std::int64_t> first = {0};
  try {
    data->gather(first);
    ADD_FAILURE() << "it was read";
  } catch (const IoError& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kPermission);
    EXPECT_THAT(error.what(), HasSubstr("100.png"));
  }
}

// Maps each index to the bits of its sample, over an epoch on this many ranks.
std::map<std::int64_t, at::Tensor> samples_of(const DatasetPtr& data, int ranks, std::int64_t batch, int workers,
                                              std::int64_t epoch = 0, std::uint64_t seed = 0) {
  std::map<std::int64_t, at::Tensor> samples;
  for (int rank = 0; rank < ranks; ++rank) {
    Loader loader(data, {.global_batch = batch, .shuffle = true, .seed = seed, .workers = workers}, {rank, ranks});
    for (Batch& part : loader.epoch(epoch)) {
      for (std::size_t i = 0; i < part.indices.size(); ++i) {
        samples[part.indices[i]] = part.input[static_cast<std::int64_t>(i)].clone();
      }
    }
  }
  return samples;
}

TEST(Augmentation, DependsOnSeedEpochAndIndexOnly) {
  const auto data = drawn_pictures({.augment = true, .size = 40});
  const auto reference = samples_of(data, 1, 40, 0);
  ASSERT_EQ(reference.size(), 40U);
  for (const auto& [ranks, batch, workers] : {std::array{2, 7, 1}, {3, 16, 3}, {1, 1, 2}}) {
    const auto found = samples_of(data, ranks, batch, workers);
    ASSERT_EQ(found.size(), 40U);
    for (const auto& [index, sample] : reference) EXPECT_TRUE(at::equal(sample, found.at(index))) << index;
  }
  const auto differing = [&](const std::map<std::int64_t, at::Tensor>& other) {
    int count = 0;
    for (const auto& [index, sample] : reference) count += at::equal(sample, other.at(index)) ? 0 : 1;
    return count;
  };
  EXPECT_GT(differing(samples_of(data, 1, 40, 0, 1)), 35);
  EXPECT_GT(differing(samples_of(data, 1, 40, 0, 0, 1)), 35);
}

// Each pixel of the picture contains its place in the picture.
TEST(Augmentation, PadsCutsAndMirrors) {
  std::vector<std::uint8_t> pixels;
  for (int y = 0; y < 32; ++y) {
    for (int x = 0; x < 32; ++x) {
      pixels.insert(pixels.end(), {static_cast<std::uint8_t>(100 + x), static_cast<std::uint8_t>(100 + y), 255});
    }
  }
  const TemporaryFolder folder;
  add(folder, "train/a/0.png", png_of(32, 32, 3, pixels));
  add(folder, "train/b/0.png", png_of(32, 32, 3, pixels));
  const auto data = image_folder(folder.path(), {.augment = true, .type = torch::kDouble}).data;
  const std::vector<std::int64_t> first = {0};
  std::map<std::array<int, 3>, int> seen;
  for (std::int64_t epoch = 0; epoch < 400; ++epoch) {
    const at::Tensor image = data->gather_in({.seed = 1, .epoch = epoch}, first).input[0];
    const auto byte = [&](int c, int y, int x) {
      constexpr double kMean[] = {0.4914, 0.4822, 0.4465};
      constexpr double kDeviation[] = {0.2470, 0.2435, 0.2616};
      return static_cast<int>(std::lround((image[c][y][x].item<double>() * kDeviation[c] + kMean[c]) * 255));
    };
    const int middle = byte(0, 16, 16) - 100;
    const bool mirrored = byte(0, 16, 17) < byte(0, 16, 16);
    const int right = middle - (mirrored ? 15 : 16);
    const int down = byte(1, 16, 16) - 100 - 16;
    ASSERT_LE(std::abs(right), 4);
    ASSERT_LE(std::abs(down), 4);
    seen[{right, down, mirrored ? 1 : 0}] += 1;
    const int edge_row = down > 0 ? 31 : 0;
    EXPECT_EQ(byte(2, edge_row, 16), down == 0 ? 255 : 0) << "outside of the picture it is black";
  }
  EXPECT_GT(seen.size(), 120U);  // of 162
  EXPECT_TRUE(at::equal(
      data->gather(first).input,
      image_folder(folder.path(), {.type = torch::kDouble}).data->gather_in({.seed = 1, .epoch = 3}, first).input));
}

std::uint64_t hash_of(std::uint64_t seed, Split split, std::int64_t first, std::int64_t count) {
  format::Hash64 hash;
  for (std::int64_t i = first; i < first + count; ++i) {
    Pixels pixels;
    const auto label = static_cast<std::uint8_t>(draw_picture(seed, split, i, pixels));
    hash.update(&label, 1);
    hash.update(pixels.data(), pixels.size());
  }
  return hash.value();
}

// The pictures must never change, because accuracies are compared between versions and machines.
TEST(DrawPicture, BytesAreTheSameEverywhere) {
  EXPECT_EQ(format::hash_text(hash_of(0, Split::kTrain, 0, 500)), "5203376d3bc6a24d");
  EXPECT_EQ(format::hash_text(hash_of(0, Split::kTest, 0, 200)), "278023a44016cade");
}

TEST(DrawPicture, SeedSplitAndIndexChangeThePicture) {
  const auto base = hash_of(0, Split::kTrain, 0, 1);
  EXPECT_NE(hash_of(1, Split::kTrain, 0, 1), base);
  EXPECT_NE(hash_of(0, Split::kTest, 0, 1), base);
  EXPECT_NE(hash_of(0, Split::kTrain, 1, 1), base);
  Pixels pixels;
  EXPECT_THROW(draw_picture(0, Split::kTrain, -1, pixels), InvalidArgument);
}

TEST(DrawPicture, EveryClassIsAsFrequent) {
  std::array<int, kDrawnClasses> counts{};
  for (std::int64_t i = 0; i < 1000; ++i) {
    Pixels pixels;
    ++counts.at(static_cast<std::size_t>(draw_picture(3, Split::kTrain, i, pixels)));
  }
  for (const int count : counts) EXPECT_NEAR(count, 100, 48);  // five standard deviations
}

TEST(DrawnPictures, SizesAndTypes) {
  EXPECT_EQ(drawn_pictures()->size(), 10'000);
  EXPECT_EQ(drawn_pictures({.split = Split::kTest})->size(), 2'000);
  EXPECT_THROW(drawn_pictures({.size = -1}), InvalidArgument);
  EXPECT_THROW(drawn_pictures({.type = torch::kInt}), InvalidArgument);
}

// The real files, if this machine has them: in REIGEN_TEST_DATA, otherwise in shared/data beside the source folder.
TEST(RealPhotos, AreDecodedAllOfThem) {
  const char* given = std::getenv("REIGEN_TEST_DATA");
  const fs::path folder =
      (given != nullptr && *given != '\0' ? fs::path(given) : fs::path(kSourceFolder) / "../shared/data") /
      "imagenet-sample";
  if (!fs::exists(folder)) {
    std::cout << "SKIPPED: no photos in " << folder
              << "; set REIGEN_TEST_DATA to the folder that holds imagenet-sample/\n";
    GTEST_SKIP();
  }
  const auto train = image_folder(folder);
  EXPECT_EQ(train.classes.size(), 125U);
  std::vector<std::int64_t> all(static_cast<std::size_t>(train.data->size()));
  std::iota(all.begin(), all.end(), 0);
  const auto input = train.data->gather(all).input.to(torch::kDouble);
  EXPECT_NEAR(input.mean().item<double>(), 0, 0.25);  // the photos have the usual mean brightness
}

}  // namespace
}  // namespace reigen::data::pictures_test
