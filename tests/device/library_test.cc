// A library that is opened late: where it is found, and the error if it is not found.
#include "device/library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "reigen/base/error.h"

namespace reigen::device {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class LateLibrary : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "reigen-library-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  static std::string message_of(const LibrarySearch& search) {
    try {
      const Library library(search);
    } catch (const BackendError& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::kUnavailable);
      return error.what();
    }
    return "it was opened";
  }

  std::filesystem::path folder_;
};

TEST_F(LateLibrary, WhatIsNowhereIsNamedWithTheLinkersWordsAndACure) {
  EXPECT_THAT(message_of({.name = "NCCL", .files = {"libnowhere.so.2"}, .folders = {folder_}, .fix = "install it"}),
              AllOf(HasSubstr("needs NCCL, which could not be opened"),
                    HasSubstr("libnowhere.so.2: cannot open shared object file"), HasSubstr(folder_.string()),
                    HasSubstr("fix: install it")));
}

// If a file is damaged, or built for another processor, the error gives this reason, and not that the linker found no
// library.
TEST_F(LateLibrary, WhatIsThereAndCannotBeOpenedIsTheReason) {
  std::ofstream(folder_ / "libnowhere.so.2") << "no library";
  const std::string text = message_of({.name = "NCCL", .files = {"libnowhere.so.2"}, .folders = {folder_}, .fix = ""});
  EXPECT_THAT(text, HasSubstr((folder_ / "libnowhere.so.2").string() + ": "));
  EXPECT_THAT(text, Not(HasSubstr("No such file")));
}

TEST_F(LateLibrary, IsFoundByTheLinkerByAFolderAndByItsOtherNames) {
  int (*absolute)(int) = nullptr;
  const Library known({.name = "C", .files = {"libnowhere.so.2", "libc.so.6"}, .folders = {}, .fix = ""});
  known.find(absolute, "abs");
  EXPECT_EQ(absolute(-3), 3);
  EXPECT_THAT(known.path(), HasSubstr("libc.so.6"));
  // The linker does not know this name.
  std::filesystem::create_symlink(known.path(), folder_ / "libnowhere.so.3");
  const Library beside(
      {.name = "C", .files = {"libnowhere.so.2", "libnowhere.so.3"}, .folders = {"/nowhere", folder_}, .fix = ""});
  beside.find(absolute, "abs");
  EXPECT_EQ(absolute(-4), 4);
}

TEST_F(LateLibrary, AFunctionThatIsMissingIsNamed) {
  const Library library({.name = "NCCL", .files = {"libc.so.6"}, .folders = {}, .fix = "install 2.17"});
  int (*function)() = nullptr;
  try {
    library.find(function, "ncclOfTomorrow");
    ADD_FAILURE() << "it was found";
  } catch (const BackendError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("too old"), HasSubstr("libc.so.6, which has no function ncclOfTomorrow"),
                                    HasSubstr("install 2.17")));
  }
}

TEST_F(LateLibrary, TheFoldersBesideLibTorchAreThoseOfItsWheels) {
  const auto site = folder_ / "site-packages";
  for (const char* part : {"torch/lib", "nvidia/nccl/lib", "nvidia/cu13/lib", "nvidia/empty"}) {
    std::filesystem::create_directories(site / part);
  }
  const auto at = [&](const char* part) { return std::filesystem::canonical(site / part).string(); };
  EXPECT_THAT(folders_beside(site / "torch/lib/libtorch_cpu.so"),
              ElementsAre(at("torch/lib"), at("nvidia/cu13/lib"), at("nvidia/nccl/lib")));
  EXPECT_THAT(folders_beside("/nowhere/lib/libtorch_cpu.so"), ElementsAre());
}

}  // namespace
}  // namespace reigen::device
