#include "train/files/run_directory.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "base/machine/file_system.h"
#include "checkpoint/directory.h"
#include "harness/no_locks.h"
#include "reigen/base/error.h"

namespace reigen::train::run_directory_test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Each test has a new working directory, and its names are relative to it.
class RunDirectories : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "run_directory_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    before_ = fs::current_path();
    fs::current_path(folder_);
  }
  void TearDown() override {
    fs::current_path(before_);
    fs::remove_all(folder_);
  }

  fs::path folder_;
  fs::path before_;
};

// The error of a run that does not start, or empty if it starts. Removes the directories that the start made.
std::string refusal(const fs::path& path, bool may_hold_run = false, ExitCode expected = ExitCode::kOutputLocked) {
  MadeHere made;
  try {
    const RunDirectory held(path, may_hold_run, made);
  } catch (const IoError& error) {
    EXPECT_EQ(error.exit_code(), expected) << error.what();
    return error.what();
  }
  return "";
}

TEST_F(RunDirectories, TwoJobsOfOneSecondGetTwoNames) {
  MadeHere made;
  const fs::path first = default_run_directory("mnist", made);
  const fs::path second = default_run_directory("mnist", made);
  EXPECT_NE(first, second);
  EXPECT_TRUE(fs::is_directory(first));
  EXPECT_TRUE(fs::is_directory(second));
  const RunDirectory held(first, false, made);  // `first` exists, but holds no run yet
  EXPECT_EQ(held.path(), first);
  EXPECT_EQ(held.warning(), "");
}

TEST_F(RunDirectories, OneRunAtATimeAndNoneOverAnother) {
  {
    MadeHere made;
    const RunDirectory held("run", false, made);
    EXPECT_THAT(refusal("run", true),
                AllOf(HasSubstr("in use by another run"), HasSubstr("pid " + std::to_string(::getpid()) + " on ")));
    made.keep();
  }
  std::ofstream("run/metrics.jsonl") << "{}\n";
  EXPECT_THAT(refusal("run"), HasSubstr("holds a run already"));
  EXPECT_TRUE(fs::exists("run/.lock")) << "which that start did not make";
  fs::remove("run/.lock");
  EXPECT_THAT(refusal("run"), HasSubstr("holds a run already"));
  EXPECT_FALSE(fs::exists("run/.lock"));
  EXPECT_EQ(refusal("run", true), "");
  std::ofstream("file") << "x";
  EXPECT_THAT(refusal("file"), HasSubstr("something else of that name"));
  EXPECT_THAT(refusal("file/run", false, ExitCode::kIo), HasSubstr("Not a directory"));
}

TEST_F(RunDirectories, AFileIsNoDirectory) {
  std::ofstream("file") << "text";
  try {
    checkpoint::make_directories("file/run");
    ADD_FAILURE();
  } catch (const IoError& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kOutputLocked);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("the directory"), HasSubstr("a file with this name")));
  }
}

TEST_F(RunDirectories, OnlyWhatTheStartMadeIsTakenBack) {
  fs::create_directory("mine");
  std::ofstream(".writable") << "mine";  // the name of a former probe file
  fs::create_directory("mine/old");
  EXPECT_EQ(refusal("mine/a/b"), "");
  EXPECT_EQ(refusal("mine/old"), "");
  EXPECT_FALSE(fs::exists("mine/a"));
  EXPECT_TRUE(fs::is_empty("mine/old"));
  EXPECT_EQ(refusal("."), "");
  EXPECT_TRUE(fs::exists(".writable"));
  {
    MadeHere made;
    const RunDirectory held("mine/c/d", false, made);
    std::ofstream("mine/c/theirs") << "x";  // another program's file
  }
  EXPECT_TRUE(fs::exists("mine/c/theirs"));
  EXPECT_FALSE(fs::exists("mine/c/d"));
  {
    MadeHere made;
    const RunDirectory held("mine/e/f", false, made);
    fs::rename("mine/e", "mine/moved");  // another directory takes its place
    fs::create_directories("mine/e/f");
  }
  EXPECT_TRUE(fs::exists("mine/e/f"));
}

TEST_F(RunDirectories, TheDefaultOneIsTakenBackWithItsFolderIfThatIsNewToo) {
  {
    MadeHere made;
    default_run_directory("mnist", made);
  }
  EXPECT_FALSE(fs::exists("runs"));
  fs::create_directory("runs");
  {
    MadeHere made;
    default_run_directory("mnist", made);
  }
  EXPECT_TRUE(fs::is_empty("runs"));
  MadeHere kept;
  const fs::path path = default_run_directory("mnist", kept);
  kept.keep();
  EXPECT_TRUE(fs::exists(path));
}

TEST_F(RunDirectories, ALinkToADiskThatIsAwayStaysAndIsNamed) {
  fs::create_directory("folder");
  fs::create_symlink("/nowhere/scratch", "folder/exp");
  for (const char* path : {"folder/exp", "folder/exp/", "folder/exp/run/1"}) {
    EXPECT_THAT(refusal(path), AllOf(HasSubstr("folder/exp is to be a directory"),
                                     HasSubstr("a symbolic link that leads nowhere, to /nowhere/scratch")));
    EXPECT_TRUE(fs::is_symlink("folder/exp"));
  }
  fs::create_directory("there");
  fs::create_directory_symlink(fs::absolute("there"), "link");
  EXPECT_EQ(refusal("link/run"), "");
  EXPECT_TRUE(fs::is_symlink("link"));
  EXPECT_TRUE(fs::is_empty("there"));
}

TEST_F(RunDirectories, AFileSystemWithoutLocksIsAWarning) {
  for (const int error : {ENOSYS, ENOLCK, EOPNOTSUPP, EINVAL, ENOTTY, EPERM, 524}) {
    const tests::NoLocks none(error);
    MadeHere made;
    const RunDirectory held("run", false, made);
    EXPECT_THAT(held.warning(), AllOf(HasSubstr("has no locks"), HasSubstr(std::to_string(error))));
  }
  EXPECT_FALSE(fs::exists("run"));
}

// A run must not go on without a lock if the error does not mean that the file system has no locks. NFS gives EBADF for
// a file that is open for reading. For a file that is open for writing, EBADF is a fault of this program.
TEST_F(RunDirectories, ALockThatFailsIsAnErrorThatSaysWhy) {
  for (const int error : {EIO, EBADF, ESTALE}) {
    const tests::NoLocks fails(error);
    EXPECT_THAT(refusal("run", false, ExitCode::kIo),
                AllOf(HasSubstr("cannot lock"), HasSubstr("(" + std::to_string(error) + ")")));
  }
  EXPECT_FALSE(fs::exists("run"));
  const UniqueFd readable(::open(".", O_RDONLY | O_CLOEXEC));
  const tests::NoLocks none(EBADF);
  EXPECT_EQ(base::try_lock(readable.get()).outcome, base::LockAttempt::Outcome::kNoLocks);
}

}  // namespace
}  // namespace reigen::train::run_directory_test
