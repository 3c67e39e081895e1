// Damage to any byte of a container is found, names the sample, and never ends the process. scripts/check/containers
// does the same to the installed program, a thousand times for each kind.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <random>
#include <stdexcept>

#include "container/libraries.h"
#include "container/samples.h"
#include "format/temporary_folder.h"
#include "reigen/base/error.h"
#include "reigen/container/pack.h"
#include "reigen/container/verify.h"

// The HDF5 library loses some memory when it refuses a file. LeakSanitizer asks here what it should not report.
extern "C" const char* __lsan_default_suppressions();  // NOLINT(bugprone-reserved-identifier)
extern "C" const char* __lsan_default_suppressions() { return "leak:libhdf5"; }

namespace reigen::container {
namespace {

using ::testing::HasSubstr;
using tests::TemporaryFolder;
namespace fs = std::filesystem;

constexpr int kSamples = 12;
constexpr int kDamages = 80;

class Damage : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (GetParam() == "a.lmdb" && lmdb_version().empty()) GTEST_SKIP() << "THIS BUILD LACKS LMDB";
    if (GetParam() == "a.h5" && hdf5_version().empty()) GTEST_SKIP() << "THIS BUILD LACKS HDF5";
    const ContainerKind kind = kind_of_target(path_);
    const bool has_shards = kind == ContainerKind::kTar || kind == ContainerKind::kTfRecord;
    write_samples(path_, {.kind = kind, .shards = has_shards ? 2 : 1, .count = kSamples}, kSamples);
  }
  std::vector<fs::path> files() const {
    if (!fs::is_directory(path_)) return {path_};
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(path_)) files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    return files;
  }
  static void put(const fs::path& file, const std::string& content) {
    std::ofstream(file, std::ios::binary) << content;
  }
  // Whether every sample can be read, and has its values.
  bool is_as_written() const {
    const auto reader = open(path_);
    for (int i = 0; i < kSamples; ++i) {
      if (texts_of(reader->read(i)) != texts_of(sample_of(i))) return false;
    }
    return reader->size() == kSamples;
  }

  TemporaryFolder folder_;
  fs::path path_ = folder_.path() / GetParam();
};

TEST_P(Damage, FlipsAreFoundUnlessNoSampleUsesTheBytes) {
  ASSERT_TRUE(verify(path_).faults.empty()) << verify(path_).faults[0].text;
  std::mt19937 random(1);
  for (const fs::path& file : files()) {
    const std::string whole = tests::content_of(file);
    for (int i = 0; i < kDamages; ++i) {
      std::string damaged = whole;
      const std::size_t at = random() % whole.size();
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << random() % 8));
      put(file, damaged);
      EXPECT_TRUE(!verify(path_).faults.empty() || is_as_written()) << file << " at " << at;
    }
    put(file, whole);
  }
}

TEST_P(Damage, CutsAreFound) {
  std::mt19937 random(2);
  for (const fs::path& file : files()) {
    const std::string whole = tests::content_of(file);
    for (int i = 0; i < kDamages / 2; ++i) {
      put(file, whole.substr(0, random() % whole.size()));
      EXPECT_TRUE(!verify(path_).faults.empty() || is_as_written()) << file;
    }
    put(file, whole);
  }
}

TEST_P(Damage, ADamagedPictureIsNamedAndTheOthersAreRead) {
  const std::string picture = picture_text(6);
  for (const fs::path& file : files()) {
    std::string content = tests::content_of(file);
    const auto at = content.find(picture);
    if (at == std::string::npos) continue;
    content[at + picture.size() / 2] ^= 4;
    put(file, content);
    const Verified found = verify(path_);
    ASSERT_EQ(found.faults.size(), 1U);
    EXPECT_EQ(found.faults[0].sample, 6);
    EXPECT_THAT(found.faults[0].text, HasSubstr("sample 6 "));
    EXPECT_GE(found.samples, kSamples - 1);
    return;
  }
  FAIL() << "no file holds the picture";
}

INSTANTIATE_TEST_SUITE_P(Containers, Damage, testing::Values("a.lmdb", "a.h5", "a.tfrecord", "a.tar"),
                         [](const auto& test) { return test.param.substr(2); });

// What decodes pictures is given to verify(), because this floor decodes none.
TEST(Verify, ShowsEveryPictureAndTellsFaultsInOrder) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "a.tar";
  write_samples(path, {.kind = ContainerKind::kTar}, 40);
  for (const int workers : {1, 4}) {
    std::atomic<int> seen = 0;
    std::int64_t done = 0;
    const Verified found = verify(path, {},
                                  {.workers = workers,
                                   .check_picture =
                                       [&](std::span<const std::byte> picture, const std::string& where) {
                                         ++seen;
                                         if (picture.size() % 5 == 0) throw DataError("no picture: " + where);
                                       },
                                   .progress = [&](std::int64_t now, std::int64_t all) { done = 100 * all + now; }});
    std::vector<std::int64_t> expected;
    for (int i = 0; i < 40; ++i) {
      if (picture_text(i).size() % 5 == 0) expected.push_back(i);
    }
    ASSERT_FALSE(expected.empty());
    std::vector<std::int64_t> samples;
    for (const Fault& fault : found.faults) {
      samples.push_back(fault.sample);
      EXPECT_THAT(fault.text, HasSubstr(fmt::format("sample {} (", fault.sample)));
    }
    EXPECT_EQ(samples, expected);
    EXPECT_EQ(seen, 40);
    EXPECT_EQ(done, 4040);
    EXPECT_EQ(found.samples, 40 - static_cast<std::int64_t>(expected.size()));
  }
  const VerifyOptions ends{.workers = 3,
                           .progress = [](std::int64_t, std::int64_t) { throw std::runtime_error("end"); }};
  EXPECT_THROW(verify(path, {}, ends), std::runtime_error);
  EXPECT_THROW(verify(path, {}, {.workers = 0}), InvalidArgument);
}

// An index is only a shortcut: one of another file is not used, and verify says so.
TEST(Index, OneOfAnotherFileIsNotUsed) {
  for (const char* name : {"a.tfrecord", "a.tar"}) {
    const TemporaryFolder folder;
    const fs::path path = folder.path() / name;
    const fs::path other = folder.path() / (std::string("other") + name);
    write_samples(path, {.kind = kind_of_target(path)}, 9);
    write_samples(other, {.kind = kind_of_target(path)}, 5);
    const std::string ending = name == std::string("a.tar") ? "-000000.idx" : "-00000-of-00001.idx";
    const fs::path index = path / ("a" + ending);
    const std::string right = tests::content_of(index);
    fs::copy_file(other / ("othera" + ending), index, fs::copy_options::overwrite_existing);
    EXPECT_EQ(texts_of(open(path)->read(8)), texts_of(sample_of(8)));
    const Verified found = verify(path);
    ASSERT_EQ(found.faults.size(), 1U) << name;
    EXPECT_THAT(found.faults[0].text, HasSubstr("reigen data index"));
    EXPECT_EQ(write_index(path), std::vector<fs::path>{index});
    EXPECT_EQ(tests::content_of(index), right);
  }
}

TEST(Pack, AnErrorLeavesTheTargetAsItWas) {
  const TemporaryFolder folder;
  const fs::path source = folder.path() / "source.tar";
  const fs::path target = folder.path() / "target.tar";
  write_samples(source, {.kind = ContainerKind::kTar}, 20);
  write_samples(target, {.kind = ContainerKind::kTar}, 3);
  const auto reader = open(source);
  PackOptions options{.kind = ContainerKind::kTar, .workers = 3, .force = true};
  options.recode = [](std::span<const std::byte> picture, const std::string& where) -> std::vector<std::byte> {
    if (where.find("sample 11 ") != std::string::npos) throw DataError("no picture: " + where);
    return copy_of(picture);
  };
  EXPECT_THROW(pack(*reader, target, options), DataError);
  EXPECT_EQ(open(target)->size(), 3);
  EXPECT_FALSE(fs::exists(target.string() + ".tmp"));
}

TEST(Pack, WhatRecodeMakesMayBeATensor) {
  const TemporaryFolder folder;
  const fs::path source = folder.path() / "source.tar";
  write_samples(source, {.kind = ContainerKind::kTar}, 4);
  PackOptions options{.kind = ContainerKind::kTar};
  options.recode = [](std::span<const std::byte> picture, const std::string&) { return copy_of(picture.first(3)); };
  options.recoded = Field{.name = "pixels", .kind = FieldKind::kTensor, .type = format::TensorType::kU8, .shape = {3}};
  pack(*open(source), folder.path() / "raw.tar", options);
  const auto raw = open(folder.path() / "raw.tar");
  EXPECT_EQ(describe(raw->fields()[0]), "input (tensor U8 [3])");
  EXPECT_EQ(texts_of(raw->read(2))[0], "\xff\xd8\xff");
}

}  // namespace
}  // namespace reigen::container
