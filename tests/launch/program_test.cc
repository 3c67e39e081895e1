#include "launch/ranks/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "reigen/base/error.h"

namespace reigen::launch {
namespace {

using testing::HasSubstr;

class FindProgram : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "reigen_program_XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    path_ = std::getenv("PATH") == nullptr ? "" : std::getenv("PATH");
    add("run_me", 0755);
    add("data", 0644);
    std::filesystem::create_directory(folder_ + "/folder");
    ::setenv("PATH", ("/nonexistent:" + folder_).c_str(), 1);
  }
  void TearDown() override {
    ::setenv("PATH", path_.c_str(), 1);
    std::filesystem::remove_all(folder_);
  }
  void add(const std::string& name, mode_t mode) const {
    std::ofstream(folder_ + "/" + name) << "#!/bin/sh\n";
    ::chmod((folder_ + "/" + name).c_str(), mode);
  }
  static void expect_refused(const std::string& name, ExitCode code, const std::string& text) {
    try {
      find_program(name);
      ADD_FAILURE() << "found " << name;
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(error.exit_code(), code) << name;
      EXPECT_THAT(error.what(), HasSubstr(text));
    }
  }
  std::string folder_;
  std::string path_;
};

TEST_F(FindProgram, InPathAndByPath) {
  EXPECT_EQ(find_program("run_me"), folder_ + "/run_me");
  EXPECT_EQ(find_program(folder_ + "/run_me"), folder_ + "/run_me");
}

TEST_F(FindProgram, Missing) {
  expect_refused("no_such_program", ExitCode::kInputMissing, "`no_such_program` not found in PATH");
  expect_refused("no_such_program", ExitCode::kInputMissing, folder_);
  expect_refused("./no/such", ExitCode::kInputMissing, "./no/such");
  expect_refused(folder_ + "/data/x", ExitCode::kInputMissing, "data/x");
}

TEST_F(FindProgram, NotExecutable) {
  expect_refused("data", ExitCode::kPermission, "chmod +x " + folder_ + "/data");
  expect_refused(folder_ + "/data", ExitCode::kPermission, "chmod +x");
  expect_refused(folder_ + "/folder", ExitCode::kPermission, "a directory");
  expect_refused("", ExitCode::kUsage, "empty");
}

}  // namespace
}  // namespace reigen::launch
