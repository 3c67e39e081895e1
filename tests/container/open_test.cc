// What a container is opened as, and what is said of what cannot be opened.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include "container/libraries.h"
#include "container/samples.h"
#include "container/tar/members.h"
#include "container/tar/npy.h"
#include "container/tfrecord/example.h"
#include "container/tfrecord/records.h"
#include "format/temporary_folder.h"
#include "reigen/base/error.h"
#include "reigen/container/pack.h"
#include "reigen/container/verify.h"

namespace reigen::container {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using tests::TemporaryFolder;
namespace fs = std::filesystem;

template <class Error>
std::string error_of_open(const fs::path& path, ExitCode code, const OpenOptions& options = {}) {
  try {
    open(path, options);
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

std::string tar_of(const std::vector<std::pair<std::string, std::string>>& files) {
  std::string tar;
  for (const auto& [name, content] : files) {
    tar += tar_header(name, content.size()) + content;
    tar += tar_padding(content.size());
  }
  return tar + std::string(tar_end());
}

std::string example_of(const std::string& picture, std::int64_t label) {
  ExampleWriter example;
  example.bytes("image/encoded", bytes_of_text(picture));
  example.integers("image/class/label", std::as_bytes(std::span(&label, 1)));
  example.integers("image/height", std::as_bytes(std::span(&label, 1)));
  return framed(example.message());
}

const std::string kPicture("\xff\xd8\xff", 3);

TEST(Open, AMissingFileAndAFileOfNoKind) {
  const TemporaryFolder folder;
  error_of_open<IoError>(folder.path() / "none.tar", ExitCode::kInputMissing);
  EXPECT_THAT(error_of_open<DataError>(folder.write("a.tar", "no tar"), ExitCode::kBadData), HasSubstr("6 bytes"));
  error_of_open<DataError>(folder.write("empty.tfrecord", ""), ExitCode::kBadData);
}

TEST(Open, AMissingShardIsNamed) {
  const TemporaryFolder folder;
  for (const char* name : {"t-00000-of-00003", "t-00002-of-00003"}) folder.write(name, example_of(kPicture, 1));
  EXPECT_THAT(error_of_open<IoError>(folder.path(), ExitCode::kInputMissing), HasSubstr("t-00001-of-00003"));
  EXPECT_THAT(error_of_open<IoError>(folder.path() / "t-*", ExitCode::kInputMissing), HasSubstr("t-00001-of-00003"));
  folder.write("t-00001-of-00003", example_of(kPicture, 1) + example_of(kPicture, 2));
  EXPECT_EQ(open(folder.path())->size(), 4);
  EXPECT_EQ(open(folder.path() / "t-0000{0..1}-of-00003")->size(), 3);
  EXPECT_EQ(open(folder.path() / "t-{00001..00001}-of-00003")->size(), 2);
  folder.write("v-00000-of-00001", example_of(kPicture, 1));
  EXPECT_THAT(error_of_open<DataError>(folder.path(), ExitCode::kBadData), HasSubstr("t-*"));
  EXPECT_EQ(open(folder.path() / "t-*")->size(), 4);
  EXPECT_THAT(error_of_open<IoError>(folder.path() / "a-{000000..000002}.tar", ExitCode::kInputMissing),
              HasSubstr("a-000000.tar"));
}

TEST(Open, AShardOfReigensOwnThatIsMissingIsNamed) {
  const TemporaryFolder folder;
  write_samples(folder.path() / "a.tar", {.kind = ContainerKind::kTar, .shards = 3}, 7);
  fs::remove(folder.path() / "a.tar/a-000001.tar");
  EXPECT_THAT(error_of_open<IoError>(folder.path() / "a.tar", ExitCode::kInputMissing), HasSubstr("a-000001.tar"));
}

TEST(Open, LabelsOfOthersAreShiftedAndOtherFeaturesLeftOut) {
  const TemporaryFolder folder;
  const fs::path path = folder.write("t", example_of(kPicture, 1000) + example_of(kPicture + "x", 1));
  const auto reader = open(path, {.label_offset = 1});
  ASSERT_EQ(reader->fields().size(), 2U);
  EXPECT_EQ(reader->read(0).at(1).label(), 999);
  EXPECT_EQ(reader->read(1).at(1).label(), 0);
  EXPECT_EQ(reader->stored_names(), (std::vector<std::string>{"image/class/label", "image/encoded", "image/height"}));
  const auto height = open(path, {.fields = {{"height", "image/height"}}});
  EXPECT_EQ(describe(height->fields()[0]), "height (tensor I64 [1])");
}

TEST(Open, ARecordWithAWrongChecksumNamesSampleAndOffset) {
  const TemporaryFolder folder;
  const std::string first = example_of(kPicture, 1);
  std::string second = example_of(kPicture + "y", 2);
  second[20] ^= 1;
  const auto reader = open(folder.write("t", first + second));
  EXPECT_NO_THROW(reader->read(0));
  EXPECT_THAT([&] { reader->read(1); }, ::testing::ThrowsMessage<DataError>(AllOf(
                                            HasSubstr("sample 1"), HasSubstr(fmt::format("offset {}", first.size())))));
}

TEST(Open, ALengthBeyondTheFileTakesNoMemory) {
  const TemporaryFolder folder;
  std::string head;
  const std::uint64_t length = std::uint64_t{1} << 60;
  std::string record = framed("");
  record.replace(0, 8, reinterpret_cast<const char*>(&length), 8);
  std::string right = framed(record.substr(0, 8));  // its checksum of the data is that of the length
  record.replace(8, 4, right.substr(right.size() - 4));
  EXPECT_THAT(error_of_open<DataError>(folder.write("t", example_of(kPicture, 1) + record), ExitCode::kBadData),
              HasSubstr("1152921504606846976 bytes"));
  const std::string tar = tar_header("a.jpg", std::uint64_t{1} << 40) + "x" + std::string(tar_padding(1));
  EXPECT_THAT(error_of_open<DataError>(folder.write("a.tar", tar), ExitCode::kBadData),
              HasSubstr("1099511627776 bytes"));
}

TEST(Open, AShapeThatChangesNamesTheSample) {
  const TemporaryFolder folder;
  std::string records;
  for (const int count : {3, 3, 2}) {
    const std::vector<float> numbers(static_cast<std::size_t>(count), 1.5F);
    ExampleWriter example;
    example.floats("x", std::as_bytes(std::span(numbers)));
    records += framed(example.message());
  }
  const auto reader = open(folder.write("t", records));
  EXPECT_EQ(describe(reader->fields()[0]), "input (tensor F32 [3])");
  EXPECT_NO_THROW(reader->read(1));
  EXPECT_THAT([&] { reader->read(2); }, ::testing::ThrowsMessage<DataError>(HasSubstr("sample 2")));
}

// 2 x 3 and 3 x 2 have the same number of bytes.
TEST(Open, AnotherShapeOfAsManyBytesNamesTheSample) {
  const auto npy = [](format::TensorType type, const std::vector<std::int64_t>& shape) {
    return npy_head(type, shape) + std::string(*format::bytes_of(type, shape), 'x');
  };
  using format::TensorType;
  const TemporaryFolder folder;
  const fs::path path = folder.write("a.tar", tar_of({{"a.mask.npy", npy(TensorType::kU8, {2, 3})},
                                                      {"b.mask.npy", npy(TensorType::kU8, {3, 2})},
                                                      {"c.mask.npy", npy(TensorType::kU8, {6})},
                                                      {"d.mask.npy", npy(TensorType::kI8, {2, 3})},
                                                      {"e.mask.npy", npy(TensorType::kU8, {2, 3})}}));
  const auto reader = open(path);
  EXPECT_EQ(describe(reader->fields()[0]), "mask (tensor U8 [2, 3])");
  EXPECT_NO_THROW(reader->read(0));
  EXPECT_NO_THROW(reader->read(4));
  const auto refuses = [&](int sample, const std::string& got) {
    EXPECT_THAT([&] { reader->read(sample); },
                ::testing::ThrowsMessage<DataError>(
                    AllOf(HasSubstr(fmt::format("sample {} ", sample)), HasSubstr(got), HasSubstr("U8 [2, 3]"))));
  };
  refuses(1, "U8 [3, 2]");
  refuses(2, "U8 [6]");
  refuses(3, "I8 [2, 3]");
  EXPECT_THROW(pack(*reader, folder.path() / "b.tar", {.kind = ContainerKind::kTar}), DataError);
}

TEST(Open, ALabelWithoutAClassNamesTheSample) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "a.tar";
  write_samples(path, {.kind = ContainerKind::kTar}, 3);
  const auto reader = open(path, {.label_offset = 1});
  EXPECT_THAT([&] { reader->read(0); },
              ::testing::ThrowsMessage<DataError>(AllOf(HasSubstr("sample 0"), HasSubstr("-1"))));
}

TEST(Open, TarsAreDividedAsWebDatasetDoes) {
  const TemporaryFolder folder;
  const std::string tar = tar_of({{"__meta__", "x"},
                                  {".hidden.jpg", "x"},
                                  {"a/b.seg.png", "\x89PNG"},
                                  {"a/b.cls", " 3\n"},
                                  {"noending", "x"},
                                  {"a/c.seg.png", ""},
                                  {"a/c.cls", "4"},
                                  {std::string(150, 'n') + ".seg.png", "z"},
                                  {std::string(150, 'n') + ".cls", "5"}});
  const auto reader = open(folder.write("a.tar", tar));
  ASSERT_EQ(reader->size(), 3);
  EXPECT_EQ(reader->fields()[0].name, "target");
  EXPECT_EQ(describe(reader->fields()[1]), "seg.png (picture)");
  EXPECT_EQ(reader->read(0).at(0).label(), 3);
  EXPECT_EQ(texts_of(reader->read(1))[1], "");
  EXPECT_EQ(texts_of(reader->read(2))[1], "z");
}

// Texts beside the pictures have no place in a batch. What packs and inspects takes them all the same.
TEST(Open, WithoutBytesLeavesPicturesLabelsAndTensors) {
  const TemporaryFolder folder;
  const fs::path path = folder.write("a.tar", tar_of({{"a.jpg", kPicture},
                                                      {"a.cls", "3"},
                                                      {"a.seg.png", "\x89PNG"},
                                                      {"a.json", "{}"},
                                                      {"a.mask.npy", npy_head(format::TensorType::kU8, {1}) + "x"},
                                                      {"a.txt", "17"}}));
  const auto names_of = [](const Reader& reader) {
    std::vector<std::string> names;
    for (const Field& field : reader.fields()) names.push_back(field.name);
    return names;
  };
  const auto training = open(path, {.without_bytes = true});
  EXPECT_THAT(names_of(*training), ::testing::ElementsAre("input", "target", "seg.png", "mask"));
  EXPECT_EQ(training->stored_names().size(), 6U);
  EXPECT_EQ(open(path)->fields().size(), 6U);
  EXPECT_THAT(names_of(*open(path, {.fields = {{"text", "txt"}}, .without_bytes = true})),
              ::testing::ElementsAre("text"));
  const fs::path sound = folder.write("b.tar", tar_of({{"a.wav", "sound"}, {"a.json", "{}"}}));
  EXPECT_EQ(open(sound, {.without_bytes = true})->fields().size(), 2U);  // nothing would be left
}

TEST(Open, ACompressedTarIsASourceOfPackOnly) {
  const TemporaryFolder folder;
  const std::string tar = tar_of({{"a.jpg", kPicture}, {"a.cls", "3"}, {"b.jpg", kPicture + "b"}, {"b.cls", "4"}});
  const fs::path path = folder.path() / "a.tar.gz";
  const gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, tar.data(), static_cast<unsigned>(tar.size()));
  gzclose(file);
  EXPECT_THAT(error_of_open<InvalidArgument>(path, ExitCode::kConfiguration), HasSubstr("reigen data pack"));
  if (libarchive_version().empty()) {
    EXPECT_THAT(error_of_open<BackendError>(path, ExitCode::kUnavailable, {.allow_sequential = true}),
                HasSubstr("libarchive-dev"));
    GTEST_SKIP() << "THIS BUILD LACKS LIBARCHIVE";
  }
  const auto reader = open(path, {.allow_sequential = true});
  ASSERT_EQ(reader->size(), 2);
  EXPECT_EQ(texts_of(reader->read(1))[0], kPicture + "b");
  EXPECT_EQ(reader->read(0).at(1).label(), 3);
  EXPECT_THROW(pack(*reader, folder.path() / "b.tar", {.kind = ContainerKind::kTar, .shuffle = 1}), InvalidArgument);
  pack(*reader, folder.path() / "b.tar", {.kind = ContainerKind::kTar, .workers = 3});
  EXPECT_EQ(texts_of(open(folder.path() / "b.tar")->read(1))[0], kPicture + "b");
}

// TensorFlow compresses TFRecords by gzip or zlib, without an ending that says so.
TEST(Open, CompressedTfRecordsAreNoTar) {
  const TemporaryFolder folder;
  const std::string records = example_of(kPicture, 1) + example_of(kPicture, 2);
  const auto refuses = [&](const fs::path& path, const std::string& packer, const std::string& fix) {
    for (const bool in_order : {false, true}) {
      EXPECT_THAT(
          error_of_open<InvalidArgument>(path, ExitCode::kConfiguration, {.allow_sequential = in_order}),
          AllOf(HasSubstr("compressed TFRecords are not read"), HasSubstr("packed by " + packer), HasSubstr(fix)));
    }
    EXPECT_THROW(verify(path), InvalidArgument);
    EXPECT_THROW(write_index(path), InvalidArgument);
  };
  const fs::path gzipped = folder.path() / "g" / "train-00000-of-00001";
  fs::create_directories(gzipped.parent_path());
  const gzFile file = gzopen(gzipped.c_str(), "wb");
  gzwrite(file, records.data(), static_cast<unsigned>(records.size()));
  gzclose(file);
  refuses(gzipped, "gzip", "gzip -dc <");
  refuses(gzipped.parent_path(), "gzip", "gzip -dc <");
  std::string packed(compressBound(records.size()), '\0');
  uLongf size = packed.size();
  ASSERT_EQ(compress(reinterpret_cast<Bytef*>(packed.data()), &size, reinterpret_cast<const Bytef*>(records.data()),
                     records.size()),
            Z_OK);
  refuses(folder.write("z", packed.substr(0, size)), "zlib", "without a compression_type");
  refuses(folder.write("a.tfrecord.zst", "\x28\xb5\x2f\xfd, zstd"), "zstd", "zstd -dc <");
}

// A build without a library says which package it needs.
TEST(Open, WhatIsNotBuiltInNamesThePackage) {
  const TemporaryFolder folder;
  const auto lacks = [&](const std::string& file, std::string_view version, const char* package,
                         Compression compression) {
    if (!version.empty()) return;
    try {
      write_samples(folder.path() / file, {.kind = kind_of_target(file), .compression = compression}, 2);
      ADD_FAILURE() << file;
    } catch (const BackendError& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::kUnavailable);
      EXPECT_THAT(error.what(), HasSubstr(package));
    }
  };
  lacks("a.lmdb", lmdb_version(), "liblmdb-dev", Compression::kNone);
  lacks("a.h5", hdf5_version(), "libhdf5-dev", Compression::kNone);
  lacks("b.lmdb", zstd_version(), "libzstd-dev", Compression::kZstd);
  EXPECT_EQ(libraries().size(), 4U);
}

TEST(Writer, RefusesWhatItCannotStore) {
  const TemporaryFolder folder;
  const auto refuses = [&](WriterOptions options, const std::string& file) {
    options.kind = kind_of_target(file);
    EXPECT_THROW(write_samples(folder.path() / file, options, 3), InvalidArgument) << file;
    EXPECT_TRUE(fs::is_empty(folder.path()));
  };
  refuses({.fields = {{.name = "a/b"}}}, "a.tar");
  refuses({.fields = {{.name = "a b"}}}, "a.tar");
  refuses({.fields = {{.name = "a"}, {.name = "a"}}}, "a.tfrecord");
  refuses({.fields = {{.name = "a"}}}, "a.tfrecord");  // the records have more values
  refuses({.shards = 4}, "a.tar");                     // more than samples
  refuses({.compression = Compression::kZstd}, "a.tar");
  EXPECT_THROW(kind_of_target("a.zip"), InvalidArgument);
}

TEST(Inspect, SaysWhatAContainerHolds) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "a.tfrecord";
  write_samples(path, {.kind = ContainerKind::kTfRecord}, 10);
  const Inspected found = inspect(*open(path), 5);
  EXPECT_EQ(found.samples, 10);
  EXPECT_EQ(found.looked_at, 5);
  EXPECT_EQ(found.sizes[1].least, 8U);
  EXPECT_EQ(found.sizes[2].most, 24U);
  EXPECT_EQ(*found.least_label, 0);
  EXPECT_EQ(*found.most_label, 2);
  EXPECT_TRUE(found.has_hashes);
}

}  // namespace
}  // namespace reigen::container
