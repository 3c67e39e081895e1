#include "reigen/format/idx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <string>

#include "format/gzip.h"
#include "format/memory_file.h"
#include "format/temporary_folder.h"
#include "reigen/base/error.h"

namespace reigen::format::idx_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using tests::gzip;

std::string big_endian(std::uint32_t value) {
  std::string text;
  for (int shift = 24; shift >= 0; shift -= 8) text.push_back(static_cast<char>(value >> shift));
  return text;
}

std::string idx(std::uint8_t type, const std::vector<std::uint32_t>& dims, const std::string& data) {
  std::string text{'\0', '\0', static_cast<char>(type), static_cast<char>(dims.size())};
  for (const auto dim : dims) text += big_endian(dim);
  return text + data;
}

std::string pixels(std::size_t count) {
  std::string data(count, '\0');
  for (std::size_t i = 0; i < count; ++i) data[i] = static_cast<char>(i * i / 7 + i % 13);
  return data;
}

std::string text_of(const IdxArray& array) { return {reinterpret_cast<const char*>(array.storage.get()), array.size}; }

TEST(ReadIdx, PlainAndPackedWhateverTheName) {
  const tests::TemporaryFolder folder;
  const std::string data = pixels(60);
  const std::string file = idx(0x08, {3, 4, 5}, data);
  for (const auto& path : {folder.write("plain.gz", file), folder.write("packed", gzip(file)),
                           folder.write("members", gzip(file.substr(0, 20)) + gzip(file.substr(20)))}) {
    const IdxArray array = read_idx(path);
    EXPECT_EQ(array.type, IdxType::kU8);
    EXPECT_THAT(array.dims, ElementsAre(3, 4, 5));
    EXPECT_EQ(text_of(array), data) << path;
  }
}

TEST(ReadIdx, LargeElementsComeInHostOrder) {
  const tests::TemporaryFolder folder;
  const IdxArray ints = read_idx(folder.write("i", idx(0x0C, {2}, big_endian(1) + big_endian(0xFFFFFFFE))));
  std::int32_t values[2];
  ASSERT_EQ(ints.size, sizeof values);
  std::memcpy(values, ints.storage.get(), sizeof values);
  EXPECT_THAT(values, ElementsAre(1, -2));
  const IdxArray floats = read_idx(folder.write("f", idx(0x0D, {1}, big_endian(0x3FC00000))));
  float value = 0;
  std::memcpy(&value, floats.storage.get(), sizeof value);
  EXPECT_EQ(value, 1.5f);
}

TEST(ReadIdx, EmptyArray) {
  const tests::TemporaryFolder folder;
  const IdxArray array = read_idx(folder.write("x", idx(0x08, {0, 28, 28}, "")));
  EXPECT_THAT(array.dims, ElementsAre(0, 28, 28));
  EXPECT_EQ(array.size, 0u);
}

struct Wrong {
  const char* name;
  std::string content;
  const char* text;  // a part of the message
};

TEST(ReadIdx, WrongFilesAreNamed) {
  const std::string data = pixels(600);
  const std::string good = idx(0x08, {6, 10, 10}, data);
  const std::string packed = gzip(good);
  const std::vector<Wrong> table = {
      {"empty", "", "ends early, at byte 0"},
      {"short_magic", good.substr(0, 3), "ends early, at byte 3"},
      {"short_dims", good.substr(0, 9), "ends early, at byte 9"},
      {"magic_first", "\x01" + good.substr(1), "wrong magic number at byte 0"},
      {"magic_type", idx(0x0A, {6, 10, 10}, data), "00 00 0a 03"},
      {"no_dims", idx(0x08, {}, data), "wrong magic number"},
      {"many_dims", idx(0x08, std::vector<std::uint32_t>(9, 1), "x"), "wrong magic number"},
      {"a_png", "\x89PNG\r\n\x1a\n", "wrong magic number"},
      {"a_page", "<!DOCTYPE html><html>", "a web page"},
      {"a_pointer", "version https://git-lfs.github.com/spec/v1\nsize 9912422\n", "a pointer of Git LFS"},
      {"fewer", idx(0x08, {7, 10, 10}, data), "716 bytes: 16 + 7 x 10 x 10"},
      {"more", idx(0x08, {5, 10, 10}, data), "516 bytes"},
      {"truncated", good.substr(0, 400), "got: 400 bytes"},
      {"trailing", good + "x", "617 bytes"},
      {"absurd", idx(0x08, {0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF}, data), "too large"},
      {"absurd_eight", idx(0x0E, std::vector<std::uint32_t>(8, 0xFFFFFFFF), data), "too large"},
      {"huge", idx(0x08, {0x7FFFFFFF}, data), "2147483655 bytes"},
      {"packed_huge", gzip(idx(0x08, {0x7FFFFFFF}, data)), "packed bytes, at most"},
      {"packed_fewer", gzip(idx(0x08, {7, 10, 10}, data)), "ends early, at byte 616"},
      {"packed_more", gzip(idx(0x08, {5, 10, 10}, data)), "goes on after its array"},
      {"packed_truncated", packed.substr(0, packed.size() / 2), "is truncated at byte"},
      {"packed_without_crc", packed.substr(0, packed.size() - 8), "is truncated at byte"},
      {"packed_half_crc", packed.substr(0, packed.size() - 5), "is truncated at byte"},
      {"packed_trailing", packed + "x", "goes on after its gzip stream"},
      {"only_gzip_magic", packed.substr(0, 2), "is truncated at byte 2"},
  };
  const tests::TemporaryFolder folder;
  for (const Wrong& wrong : table) {
    SCOPED_TRACE(wrong.name);
    const auto path = folder.write(wrong.name, wrong.content);
    try {
      read_idx(path);
      ADD_FAILURE() << "read without complaint";
    } catch (const DataError& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::kBadData);
      EXPECT_THAT(error.what(), HasSubstr(path.string()));
      EXPECT_THAT(error.what(), HasSubstr(wrong.text));
    }
  }
}

TEST(ReadIdx, CapOnTheDeclaredSize) {
  const tests::TemporaryFolder folder;
  const auto path = folder.write("x", idx(0x08, {101}, pixels(101)));
  EXPECT_THROW(read_idx(path, {.max_bytes = 100}), DataError);
  EXPECT_EQ(read_idx(path, {.max_bytes = 101}).size, 101u);
}

// Any bit of a small packed file is flipped, or the file is cut at any length. The reader must give the old content or
// a DataError.
TEST(ReadIdx, DamagedAnywhere) {
  const std::string data = pixels(300);
  const std::string packed = gzip(idx(0x08, {3, 10, 10}, data));
  int refused = 0;
  const auto check = [&](const std::string& content, const std::string& what) {
    const tests::MemoryFile file(content.data(), content.size());
    try {
      EXPECT_EQ(text_of(read_idx(file.path())), data) << what;
    } catch (const DataError&) {
      ++refused;
    }
  };
  for (std::size_t bit = 0; bit < packed.size() * 8; ++bit) {
    std::string damaged = packed;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    check(damaged, "bit " + std::to_string(bit));
  }
  // Only the time, flags and system in the ten bytes of gzip's header may be damaged without harm.
  EXPECT_GE(refused, static_cast<int>(packed.size() * 8 - 80));
  refused = 0;
  for (std::size_t length = 0; length < packed.size(); ++length) check(packed.substr(0, length), "length");
  EXPECT_EQ(refused, static_cast<int>(packed.size()));
}

TEST(ReadIdx, MissingFolderPipeAndUnreadable) {
  const tests::TemporaryFolder folder;
  const auto code_of = [](const std::filesystem::path& path) {
    try {
      read_idx(path);
    } catch (const IoError& error) {
      EXPECT_THAT(error.what(), HasSubstr(path.string()));
      return error.exit_code();
    }
    ADD_FAILURE() << path << " was read";
    return ExitCode::kOk;
  };
  EXPECT_EQ(code_of(folder.path() / "absent"), ExitCode::kInputMissing);
  EXPECT_EQ(code_of(folder.path()), ExitCode::kInputMissing);
  ASSERT_EQ(::mkfifo((folder.path() / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(code_of(folder.path() / "pipe"), ExitCode::kInputMissing);
  if (::geteuid() != 0) {
    const auto secret = folder.write("secret", "x");
    std::filesystem::permissions(secret, std::filesystem::perms::none);
    EXPECT_EQ(code_of(secret), ExitCode::kPermission);
  }
}

}  // namespace
}  // namespace reigen::format::idx_test
