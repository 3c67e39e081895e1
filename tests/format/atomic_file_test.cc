#include "reigen/format/atomic_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <string>

#include "format/temporary_folder.h"
#include "reigen/base/error.h"

namespace reigen::format::atomic_file_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using tests::content_of;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

template <typename Action>
IoError io_error_of(Action&& action) {
  try {
    action();
  } catch (const IoError& error) {
    return error;
  }
  ADD_FAILURE() << "no IoError";
  return IoError("none");
}

TEST(AtomicFile, NewContentAppearsOnCommit) {
  const tests::TemporaryFolder folder;
  const auto path = folder.write("f", "old");
  AtomicFile file(path);
  file.write(bytes_of("new "));
  file.write(bytes_of("content"));
  EXPECT_EQ(content_of(path), "old");
  file.commit();
  EXPECT_EQ(content_of(path), "new content");
  EXPECT_FALSE(std::filesystem::exists(path.string() + ".tmp"));
  EXPECT_EQ(file.hash().bytes, 11u);
  EXPECT_EQ(file.hash().hash, hash_file(path).hash);
}

TEST(AtomicFile, WithoutCommitNothingChanges) {
  const tests::TemporaryFolder folder;
  const auto path = folder.write("f", "old");
  {
    AtomicFile file(path);
    file.write(bytes_of("new"));
  }
  EXPECT_EQ(content_of(path), "old");
  EXPECT_FALSE(std::filesystem::exists(path.string() + ".tmp"));
}

TEST(AtomicFile, RemainsOfAKilledWriterAreOverwritten) {
  const tests::TemporaryFolder folder;
  folder.write("f.tmp", "a long text that somebody left here");
  write_file_atomically(folder.path() / "f", "short");
  EXPECT_EQ(content_of(folder.path() / "f"), "short");
}

TEST(AtomicFile, SecondWriterIsRefused) {
  const tests::TemporaryFolder folder;
  AtomicFile first(folder.path() / "f");
  const auto error = io_error_of([&] { AtomicFile second(folder.path() / "f"); });
  EXPECT_EQ(error.exit_code(), ExitCode::kOutputLocked);
  first.write(bytes_of("x"));
  first.commit();
  EXPECT_EQ(content_of(folder.path() / "f"), "x");
  write_file_atomically(folder.path() / "f", "y");  // after the commit the temporary path is free again
  EXPECT_EQ(content_of(folder.path() / "f"), "y");
}

TEST(AtomicFile, ErrorsNameThePathAndTheCause) {
  const tests::TemporaryFolder folder;
  const auto missing = io_error_of([&] { write_file_atomically(folder.path() / "no" / "f", "x"); });
  EXPECT_EQ(missing.exit_code(), ExitCode::kIo);
  EXPECT_THAT(missing.what(), AllOf(HasSubstr("no/f"), HasSubstr("No such file"), HasSubstr("create the folder")));

  std::filesystem::create_directory(folder.path() / "folder");
  const auto directory = io_error_of([&] { write_file_atomically(folder.path() / "folder", "x"); });
  EXPECT_EQ(directory.exit_code(), ExitCode::kIo);
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "folder.tmp"));

  // If the temporary file were a link, the writer could write to any place.
  std::filesystem::create_symlink(folder.path() / "elsewhere", folder.path() / "link.tmp");
  EXPECT_EQ(io_error_of([&] { write_file_atomically(folder.path() / "link", "x"); }).exit_code(), ExitCode::kIo);
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "elsewhere"));
}

// The link is the user's, for example to a place on a larger disk.
TEST(AtomicFile, ALinkStaysAndWhatItLeadsToIsWritten) {
  const tests::TemporaryFolder folder;
  std::filesystem::create_directory(folder.path() / "large");
  std::filesystem::create_symlink("large/f", folder.path() / "link");
  for (const char* text : {"first", "second"}) {  // first without the target, then with it
    write_file_atomically(folder.path() / "link", text);
    EXPECT_TRUE(std::filesystem::is_symlink(folder.path() / "link"));
    EXPECT_EQ(content_of(folder.path() / "large" / "f"), text);
  }
  std::filesystem::create_symlink("/nowhere/f", folder.path() / "away");
  const auto error = io_error_of([&] { write_file_atomically(folder.path() / "away", "x"); });
  EXPECT_THAT(error.what(), AllOf(HasSubstr("/nowhere/f"), HasSubstr("No such file")));
  EXPECT_TRUE(std::filesystem::is_symlink(folder.path() / "away"));
}

TEST(AtomicFile, WhatAnotherPutInItsPlaceStays) {
  const tests::TemporaryFolder folder;
  {
    AtomicFile file(folder.path() / "f");
    std::filesystem::remove(folder.path() / "f.tmp");
    folder.write("f.tmp", "another's");
  }
  EXPECT_EQ(content_of(folder.path() / "f.tmp"), "another's");
}

// A limit on the file size stands in for a full disk, because both make write() fail half way.
TEST(AtomicFile, FailedWriteLeavesTheOldFile) {
  const tests::TemporaryFolder folder;
  const auto path = folder.write("f", "old");
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{4096, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto error = io_error_of([&] { write_file_atomically(path, std::string(10'000, 'x')); });
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_EQ(error.exit_code(), ExitCode::kIo);
  EXPECT_THAT(error.what(), AllOf(HasSubstr(path.string()), HasSubstr("File too large")));
  EXPECT_EQ(content_of(path), "old");
  EXPECT_FALSE(std::filesystem::exists(path.string() + ".tmp"));
}

TEST(AtomicFile, NoPermission) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may write everywhere";
  const tests::TemporaryFolder folder;
  std::filesystem::permissions(folder.path(), std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
  const auto error = io_error_of([&] { write_file_atomically(folder.path() / "f", "x"); });
  std::filesystem::permissions(folder.path(), std::filesystem::perms::owner_all);
  EXPECT_EQ(error.exit_code(), ExitCode::kPermission);
}

}  // namespace
}  // namespace reigen::format::atomic_file_test
