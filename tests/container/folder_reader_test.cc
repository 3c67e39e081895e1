// Folders of pictures as containers: folders of classes, and flat ones with a file of labels.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "container/samples.h"
#include "format/temporary_folder.h"
#include "reigen/base/error.h"
#include "reigen/container/verify.h"

namespace reigen::container {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using tests::TemporaryFolder;
namespace fs = std::filesystem;

void put_picture(const TemporaryFolder& folder, const std::string& name, const std::string& content) {
  fs::create_directories((folder.path() / name).parent_path());
  folder.write(name, content);
}

template <class Error>
std::string text_of_error(const fs::path& path, const OpenOptions& options, ExitCode code) {
  try {
    open(path, options);
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), code);
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

TEST(FolderReader, ClassesAreFoldersInTheOrderOfNames) {
  const TemporaryFolder folder;
  put_picture(folder, "cat/b.jpg", "2");
  put_picture(folder, "cat/a.JPEG", "1");
  put_picture(folder, "ant/deep/c.png", "0");
  put_picture(folder, "ant/notes.txt", "x");
  const auto reader = open(folder.path());
  ASSERT_EQ(reader->size(), 3);
  EXPECT_EQ(reader->kind(), ContainerKind::kFolder);
  EXPECT_EQ(reader->classes(), (std::vector<std::string>{"ant", "cat"}));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(texts_of(reader->read(i))[0], std::to_string(i));
    EXPECT_EQ(reader->read(i).at(1).label(), i > 0);
  }
  EXPECT_EQ(reader->where(2), "cat/b.jpg");
  EXPECT_EQ(reader->stored_bytes(), 3U);
}

TEST(FolderReader, OneOfTwoSplitsMustBeChosen) {
  const TemporaryFolder folder;
  for (const char* name : {"train/a/1.jpg", "train/b/2.jpg", "val/b/3.jpg", "val/a/4.jpg"})
    put_picture(folder, name, name);
  EXPECT_THAT(text_of_error<InvalidArgument>(folder.path(), {}, ExitCode::kConfiguration), HasSubstr("train"));
  EXPECT_EQ(open(folder.path() / "val")->size(), 2);
  EXPECT_EQ(texts_of(open(folder.path(), {.split = Split::kTest})->read(0))[0], "val/a/4.jpg");
}

TEST(FolderReader, AFlatFolderNeedsLabels) {
  const TemporaryFolder folder;
  put_picture(folder, "flat/ILSVRC 1.JPEG", "one");
  put_picture(folder, "flat/2.JPEG", "two");
  const fs::path labels = folder.write("labels.txt", "2.JPEG 7\r\n\nILSVRC 1.JPEG\t 12 \n");
  const auto reader = open(folder.path() / "flat", {.label_offset = 1, .labels_file = labels});
  ASSERT_EQ(reader->size(), 2);
  EXPECT_EQ(texts_of(reader->read(1))[0], "one");
  EXPECT_EQ(reader->read(1).at(1).label(), 11);
  EXPECT_THAT(text_of_error<InvalidArgument>(folder.path() / "flat", {}, ExitCode::kConfiguration),
              HasSubstr("--labels"));
  const fs::path missing = folder.write("missing.txt", "2.JPEG 7\n3.JPEG 1\n");
  EXPECT_THAT(text_of_error<IoError>(folder.path() / "flat", {.labels_file = missing}, ExitCode::kInputMissing),
              HasSubstr("3.JPEG"));
  const fs::path wrong = folder.write("wrong.txt", "2.JPEG 7\n3.JPEG cat\n");
  EXPECT_THAT(text_of_error<DataError>(folder.path() / "flat", {.labels_file = wrong}, ExitCode::kBadData),
              HasSubstr("line 2"));
}

// The archive that the pictures came from often stays beside the folders into which it was unpacked.
TEST(FolderReader, AnArchiveBesideClassFoldersIsNotTakenForThem) {
  for (const char* archive : {"photos.tar", "photos-00000-of-00001", "photos.tar.gz"}) {
    const TemporaryFolder folder;
    const fs::path photos = folder.path() / "photos";
    put_picture(folder, "photos/cat/deep/1.jpg", "1");
    put_picture(folder, std::string("photos/") + archive, "\x1f\x8b, a gzipped archive");
    EXPECT_THAT(text_of_error<InvalidArgument>(photos, {}, ExitCode::kConfiguration),
                AllOf(HasSubstr(archive), HasSubstr("'cat'")))
        << archive;
    put_picture(folder, "photos/dog/2.jpg", "2");
    const auto reader = open(photos);
    EXPECT_EQ(reader->kind(), ContainerKind::kFolder) << archive;
    EXPECT_FALSE(is_container(photos));
    EXPECT_EQ(reader->classes(), (std::vector<std::string>{"cat", "dog"}));
    const Verified found = verify(photos);
    EXPECT_TRUE(found.faults.empty()) << found.faults[0].text;
    EXPECT_THROW(write_index(photos), InvalidArgument);
  }
}

// Previews beside a container are no classes, and must not take its place in silence.
TEST(FolderReader, FoldersOfPicturesBesideSeveralShardsOrAnLmdbAreRefused) {
  for (const std::vector<const char*>& files : {std::vector{"0000.tar", "0001.tar"}, std::vector{"data.mdb"}}) {
    const TemporaryFolder folder;
    const fs::path photos = folder.path() / "photos";
    for (const char* file : files) put_picture(folder, std::string("photos/") + file, "\x1f\x8b, a file");
    put_picture(folder, "photos/plots/1.jpg", "1");
    put_picture(folder, "photos/previews/2.jpg", "2");
    EXPECT_THAT(text_of_error<InvalidArgument>(photos, {}, ExitCode::kConfiguration),
                AllOf(HasSubstr(files.front()), HasSubstr("'plots'")));
  }
}

TEST(FolderReader, FoldersBesideShardsThatHoldNoPicturesAreNoClasses) {
  const TemporaryFolder folder;
  const fs::path shards = folder.path() / "shards";
  write_samples(folder.path() / "a.tar", {.kind = ContainerKind::kTar}, 3);
  put_picture(folder, "shards/notes/readme.txt", "x");
  put_picture(folder, "shards/.cache/1.jpg", "x");
  fs::copy_file(folder.path() / "a.tar/a-000000.tar", shards / "a-000000.tar");
  EXPECT_EQ(open(shards)->kind(), ContainerKind::kTar);
  EXPECT_TRUE(is_container(shards));
  EXPECT_TRUE(is_container(shards / "a-000000.tar"));
  put_picture(folder, "a.tar/seen/1.jpg", "x");  // __meta__ leaves no doubt
  put_picture(folder, "a.tar/seen too/2.jpg", "x");
  EXPECT_EQ(open(folder.path() / "a.tar")->kind(), ContainerKind::kTar);
}

}  // namespace
}  // namespace reigen::container
