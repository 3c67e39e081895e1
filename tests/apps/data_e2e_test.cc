// reigen data as a user calls it: its output, the files that it writes and its exit codes. The target is a tar, which
// needs no library.
#include <gmock/gmock.h>

#include <filesystem>
#include <vector>

#include "format/temporary_folder.h"
#include "harness/folders.h"
#include "launch/child_program.h"

namespace reigen {
namespace {

namespace fs = std::filesystem;
using launch::Ran;
using testing::AllOf;
using testing::HasSubstr;

class DataCommand : public testing::Test {
 protected:
  DataCommand() {
    for (const char* name : {"photos/ant/1.jpg", "photos/ant/2.jpg", "photos/bee/3.jpg"}) {
      fs::create_directories((root_ / name).parent_path());
      folder_.write(name, std::string("\xff\xd8\xff") + name);
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
  EXPECT_EQ(tests::content_of(root_ / "out/input.jpg"), "\xff\xd8\xffphotos/bee/3.jpg");
  EXPECT_EQ(tests::content_of(root_ / "out/target.cls"), "1\n");
  EXPECT_THAT(reigen({"verify", target}).out, HasSubstr("whole, 3 samples"));
  std::string tar = tests::content_of(target / "a-000000.tar");
  tar[tar.find("bee/3") + 1] = 'E';
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

}  // namespace
}  // namespace reigen
