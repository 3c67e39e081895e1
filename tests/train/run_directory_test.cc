#include "train/run_directory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "reigen/base/error.h"

namespace reigen::train {
namespace {

namespace fs = std::filesystem;

// Names are relative to the working directory.
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

TEST_F(RunDirectories, TwoJobsOfOneSecondGetTwoNames) {
  const fs::path first = default_run_directory("mnist");
  const fs::path second = default_run_directory("mnist");
  EXPECT_NE(first, second);
  EXPECT_TRUE(fs::is_directory(first));
  EXPECT_TRUE(fs::is_directory(second));
  const RunDirectory held(first, false);  // made, but it holds no run yet
  EXPECT_EQ(held.path(), first);
}

TEST_F(RunDirectories, OneRunAtATimeAndNoneOverAnother) {
  const auto code_of = [](const fs::path& path, bool may_hold_run) {
    try {
      const RunDirectory held(path, may_hold_run);
    } catch (const IoError& error) {
      return error.exit_code();
    }
    return ExitCode::kOk;
  };
  {
    const RunDirectory held("run", false);
    EXPECT_EQ(code_of("run", true), ExitCode::kOutputLocked);
  }
  std::ofstream("run/metrics.jsonl") << "{}\n";
  EXPECT_EQ(code_of("run", false), ExitCode::kOutputLocked);
  EXPECT_EQ(code_of("run", true), ExitCode::kOk);
  std::ofstream("file") << "x";
  EXPECT_EQ(code_of("file", false), ExitCode::kOutputLocked);
  EXPECT_EQ(code_of("file/run", false), ExitCode::kIo);
}

TEST_F(RunDirectories, WhatWasMadeForARunThatDidNotStartIsTakenBack) {
  for (const char* name : {"empty", "full", "kept"}) {
    fs::create_directory(name);
    NewDirectory made(name);
    if (name == std::string("full")) std::ofstream("full/file") << "x";
    if (name == std::string("kept")) made.keep();
  }
  EXPECT_FALSE(fs::exists("empty"));
  EXPECT_TRUE(fs::exists("full/file"));
  EXPECT_TRUE(fs::exists("kept"));
  const fs::path first = default_run_directory("mnist");
  { const NewDirectory second(default_run_directory("mnist")); }
  EXPECT_TRUE(fs::exists(first));
  { const NewDirectory taken_back(first); }
  EXPECT_FALSE(fs::exists("runs"));
}

}  // namespace
}  // namespace reigen::train
