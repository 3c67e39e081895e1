// What is written is read, byte for byte, from every container.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <thread>

#include "container/libraries.h"
#include "container/samples.h"
#include "format/temporary_folder.h"
#include "reigen/base/error.h"
#include "reigen/base/unique_fd.h"
#include "reigen/container/pack.h"

namespace reigen::container {
namespace {

using ::testing::HasSubstr;
using tests::TemporaryFolder;
namespace fs = std::filesystem;

struct Case {
  std::string file;
  int shards = 1;
  Compression compression = Compression::kNone;
  bool (*can)() = nullptr;  // whether the libraries that it needs are built in
};

// The names and bytes of the file, or of all files of the folder.
std::string content_of_all(const fs::path& path) {
  if (!fs::is_directory(path)) return tests::content_of(path);
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(path)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::string all;
  for (const fs::path& file : files) all += file.filename().string() + tests::content_of(file);
  return all;
}

class RoundTrip : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (GetParam().can != nullptr && !GetParam().can()) {
      GTEST_SKIP() << "THIS BUILD LACKS THE LIBRARY FOR " << GetParam().file;
    }
  }
  WriterOptions options() const {
    return {
        .kind = kind_of_target(GetParam().file), .shards = GetParam().shards, .compression = GetParam().compression};
  }
  TemporaryFolder folder_;
  fs::path path_ = folder_.path() / GetParam().file;
};

TEST_P(RoundTrip, EverySampleIsReadAsItWasWritten) {
  constexpr int kCount = 57;
  write_samples(path_, options(), kCount);
  EXPECT_FALSE(fs::exists(path_.string() + ".tmp"));
  const auto reader = open(path_);
  ASSERT_EQ(reader->size(), kCount);
  EXPECT_EQ(reader->fields(), all_fields());
  EXPECT_EQ(reader->classes(), (std::vector<std::string>{"cat", "dog", "Ärger"}));
  ASSERT_EQ(reader->hashes().size(), std::size_t{kCount});
  for (int i = kCount - 1; i >= 0; --i) {
    const Record record = reader->read(i);
    EXPECT_EQ(texts_of(record), texts_of(sample_of(i))) << i;
    EXPECT_EQ(record.at(1).label(), i % 3);
    EXPECT_EQ(hash_of(record), reader->hashes()[static_cast<std::size_t>(i)]);
  }
}

TEST_P(RoundTrip, ManyThreadsReadAtOnce) {
  constexpr int kCount = 40;
  write_samples(path_, options(), kCount);
  const auto reader = open(path_);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 4 * kCount; ++i) {
        const int index = (i * (t + 3)) % kCount;
        if (texts_of(reader->read(index)) != texts_of(sample_of(index))) ++wrong[static_cast<std::size_t>(t)];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4));
}

TEST_P(RoundTrip, FieldsAreChosenAndOthersAreNamed) {
  write_samples(path_, options(), 5);
  const auto reader = open(path_, {.fields = {{"target", "target"}, {"input", "boxes"}}});
  ASSERT_EQ(reader->fields().size(), 2U);
  EXPECT_EQ(reader->fields()[0].name, "input");
  EXPECT_EQ(reader->fields()[0].kind, FieldKind::kTensor);
  EXPECT_EQ(texts_of(reader->read(3))[0], texts_of(sample_of(3))[2]);
  try {
    open(path_, {.fields = {{"input", "boxen"}}});
    ADD_FAILURE();
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kConfiguration);
    EXPECT_THAT(error.what(), HasSubstr("boxes"));
  }
}

TEST_P(RoundTrip, OneSampleIsEnoughAndNoneIsRefused) {
  WriterOptions one = options();
  one.shards = 1;
  write_samples(path_, one, 1);
  EXPECT_EQ(open(path_)->size(), 1);
  const fs::path other = folder_.path() / ("none." + path_.extension().string());
  EXPECT_THROW(write_samples(other, one, 0), DataError);
  EXPECT_FALSE(fs::exists(other));
  EXPECT_FALSE(fs::exists(other.string() + ".tmp"));
}

TEST_P(RoundTrip, ATargetThatExistsIsReplacedOnlyOnRequest) {
  write_samples(path_, options(), 6);
  try {
    write_samples(path_, options(), 9);
    ADD_FAILURE();
  } catch (const IoError& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kOutputLocked);
    EXPECT_THAT(error.what(), HasSubstr("--force"));
  }
  EXPECT_EQ(open(path_)->size(), 6);
  WriterOptions again = options();
  again.force = true;
  write_samples(path_, again, 9);
  EXPECT_EQ(open(path_)->size(), 9);
}

TEST_P(RoundTrip, TheBytesDoNotDependOnTheWorkers) {
  write_samples(path_, options(), 50);
  const auto source = open(path_);
  std::vector<std::string> contents;
  for (const int workers : {1, 2, 5}) {
    const fs::path target = folder_.path() / std::to_string(workers) / path_.filename();  // the name is in the files
    fs::create_directories(target.parent_path());
    PackOptions packing{
        .kind = options().kind, .compression = options().compression, .shards = options().shards, .workers = workers};
    packing.shuffle = 7;
    packing.recode = [](std::span<const std::byte> picture, const std::string&) {
      std::vector<std::byte> bytes(picture.rbegin(), picture.rend());
      return bytes;
    };
    EXPECT_EQ(pack(*source, target, packing).samples, 50);
    contents.push_back(content_of_all(target));
  }
  EXPECT_EQ(contents[0], contents[1]);
  EXPECT_EQ(contents[0], contents[2]);
}

bool has_lmdb() { return !lmdb_version().empty(); }
bool has_hdf5() { return !hdf5_version().empty(); }
bool has_lmdb_and_zstd() { return has_lmdb() && !zstd_version().empty(); }
bool has_hdf5_and_zstd() { return has_hdf5() && !zstd_version().empty(); }

// A value of many pages that is not in memory must not be read page by page.
TEST(Lmdb, ALongValueIsReadFromTheDiskInOneGo) {
  if (!has_lmdb()) GTEST_SKIP() << "THIS BUILD LACKS LMDB";
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "a.lmdb";
  constexpr std::size_t kPages = 256;
  constexpr std::size_t kPage = 4096;
  {
    const auto writer =
        make_writer(path, {.kind = ContainerKind::kLmdb, .fields = {{.name = "x", .kind = FieldKind::kBytes}}});
    for (int i = 0; i < 4; ++i) {
      RecordParts parts(1);
      parts.own(std::vector<std::byte>(kPages * kPage, static_cast<std::byte>(i + 1)));
      writer->add(parts.build());
    }
    writer->finish();  // which syncs, so that the kernel may forget the pages
  }
  const UniqueFd file(::open((path / "data.mdb").c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED), 0);  // does nothing on a file system in memory
  const auto reader = open(path);
  const auto faults = [] {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    return usage.ru_majflt;
  };
  const Record record = reader->read(2);
  const auto before = faults();
  std::size_t sum = 0;
  for (std::size_t page = 0; page < kPages; ++page)
    sum += std::to_integer<std::size_t>(record.at(0).bytes[page * kPage]);
  EXPECT_EQ(sum, 3 * kPages);
  EXPECT_LT(faults() - before, static_cast<long>(kPages / 4));
}

INSTANTIATE_TEST_SUITE_P(
    Containers, RoundTrip,
    testing::Values(Case{.file = "a.lmdb", .can = has_lmdb},
                    Case{.file = "z.lmdb", .compression = Compression::kZstd, .can = has_lmdb_and_zstd},
                    Case{.file = "a.tfrecord"}, Case{.file = "s.tfrecord", .shards = 3}, Case{.file = "a.tar"},
                    Case{.file = "s.tar", .shards = 4}, Case{.file = "a.h5", .can = has_hdf5},
                    Case{.file = "z.h5", .compression = Compression::kZstd, .can = has_hdf5_and_zstd}),
    [](const auto& test) {
      std::string name = test.param.file + std::to_string(test.index);
      std::erase_if(name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; });
      return name;
    });

}  // namespace
}  // namespace reigen::container
