// Reading a whole file, and the errors of paths that are no such file.
#include "format/input_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "format/temporary_folder.h"
#include "reigen/base/error.h"

namespace reigen::format::input_file_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(ReadText, EveryByteIsThere) {
  const tests::TemporaryFolder folder;
  const std::string bytes("a\0\r\n\xff", 5);
  const auto path = folder.path() / "file";
  std::ofstream(path, std::ios::binary) << bytes;
  EXPECT_EQ(read_text(path), bytes);
  EXPECT_EQ(read_text(path, "file", 5), bytes);
  std::ofstream(path, std::ios::binary | std::ios::trunc);
  EXPECT_EQ(read_text(path), "");
}

TEST(ReadText, WhatIsNoSuchFileIsRefused) {
  const tests::TemporaryFolder folder;
  const auto path = folder.path() / "file";
  std::ofstream(path) << "123456";
  const auto pipe = folder.path() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const auto failure_of = [](const std::filesystem::path& wrong) {
    try {
      read_text(wrong, "list", 5);
    } catch (const Error& error) {
      return std::pair(error.exit_code(), std::string(error.what()));
    }
    return std::pair(ExitCode::kOk, std::string());
  };
  for (const auto& wrong : {path, pipe, folder.path()}) {
    const auto [code, text] = failure_of(wrong);
    EXPECT_EQ(code, ExitCode::kBadData);
    EXPECT_THAT(text, AllOf(HasSubstr(wrong.string()), HasSubstr("is no list"), HasSubstr("5 B")));
  }
  const auto [code, text] = failure_of(folder.path() / "absent");
  EXPECT_EQ(code, ExitCode::kInputMissing);
  EXPECT_THAT(text, HasSubstr("absent"));
}

}  // namespace
}  // namespace reigen::format::input_file_test
