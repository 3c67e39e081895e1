// All readers of folders follow one rule for the names in a folder.
#include "container/folder/walk.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/temporary_folder.h"
#include "reigen/base/error.h"

namespace reigen::container::walk_test {
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

}  // namespace
}  // namespace reigen::container::walk_test
