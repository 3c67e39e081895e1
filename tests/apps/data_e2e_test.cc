// reigen data as a user calls it: its output, the files that it writes and its exit codes. The target is a tar, which
// needs no library.
#include <gmock/gmock.h>

#include <filesystem>
#include <vector>

#include "format/temporary_folder.h"
#include "harness/folders.h"
#include "launch/child_program.h"
#include "reigen/image/encode.h"

namespace reigen {
namespace {

namespace fs = std::filesystem;
using launch::Ran;
using ::testing::AllOf;
using ::testing::HasSubstr;

// A JPEG file of 16 x 16 pixels.
std::string jpeg(int number) {
  image::Picture picture{.width = 16, .height = 16};
  for (int i = 0; i < 3 * 16 * 16; ++i) picture.pixels.push_back(static_cast<std::uint8_t>(i * i / 7 * number));
  const std::vector<std::byte> file = image::encode_jpeg(picture, 90);
  return {reinterpret_cast<const char*>(file.data()), file.size()};
}

class DataCommand : public ::testing::Test {
 protected:
  DataCommand() {
    int number = 0;
    for (const char* name : {"photos/ant/1.jpg", "photos/ant/2.jpg", "photos/bee/3.jpg"}) {
      fs::create_directories((root_ / name).parent_path());
      folder_.write(name, jpeg(++number));
    }
  }
  Ran reigen(std::vector<std::string> words) const {
    words.insert(words.begin(), {built("bin/reigen"), "data"});
    return launch::run(words, {});
  }

  tests::TemporaryFolder folder_;
  fs::path root_ = folder_.path();
};

TEST_F(DataCommand, PacksAndShowsAndVerifies) {
  const fs::path target = root_ / "a.tar";
  const Ran packed = reigen({"pack", root_ / "photos", target, "--shards", "2", "--shuffle", "1", "--workers", "2"});
  ASSERT_EQ(packed.code, 0) << packed.err;
  EXPECT_THAT(packed.out, HasSubstr("tar, 3 samples"));
  EXPECT_EQ(reigen({"pack", root_ / "photos", target}).code, 73);
  EXPECT_EQ(reigen({"pack", root_ / "photos", target, "--force"}).code, 0);
  const Ran shown = reigen({"inspect", target});
  EXPECT_THAT(shown.out, AllOf(HasSubstr("3 samples"), HasSubstr("input (picture)"), HasSubstr("2 classes: ant, bee"),
                               HasSubstr("labels 0 to 1")));
  const Ran one = reigen({"inspect", target, "--sample", "2", "--out", root_ / "out"});
  EXPECT_EQ(one.code, 0) << one.err;
  EXPECT_EQ(tests::content_of(root_ / "out/input.jpg"), jpeg(3));
  EXPECT_EQ(tests::content_of(root_ / "out/target.cls"), "1\n");
  EXPECT_THAT(reigen({"verify", target}).out, HasSubstr("whole, 3 samples"));
  std::string tar = tests::content_of(target / "a-000000.tar");
  tar[tar.find(jpeg(3)) + jpeg(3).size() / 2] ^= 4;
  folder_.write("a.tar/a-000000.tar", tar);
  const Ran damaged = reigen({"verify", target});
  EXPECT_EQ(damaged.code, 65);
  EXPECT_THAT(damaged.out, AllOf(HasSubstr("sample 2 "), HasSubstr("1 fault,")));
  EXPECT_THAT(reigen({"index", target}).out, HasSubstr("a-000000.idx"));
}

// Over NFS, where two names cannot be exchanged, a folder cannot be renamed over another one.
TEST_F(DataCommand, ReplacesAlsoWhereTwoNamesCannotBeExchanged) {
  for (const char* shards :
       {"2", "1", "1", "2", "3"}) {  // a folder over nothing, a file over it, a file over a file, ...
    const Ran packed =
        launch::run({"/usr/bin/env", "LD_PRELOAD=" + built("tests/libreigen_file_layer.so"),
                     "REIGEN_FILES_BELOW=" + root_.string(), "REIGEN_FILES_NO_EXCHANGE=1", built("bin/reigen"), "data",
                     "pack", root_ / "photos", root_ / "a.tar", "--shards", shards, "--force"},
                    {});
    ASSERT_EQ(packed.code, 0) << packed.err;
    EXPECT_THAT(reigen({"verify", root_ / "a.tar"}).out, HasSubstr("whole, 3 samples"));
    EXPECT_FALSE(fs::exists(root_ / "a.tar.tmp"));
  }
  // As a kill between the two steps leaves it: the old container is found again.
  fs::create_directory(root_ / "a.tar.tmp");
  fs::rename(root_ / "a.tar", root_ / "a.tar.tmp/replaced");
  EXPECT_EQ(reigen({"pack", root_ / "photos", root_ / "a.tar"}).code, 73);
  EXPECT_THAT(reigen({"verify", root_ / "a.tar"}).out, HasSubstr("whole, 3 samples"));
  EXPECT_FALSE(fs::exists(root_ / "a.tar.tmp"));
}

TEST_F(DataCommand, WrongUseHasItsExitCode) {
  EXPECT_EQ(reigen({}).code, 2);
  EXPECT_EQ(reigen({"--help"}).code, 0);
  EXPECT_EQ(reigen({"--version"}).code, 0);
  const Ran unknown = reigen({"pak"});
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("did you mean `reigen data pack`?"));
  EXPECT_EQ(reigen({"pack", root_ / "photos"}).code, 2);
  EXPECT_EQ(reigen({"pack", root_ / "photos", root_ / "a.zip"}).code, 78);
  EXPECT_EQ(reigen({"pack", root_ / "none", root_ / "a.tar"}).code, 66);
  EXPECT_EQ(reigen({"pack", root_ / "photos", root_ / "a.tar", "--compress", "lzma"}).code, 2);
  EXPECT_EQ(reigen({"pack", root_ / "photos", root_ / "a.tar", "--compress", "zstd"}).code, 78);
  EXPECT_EQ(reigen({"pack", root_ / "photos", root_ / "a.tar", "--fields", "input"}).code, 2);
  EXPECT_EQ(reigen({"pack", root_ / "photos", root_ / "a.tar", "--fields", "input=image"}).code, 78);
  EXPECT_EQ(reigen({"inspect", root_ / "photos", "--out", root_ / "out"}).code, 2);
  EXPECT_EQ(reigen({"inspect", root_ / "photos", "--sample", "3"}).code, 78);
  EXPECT_EQ(reigen({"index", root_ / "photos"}).code, 78);
  EXPECT_FALSE(fs::exists(root_ / "a.tar"));
  EXPECT_FALSE(fs::exists(root_ / "a.tar.tmp"));
}

// Damage of a picture in a container without hashes is seen by decoding it.
TEST_F(DataCommand, VerifyDecodesPictures) {
  const Ran whole = reigen({"verify", root_ / "photos"});
  EXPECT_EQ(whole.code, 0) << whole.out << whole.err;
  EXPECT_THAT(whole.out, AllOf(HasSubstr("whole, 3 samples"), HasSubstr(" s ")));
  const std::string cut = jpeg(2).substr(0, jpeg(2).size() / 2);
  folder_.write("photos/ant/2.jpg", cut);
  const Ran damaged = reigen({"verify", root_ / "photos", "--workers", "3"});
  EXPECT_EQ(damaged.code, 65);
  EXPECT_THAT(damaged.out,
              AllOf(HasSubstr("photos, sample 1 (ant/2.jpg)'"), HasSubstr("1 fault, 2 samples are whole")));
  ASSERT_EQ(reigen({"pack", root_ / "photos", root_ / "a.tar"}).code, 0);
  EXPECT_THAT(reigen({"verify", root_ / "a.tar"}).out, HasSubstr("sample 1 (a-000000.tar, offset"));
  const Ran bytes = reigen({"verify", root_ / "a.tar", "--hashes"});
  EXPECT_EQ(bytes.code, 0);
  EXPECT_THAT(bytes.out, HasSubstr("no picture was decoded"));
}

// The field of a container of others is known by its first sample, which may be the damaged one.
TEST_F(DataCommand, VerifyNamesADamagedFirstPicture) {
  for (const auto& [name, content] : {std::pair<std::string, std::string>{"a.jpg", "no picture"}, {"b.jpg", jpeg(1)}}) {
    fs::create_directories(root_ / "tar");
    folder_.write("tar/" + name, content);
  }
  ASSERT_EQ(launch::run({"/bin/tar", "cf", root_ / "a.tar", "-C", root_ / "tar", "a.jpg", "b.jpg"}, {}).code, 0);
  const Ran damaged = reigen({"verify", root_ / "a.tar"});
  EXPECT_EQ(damaged.code, 65) << damaged.out;
  EXPECT_THAT(damaged.out, AllOf(HasSubstr("sample 0 (a.tar, offset 512)"), HasSubstr("1 sample is whole")));
}

// inspect and bench take the same options, which are declared once.
TEST_F(DataCommand, VerifyOpensWhatPackOpens) {
  fs::create_directories(root_ / "flat");
  folder_.write("flat/1.jpg", jpeg(1));
  folder_.write("flat/2.jpg", jpeg(2));
  const fs::path labels = folder_.write("labels.txt", "2.jpg 7\n1.jpg 12\n");
  const Ran without = reigen({"verify", root_ / "flat"});
  EXPECT_EQ(without.code, 78) << without.out;
  EXPECT_THAT(without.err, HasSubstr("--labels"));
  for (const char* part : {"verify", "inspect"}) {
    const Ran with = reigen({part, root_ / "flat", "--labels", labels, "--label-offset", "1"});
    EXPECT_EQ(with.code, 0) << with.out << with.err;
    EXPECT_THAT(with.out, HasSubstr("2 samples"));
  }
  const Ran unknown = reigen({"verify", root_ / "photos", "--fields", "input=image"});
  EXPECT_EQ(unknown.code, 78);
  EXPECT_THAT(unknown.err, HasSubstr("no field 'image'"));
}

}  // namespace
}  // namespace reigen
