// All readers of folders follow one rule for the names in a folder.
#include "data/pictures/folder.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

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

WalkOptions texts() {
  return {.wanted = [](const fs::path& path) { return path.extension() == ".txt"; }};
}

std::vector<std::string> walked(const fs::path& folder, Taken& taken, const WalkOptions& options = texts()) {
  std::vector<std::string> names;
  for (const fs::path& path : walk(folder, options, taken)) names.push_back(path.lexically_relative(folder).string());
  return names;
}

TEST(Walk, PassesOverWhatIsHiddenOrOfASystemAndSaysSo) {
  const TemporaryFolder folder;
  for (const char* name : {"a.txt", "z/b.txt", "z/y/c.txt", ".hidden.txt", ".git/d.txt", "z/.ipynb_checkpoints/b.txt",
                           "._a.txt", "__MACOSX/a.txt", "lost+found/e.txt", "@eaDir/a.txt", "n.csv", "README"}) {
    put(folder, name);
  }
  Taken taken;
  EXPECT_THAT(walked(folder.path(), taken), ElementsAre("a.txt", "z/b.txt", "z/y/c.txt"));
  taken.files = 3;
  EXPECT_EQ(taken.text(),
            "3 files; passed over 4 hidden: ._a.txt, .git, .hidden.txt, ...; 3 of a system: @eaDir, __MACOSX, "
            "lost+found; 2 of another ending: README, .csv");
  taken.passed_over.clear();
  EXPECT_EQ(taken.text(), "3 files");
}

TEST(Walk, AFileMayHaveTheNameOfASystemsFolder) {
  const TemporaryFolder folder;
  put(folder, "lost+found");
  Taken taken;
  EXPECT_TRUE(walked(folder.path(), taken).empty());
  ASSERT_EQ(taken.passed_over.size(), 1U);
  EXPECT_EQ(taken.passed_over[0].reason, "of another ending");
}

TEST(Walk, FollowsLinksAndCutsLoops) {
  const TemporaryFolder folder;
  const TemporaryFolder elsewhere;
  put(folder, "in/a.txt");
  put(elsewhere, "deep/b.txt");
  put(elsewhere, "c.data");
  fs::create_directory_symlink(elsewhere.path() / "deep", folder.path() / "linked");
  fs::create_symlink(elsewhere.path() / "c.data", folder.path() / "named.txt");
  fs::create_directory_symlink("..", folder.path() / "in" / "up");
  fs::create_directory_symlink(".", folder.path() / "in" / "here");
  Taken taken;
  EXPECT_THAT(walked(folder.path(), taken), ElementsAre("in/a.txt", "linked/b.txt", "named.txt"));
  EXPECT_THAT(taken.text(), HasSubstr("2 links to a folder that holds them: here, up"));
}

TEST(Walk, FoldersThatLinkToEachOtherAreSoonDone) {
  constexpr int kFolders = 12;  // 12! paths lead through these folders
  const TemporaryFolder folder;
  for (int i = 0; i < kFolders; ++i) put(folder, std::to_string(i) + "/a.txt");
  for (int i = 0; i < kFolders; ++i) {
    for (int j = 0; j < kFolders; ++j) {
      fs::create_directory_symlink("../" + std::to_string(j),
                                   folder.path() / std::to_string(i) / ("to" + std::to_string(j)));
    }
  }
  Taken taken;
  const std::vector<std::string> found = walked(folder.path(), taken);
  EXPECT_GE(found.size(), std::size_t{kFolders});
  EXPECT_LE(found.size(), std::size_t{2 * kFolders});  // in its place, and perhaps again by a link
  EXPECT_THAT(taken.text(), HasSubstr("links to a folder that another link led to"));
}

TEST(Walk, ALinkThatLeadsNowhereIsNamed) {
  const TemporaryFolder folder;
  put(folder, "a.txt");
  fs::create_symlink("../annex/objects/b", folder.path() / "b.dat");  // its ending is not that of a text
  Taken taken;
  EXPECT_THAT(walked(folder.path(), taken), ElementsAre("a.txt"));
  fs::create_symlink("../annex/objects/b", folder.path() / "b.txt");
  try {
    walked(folder.path(), taken);
    ADD_FAILURE() << "passed over in silence";
  } catch (const IoError& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kInputMissing);
    EXPECT_THAT(error.what(), HasSubstr((folder.path() / "b.txt").string()));
    EXPECT_THAT(error.what(), HasSubstr("annex/objects/b"));
  }
}

TEST(Walk, APipeIsNoFile) {
  const TemporaryFolder folder;
  put(folder, "a.txt");
  ASSERT_EQ(::mkfifo((folder.path() / "pipe.txt").c_str(), 0600), 0);
  Taken taken;
  EXPECT_THAT(walked(folder.path(), taken), ElementsAre("a.txt"));
  EXPECT_THAT(taken.text(), HasSubstr("1 neither file nor folder: pipe.txt"));
}

TEST(Walk, AFolderThatCannotBeReadIsAnErrorUnlessAskedFor) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may read everything";
  const TemporaryFolder folder;
  put(folder, "a.txt");
  put(folder, "locked/b.txt");
  fs::permissions(folder.path() / "locked", fs::perms::none);
  Taken taken;
  EXPECT_THAT([&] { walked(folder.path(), taken); },
              ::testing::Throws<IoError>(::testing::Property(&Error::exit_code, ExitCode::kPermission)));
  WalkOptions options = texts();
  options.pass_over_unreadable = true;
  EXPECT_THAT(walked(folder.path(), taken, options), ElementsAre("a.txt"));
  fs::permissions(folder.path() / "locked", fs::perms::owner_all);
}

TEST(Splits, WordsOfNames) {
  for (const char* name : {"train", "Train", "TRAINING"}) {
    ASSERT_TRUE(split_word(name).has_value()) << name;
    EXPECT_EQ(split_word(name)->split, Split::kTrain);
  }
  for (const char* name : {"test", "testing", "val", "Valid", "validation"}) {
    ASSERT_TRUE(split_word(name).has_value()) << name;
    EXPECT_EQ(split_word(name)->split, Split::kTest);
  }
  for (const char* name : {"trains", "latest", "", "cat", "my.train"})
    EXPECT_FALSE(split_word(name).has_value()) << name;
  for (const char* name : {"train", "wiki.train", "TinyStories-train", "ptb_train"}) {
    EXPECT_TRUE(split_in_last_word(name).has_value()) << name;
  }
  EXPECT_FALSE(split_in_last_word("train.of.thought").has_value());
}

TEST(Splits, TwoFoldersForOnePurposeAreNamed) {
  try {
    split_folders({"d/testing", "d/train", "d/Training"});
    ADD_FAILURE() << "one of them was taken";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr("'train' and 'Training'"));
  }
  EXPECT_TRUE(split_folders({"d/cat", "d/test"}).train.empty());
}

// ---- all readers, with the same names of files

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
