// All readers of folders follow one rule for the names in a folder.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "format/temporary_folder.h"
#include "image/picture_files.h"
#include "reigen/base/error.h"
#include "reigen/data/pictures.h"
#include "reigen/data/text.h"

namespace reigen::data::folder_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using tests::TemporaryFolder;
namespace fs = std::filesystem;

void put(const TemporaryFolder& folder, const std::string& name, const std::string& content = "a text of its own") {
  fs::create_directories((folder.path() / name).parent_path());
  folder.write(name, content);
}

std::string read_back(const Corpus& corpus, Split split) {
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(corpus.size(split)));
  corpus.copy(split, 0, tokens);
  return corpus.encoding().decode(tokens);
}

TEST(TextFolder, HiddenFoldersAreNoText) {
  const TemporaryFolder folder;
  put(folder, "a.txt", std::string(100, 'a'));
  put(folder, ".ipynb_checkpoints/a-checkpoint.txt", std::string(100, 's'));
  put(folder, ".venv/lib/LICENSE.txt", std::string(100, 'l'));
  const Corpus corpus = read_corpus(folder.path());
  EXPECT_EQ(corpus.encoding().alphabet(), "a");
  EXPECT_EQ(corpus.taken().text(), "1 file; passed over 2 hidden: .ipynb_checkpoints, .venv");
}

TEST(TextFolder, FoldersForTrainingAndTesting) {
  const TemporaryFolder folder;
  put(folder, "test/a.txt", "the text to test with");
  put(folder, "train/deep/b.txt", "the text to train with");
  put(folder, "notes/c.txt", "neither");
  put(folder, "README.md", "neither");
  const Corpus corpus = read_corpus(folder.path());
  EXPECT_EQ(read_back(corpus, Split::kTrain), "the text to train with");
  EXPECT_EQ(read_back(corpus, Split::kTest), "the text to test with");
  EXPECT_EQ(corpus.taken().text(), "2 files; passed over 2 in neither split: README.md, notes");
}

TEST(TextFolder, FilesForTrainingAndTesting) {
  const TemporaryFolder folder;
  put(folder, "wiki.train.txt", "the text to train with");
  put(folder, "wiki.valid.txt", "the text to test with");
  put(folder, "README.md", "neither");
  const Corpus corpus = read_corpus(folder.path());
  EXPECT_EQ(read_back(corpus, Split::kTrain), "the text to train with");
  EXPECT_EQ(read_back(corpus, Split::kTest), "the text to test with");
  EXPECT_EQ(read_back(read_corpus(folder.path() / ""), Split::kTest), "the text to test with");
  put(folder, "wiki.test.txt", "the text of all tests");
  EXPECT_EQ(read_back(read_corpus(folder.path()), Split::kTest), "the text of all tests");
  fs::remove(folder.path() / "wiki.train.txt");  // no name says which file is for training
  EXPECT_EQ(read_corpus(folder.path()).taken().files, 3);
  put(folder, "wiki.train.txt", "the text to train with");
  put(folder, "wiki.test.txt", "");
  EXPECT_THAT([&] { read_corpus(folder.path()); },
              ::testing::ThrowsMessage<DataError>(HasSubstr("'" + (folder.path() / "wiki.test.txt").string() + "'")));
}

TEST(TextFolder, AFileOfZeroBytesIsNamed) {
  const TemporaryFolder folder;
  put(folder, "a.txt");
  put(folder, "b.txt", std::string("ab\0c", 4));
  EXPECT_THAT([&] { read_corpus(folder.path()); }, ::testing::ThrowsMessage<DataError>(HasSubstr("b.txt' is no text")));
}

// Each picture has its own shade of grey.
void put_picture(const TemporaryFolder& folder, const std::string& name, std::uint8_t grey) {
  put(folder, name, tests::png_of(2, 2, 1, tests::flat(2, 2, {grey})));
}

TEST(PictureFolder, IsReadByTheSameRule) {
  const TemporaryFolder folder;
  const TemporaryFolder elsewhere;
  put_picture(folder, "train/cat/images/a.png", 1);
  put_picture(folder, "train/cat/z.PNG", 2);
  put_picture(folder, "train/cat/.thumbs/a.png", 3);
  put_picture(folder, "train/cat/._a.png", 4);
  put_picture(folder, "train/.ipynb_checkpoints/a.png", 5);
  put_picture(folder, "train/loose.png", 6);
  put(folder, "train/cat/a.webp");
  put_picture(folder, "bird/a.png", 7);
  put_picture(elsewhere, "d.png", 8);
  fs::create_directory_symlink(elsewhere.path(), folder.path() / "train" / "dog");
  put_picture(folder, "Val/cat/a.png", 9);
  put_picture(folder, "Val/dog/a.png", 10);
  fs::create_directory(folder.path() / "test");  // its pictures are not sorted into classes
  put_picture(folder, "test/0.png", 11);
  const ImageFolder train = image_folder(folder.path());
  EXPECT_THAT(train.classes, ElementsAre("cat", "dog"));
  EXPECT_EQ(train.data->size(), 3);
  EXPECT_EQ(train.taken.text(),
            "3 files; passed over 1 beside train/: bird; 3 hidden: .ipynb_checkpoints, ._a.png, .thumbs; 1 in no "
            "class: loose.png; 1 of another ending: .webp");
  EXPECT_EQ(image_folder(folder.path(), {.split = Split::kTest}).data->size(), 2);
}

TEST(PictureFolder, FoldersForTestingAreNoClasses) {
  const TemporaryFolder folder;
  for (const char* name : {"test/cat/a.png", "test/dog/a.png", "val/cat/a.png"}) put_picture(folder, name, 1);
  EXPECT_THAT([&] { image_folder(folder.path()); }, ::testing::ThrowsMessage<DataError>(HasSubstr("no train/")));
}

TEST(PictureFolder, AClassMayHaveTheNameOfASplit) {
  for (const char* name : {"Train", "training", "train"}) {
    const TemporaryFolder folder;
    for (const char* other : {"Bus", "Car", name}) {
      for (int i = 0; i < 4; ++i) put_picture(folder, fmt::format("{}/{}.png", other, i), 1);
    }
    EXPECT_THAT(image_folder(folder.path()).classes, ElementsAre("Bus", "Car", name));
    EXPECT_EQ(image_folder(folder.path(), {.split = Split::kTest}).data->size(), 1);
  }
  const TemporaryFolder deep;  // the pictures of a class may lie in folders
  for (int i = 0; i < 10; ++i) put_picture(deep, fmt::format("Train/{}/a.png", i), 1);
  put_picture(deep, "Bus/a.png", 1);
  EXPECT_THAT(image_folder(deep.path()).classes, ElementsAre("Bus", "Train"));
  for (const char* name : {"Test/Bus/a.png", "Test/1/a.png"}) put_picture(deep, name, 1);
  EXPECT_EQ(image_folder(deep.path()).classes.size(), 10U);  // now the folder is divided into train and test
}

TEST(PictureFolder, AClassOfOtherFilesSaysWhatTheyAre) {
  const TemporaryFolder folder;
  put_picture(folder, "cat/a.png", 1);
  put(folder, "dog/a.webp");
  EXPECT_THAT([&] { image_folder(folder.path()); },
              ::testing::ThrowsMessage<DataError>(HasSubstr("1 of another ending: .webp")));
}

}  // namespace
}  // namespace reigen::data::folder_test
