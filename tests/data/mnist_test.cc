#include "reigen/data/mnist.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "format/gzip.h"
#include "format/temporary_folder.h"
#include "harness/folders.h"
#include "reigen/base/error.h"
#include "reigen/format/idx.h"

namespace reigen::data::mnist_test {
namespace {

using ::testing::HasSubstr;
using tests::TemporaryFolder;

std::string idx(const std::vector<std::uint32_t>& dims, const std::string& data) {
  std::string text{'\0', '\0', '\x08', static_cast<char>(dims.size())};
  for (const auto dim : dims) {
    for (int shift = 24; shift >= 0; shift -= 8) text.push_back(static_cast<char>(dim >> shift));
  }
  return text + data;
}

std::string images(std::uint32_t count, std::uint32_t side = 28) {
  std::string data(std::size_t{count} * side * side, '\0');
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i % 251);
  return idx({count, side, side}, data);
}

TEST(Mnist, ReadsPlainAndPackedFiles) {
  const TemporaryFolder folder;
  folder.write("train-images-idx3-ubyte", images(3));
  folder.write("train-labels-idx1-ubyte.gz", tests::gzip(idx({3}, {'\x04', '\0', '\x09'})));
  const auto data = mnist(folder.path(), Split::kTrain, torch::kDouble);
  EXPECT_EQ(data->size(), 3);
  EXPECT_EQ(data->name(), "mnist train");
  const std::vector<std::int64_t> indices = {2, 0};
  const Samples samples = data->gather(indices);
  ASSERT_EQ(samples.input.scalar_type(), torch::kDouble);
  ASSERT_EQ(samples.input.sizes().vec(), (std::vector<std::int64_t>{2, 1, 28, 28}));
  EXPECT_TRUE(samples.target.equal(torch::tensor({9, 4}, torch::kLong)));
  const double expected = ((2 * 784 + 29) % 251 / 255.0 - 0.1307) / 0.3081;
  EXPECT_EQ(samples.input[0][0][1][1].item<double>(), expected);
}

struct Wrong {
  const char* name;
  std::function<void(const TemporaryFolder&)> write;
  ExitCode code;
  const char* text;
};

TEST(Mnist, WrongFoldersAreNamed) {
  const auto labels = [](std::uint32_t count) { return idx({count}, std::string(count, '\x01')); };
  const std::vector<Wrong> table = {
      {"empty folder", [](const TemporaryFolder&) {}, ExitCode::kInputMissing, "train-images-idx3-ubyte.gz"},
      {"no labels", [](const TemporaryFolder& f) { f.write("train-images-idx3-ubyte", images(2)); },
       ExitCode::kInputMissing, "train-labels-idx1-ubyte.gz"},
      {"counts differ",
       [&](const TemporaryFolder& f) {
         f.write("train-images-idx3-ubyte", images(2));
         f.write("train-labels-idx1-ubyte", labels(3));
       },
       ExitCode::kBadData, "2 images and 3 labels"},
      {"other size",
       [&](const TemporaryFolder& f) {
         f.write("train-images-idx3-ubyte", images(2, 27));
         f.write("train-labels-idx1-ubyte", labels(2));
       },
       ExitCode::kBadData, "[2, 27, 27]"},
      {"labels in place of images",
       [&](const TemporaryFolder& f) {
         f.write("train-images-idx3-ubyte", labels(2));
         f.write("train-labels-idx1-ubyte", labels(2));
       },
       ExitCode::kBadData, "got: [2]"},
      {"no images",
       [&](const TemporaryFolder& f) {
         f.write("train-images-idx3-ubyte", images(0));
         f.write("train-labels-idx1-ubyte", labels(0));
       },
       ExitCode::kBadData, "N at least 1"},
      {"label ten",
       [&](const TemporaryFolder& f) {
         f.write("train-images-idx3-ubyte", images(2));
         f.write("train-labels-idx1-ubyte", idx({2}, {'\x09', '\x0A'}));
       },
       ExitCode::kBadData, "wrong label at byte 9"},
      {"a folder in place of a file",
       [&](const TemporaryFolder& f) {
         std::filesystem::create_directory(f.path() / "train-images-idx3-ubyte");
         f.write("train-labels-idx1-ubyte", labels(2));
       },
       ExitCode::kInputMissing, "a folder"},
  };
  for (const Wrong& wrong : table) {
    SCOPED_TRACE(wrong.name);
    const TemporaryFolder folder;
    wrong.write(folder);
    try {
      mnist(folder.path());
      ADD_FAILURE() << "read without complaint";
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), wrong.code);
      EXPECT_THAT(error.what(), HasSubstr(folder.path().string()));
      EXPECT_THAT(error.what(), HasSubstr(wrong.text));
    }
  }
}

// Writes the files of a split under these names. The number of images tells which files were read.
void write_split(const TemporaryFolder& folder, const std::string& image_name, const std::string& label_name,
                 std::uint32_t count = 2) {
  for (const auto& [name, content] :
       {std::pair{image_name, images(count)}, std::pair{label_name, idx({count}, std::string(count, '\x01'))}}) {
    std::filesystem::create_directories((folder.path() / name).parent_path());
    folder.write(name, name.ends_with(".gz") ? tests::gzip(content) : content);
  }
}

TEST(Mnist, NamesThatAreAbout) {
  const std::vector<std::pair<std::string, std::string>> spellings = {
      {"t10k-images.idx3-ubyte", "t10k-labels.idx1-ubyte"},
      {"t10k-images.idx3-ubyte.gz", "t10k-labels.idx1-ubyte.gz"},
      {"T10K-IMAGES-IDX3-UBYTE", "t10k_labels_idx1_ubyte"},
      {"test-images-idx3-ubyte", "test-labels-idx1-ubyte"},
      {"MNIST/raw/t10k-images-idx3-ubyte", "MNIST/raw/t10k-labels-idx1-ubyte"},
      {"t10k-images-idx3-ubyte/t10k-images-idx3-ubyte", "t10k-labels.idx1-ubyte/t10k-labels.idx1-ubyte"},
  };
  for (const auto& [image_name, label_name] : spellings) {
    SCOPED_TRACE(image_name);
    const TemporaryFolder folder;
    write_split(folder, image_name, label_name);
    EXPECT_EQ(mnist(folder.path(), Split::kTest)->size(), 2);
    EXPECT_EQ(mnist_files(folder.path(), Split::kTest).images, folder.path() / image_name);
  }
}

TEST(Mnist, TheNearestFilesAreMeant) {
  const TemporaryFolder folder;
  write_split(folder, "MNIST/raw/train-images-idx3-ubyte", "MNIST/raw/train-labels-idx1-ubyte", 3);
  write_split(folder, "MNIST/raw/train-images-idx3-ubyte.gz", "MNIST/raw/train-labels-idx1-ubyte.gz", 4);
  write_split(folder, ".old/train-images-idx3-ubyte", ".old/train-labels-idx1-ubyte", 5);
  EXPECT_EQ(mnist(folder.path())->size(), 3);
  write_split(folder, "FashionMNIST/raw/train-images-idx3-ubyte", "FashionMNIST/raw/train-labels-idx1-ubyte", 6);
  EXPECT_THAT([&] { mnist(folder.path()); },
              ::testing::ThrowsMessage<DataError>(HasSubstr("FashionMNIST/raw/train-im")));
  EXPECT_EQ(mnist(folder.path() / "MNIST")->size(), 3);
  write_split(folder, "train-images.idx3-ubyte", "train-labels.idx1-ubyte", 7);
  EXPECT_EQ(mnist(folder.path())->size(), 7);
}

TEST(Mnist, WhatIsThereInsteadIsNamed) {
  const TemporaryFolder folder;
  folder.write("mnist_train.csv", "5,0,0");
  std::filesystem::create_directory(folder.path() / "training");
  EXPECT_THAT([&] { mnist(folder.path()); },
              ::testing::ThrowsMessage<IoError>(::testing::AllOf(HasSubstr("there: a folder training, mnist_train.csv"),
                                                                 HasSubstr("train-images-idx3-ubyte"))));
}

TEST(Mnist, MissingFolderAndFileInItsPlace) {
  const TemporaryFolder folder;
  for (const auto& path : {folder.path() / "absent", folder.write("file", "x"), folder.path() / "file" / "below"}) {
    try {
      mnist(path);
      ADD_FAILURE() << path << " was read";
    } catch (const IoError& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::kInputMissing);
      EXPECT_THAT(error.what(), HasSubstr(path.string()));
    }
  }
}

// The real files, if this machine has them: in REIGEN_TEST_DATA, otherwise in shared/data beside the source folder.
class RealMnist : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* given = std::getenv("REIGEN_TEST_DATA");
    folder = (given != nullptr && *given != '\0' ? std::filesystem::path(given)
                                                 : std::filesystem::path(kSourceFolder) / "../shared/data") /
             "mnist";
    if (std::filesystem::exists(folder / "train-images-idx3-ubyte.gz")) return;
    std::cout << "SKIPPED: no real MNIST in " << folder << "; set REIGEN_TEST_DATA to the folder that holds mnist/\n";
    GTEST_SKIP();
  }
  std::filesystem::path folder;
};

TEST_F(RealMnist, BothSplits) {
  const auto train = mnist(folder);
  const auto test = mnist(folder, Split::kTest);
  EXPECT_EQ(train->size(), 60'000);
  EXPECT_EQ(test->size(), 10'000);
  const std::vector<std::int64_t> indices = {0, 1, 2, 3, 4};
  EXPECT_TRUE(train->gather(indices).target.equal(torch::tensor({5, 0, 4, 1, 9}, torch::kLong)));
  EXPECT_TRUE(test->gather(indices).target.equal(torch::tensor({7, 2, 1, 0, 4}, torch::kLong)));
  // The two constants of the normalisation are the mean and deviation of this set. The files alternate between two
  // groups of writers, so an even stride would see only one group.
  std::vector<std::int64_t> some(8'000);
  for (std::size_t i = 0; i < some.size(); ++i) some[i] = static_cast<std::int64_t>(i) * 7;
  const auto input = train->gather(some).input.to(torch::kDouble);
  EXPECT_NEAR(input.mean().item<double>(), 0, 0.01);
  EXPECT_NEAR(input.square().mean().item<double>(), 1, 0.02);
}

TEST_F(RealMnist, FlippedBitsAreSeen) {
  const std::string labels = tests::content_of(folder / "t10k-labels-idx1-ubyte.gz");
  ASSERT_GT(labels.size(), 1000u);
  const auto original = format::read_idx(folder / "t10k-labels-idx1-ubyte.gz");
  const TemporaryFolder copy;
  for (std::size_t i = 0; i < 50; ++i) {
    std::string damaged = labels;
    const std::size_t at = i * (labels.size() - 1) / 49;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << i % 8));
    const auto path = copy.write("labels", damaged);
    try {
      const auto read = format::read_idx(path);
      EXPECT_TRUE(std::ranges::equal(read.bytes(), original.bytes())) << "bit " << i % 8 << " of byte " << at;
    } catch (const DataError& error) {
      EXPECT_THAT(error.what(), HasSubstr(path.string()));
    }
  }
}

}  // namespace
}  // namespace reigen::data::mnist_test
