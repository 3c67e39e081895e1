// reigen data pack with options that change pictures, and reigen data bench, as a user calls them.
#include <gmock/gmock.h>

#include <filesystem>
#include <regex>
#include <vector>

#include "format/temporary_folder.h"
#include "harness/folders.h"
#include "launch/child_program.h"
#include "reigen/image/decode.h"
#include "reigen/image/encode.h"
#include "reigen/image/resize.h"

namespace reigen {
namespace {

namespace fs = std::filesystem;
using launch::Ran;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

image::Picture drawn(int width, int height) {
  image::Picture picture{.width = width, .height = height};
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (const int value : {3 * x, 5 * y, x * y / 7}) picture.pixels.push_back(static_cast<std::uint8_t>(value));
    }
  }
  return picture;
}

std::string jpeg(int width, int height) {
  const std::vector<std::byte> file = image::encode_jpeg(drawn(width, height), 90);
  return {reinterpret_cast<const char*>(file.data()), file.size()};
}

image::Picture decoded(const std::string& file) {
  return image::decode(std::as_bytes(std::span(file.data(), file.size())), "a picture of the test");
}

class DataPictures : public ::testing::Test {
 protected:
  DataPictures() {
    fs::create_directories(source_ / "ant");
    fs::create_directories(source_ / "bee");
    folder_.write("photos/ant/1.jpg", jpeg(300, 200));
    folder_.write("photos/ant/2.jpg", jpeg(90, 120));
    folder_.write("photos/bee/3.jpg", jpeg(200, 500));
  }
  static Ran reigen(std::vector<std::string> words) {
    words.insert(words.begin(), {built("bin/reigen"), "data"});
    return launch::run(words, {});
  }
  Ran pack(std::vector<std::string> options, const std::string& target = "a.tar") const {
    options.insert(options.begin(), {"pack", source_, root_ / target, "--force"});
    return reigen(options);
  }
  // The value `input` of a sample, as the file that inspect writes.
  std::string input(int sample, const std::string& name) const {
    const Ran shown = reigen({"inspect", root_ / "a.tar", "--sample", std::to_string(sample), "--out", root_ / "out"});
    EXPECT_EQ(shown.code, 0) << shown.err;
    return tests::content_of(root_ / "out" / name);
  }
  image::Size size_of(int sample) const { return decoded(input(sample, "input.jpg")).size(); }

  tests::TemporaryFolder folder_;
  fs::path root_ = folder_.path();
  fs::path source_ = root_ / "photos";
};

TEST_F(DataPictures, PackMakesThemSmaller) {
  ASSERT_EQ(pack({"--shorter", "100"}).code, 0);
  EXPECT_EQ(size_of(0), (image::Size{150, 100}));
  EXPECT_EQ(size_of(1).width, 90);  // is smaller already
  EXPECT_EQ(input(1, "input.jpg"), tests::content_of(source_ / "ant/2.jpg"));
  EXPECT_EQ(size_of(2), (image::Size{100, 250}));
  ASSERT_EQ(pack({"--longest", "150"}).code, 0);
  EXPECT_EQ(size_of(0), (image::Size{150, 100}));
  EXPECT_EQ(size_of(1).width, 90);
  EXPECT_EQ(size_of(2), (image::Size{60, 150}));
  const std::string fine = input(2, "input.jpg");
  const image::Picture expected = image::resize(decoded(tests::content_of(source_ / "bee/3.jpg")), {60, 150});
  const std::vector<std::byte> coded = image::encode_jpeg(expected, 90);
  EXPECT_EQ(fine, std::string(reinterpret_cast<const char*>(coded.data()), coded.size()));
  ASSERT_EQ(pack({"--longest", "150", "--quality", "30"}).code, 0);
  EXPECT_LT(input(2, "input.jpg").size(), fine.size());
}

TEST_F(DataPictures, PackStoresPixelsOfOneSize) {
  ASSERT_EQ(pack({"--raw", "64"}).code, 0);
  EXPECT_THAT(reigen({"inspect", root_ / "a.tar"}).out, HasSubstr("input (tensor U8 [64, 64, 3])"));
  EXPECT_THAT(reigen({"verify", root_ / "a.tar"}).out, HasSubstr("whole, 3 samples"));
  // 300 x 200 becomes 96 x 64, whose middle begins at column 16.
  const image::Picture whole = image::resize(decoded(tests::content_of(source_ / "ant/1.jpg")), {96, 64});
  std::string expected;
  for (int y = 0; y < 64; ++y) {
    const auto* row = reinterpret_cast<const char*>(image::PixelView(whole).row(y));
    expected.append(row + 3 * 16, 3 * 64);
  }
  const std::string npy = input(0, "input.npy");
  EXPECT_EQ(npy.substr(npy.size() - expected.size()), expected);
  ASSERT_EQ(pack({"--raw", "64x32"}).code, 0);
  EXPECT_THAT(reigen({"inspect", root_ / "a.tar"}).out, HasSubstr("input (tensor U8 [32, 64, 3])"));
}

TEST_F(DataPictures, PackGivesTheSameBytesForAnyNumberOfWorkers) {
  const std::vector<std::vector<std::string>> ways = {{"--shorter", "64"}, {"--longest", "100"}, {"--raw", "40x50"}};
  for (std::vector<std::string> way : ways) {
    way.insert(way.end(), {"--shuffle", "3", "--workers"});
    std::vector<std::string> contents;
    for (const char* workers : {"1", "2", "7"}) {
      way.emplace_back(workers);
      ASSERT_EQ(pack(way).code, 0);
      way.pop_back();
      contents.push_back(tests::content_of(root_ / "a.tar/a-000000.tar"));
    }
    EXPECT_EQ(contents[0], contents[1]) << way[0];
    EXPECT_EQ(contents[0], contents[2]) << way[0];
  }
}

TEST_F(DataPictures, PackRefusesWhatContradicts) {
  const std::vector<std::vector<std::string>> wrong = {{"--raw", "64", "--shorter", "64"},
                                                       {"--raw", "64", "--quality", "80"},
                                                       {"--shorter", "64", "--longest", "64"},
                                                       {"--quality", "80"},
                                                       {"--shorter", "0"},
                                                       {"--longest", "-1"},
                                                       {"--shorter", "64", "--quality", "101"},
                                                       {"--raw", "64x"},
                                                       {"--raw", "0x64"},
                                                       {"--raw", "64x64x3"},
                                                       {"--raw", "70000"}};
  for (const auto& options : wrong) EXPECT_EQ(pack(options).code, 2) << options[0] << " " << options[1];
  EXPECT_FALSE(fs::exists(root_ / "a.tar"));
  ASSERT_EQ(pack({"--raw", "64"}, "raw.tar").code, 0);
  const Ran without = reigen({"pack", root_ / "raw.tar", root_ / "a.tar", "--shorter", "32"});
  EXPECT_EQ(without.code, 78);
  EXPECT_THAT(without.err, AllOf(HasSubstr("has no pictures"), HasSubstr("input (tensor U8 [64, 64, 3])")));
  const std::string whole = tests::content_of(source_ / "bee/3.jpg");
  folder_.write("photos/bee/3.jpg", whole.substr(0, whole.size() / 2));
  const Ran damaged = pack({"--shorter", "64"});
  EXPECT_EQ(damaged.code, 65);
  EXPECT_THAT(damaged.err, AllOf(HasSubstr("sample 2"), HasSubstr("bee/3.jpg")));
  EXPECT_FALSE(fs::exists(root_ / "a.tar"));
}

TEST_F(DataPictures, BenchMeasuresAndSaysWhatIsSlow) {
  ASSERT_EQ(pack({}).code, 0);
  const Ran ran = reigen({"bench", root_ / "a.tar", "--workers", "1,2", "--size", "32", "--seconds", "0.5"});
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("tar, 3 samples: input (JPEG, 196 x 273 on average), target 0..1; crop 32, flip"));
  const std::string rate = " +[1-9][0-9]*";
  const std::string ratio = " +[0-9]+\\.[0-9][0-9]";
  EXPECT_TRUE(std::regex_search(ran.out, std::regex("\n +1" + rate + rate + rate + ratio + " *\n"))) << ran.out;
  EXPECT_TRUE(std::regex_search(ran.out, std::regex("\n +2" + rate + rate + rate + ratio + ratio + "\n"))) << ran.out;
  EXPECT_THAT(ran.out, HasSubstr("bottleneck: decoding. A step that takes more than "));
  std::smatch memory;
  const std::regex line("memory: ([0-9.]+) MB after ([0-9.]+) epochs with 2 workers, ([0-9.]+) MB after the first");
  ASSERT_TRUE(std::regex_search(ran.out, memory, line)) << ran.out;
  EXPECT_GE(std::stod(memory[2]), 10);
  EXPECT_LT(std::stod(memory[1]), std::stod(memory[3]) + 4);  // the epochs have read more than that
}

TEST_F(DataPictures, BenchTakesContainersWithoutPictures) {
  ASSERT_EQ(pack({"--raw", "64"}).code, 0);
  const Ran ran = reigen({"bench", root_ / "a.tar", "--workers", "2", "--seconds", "0.02"});
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, AllOf(HasSubstr("input (tensor U8 [64, 64, 3])"), HasSubstr("bottleneck: reading"),
                             Not(HasSubstr("decode/s"))));
}

TEST_F(DataPictures, BenchServesScripts) {
  const auto serve = [&](const std::string& lines, const std::string& options) {
    const std::string program = std::string(built("bin/reigen")) + " data bench " + source_.string();
    return launch::run({"/bin/sh", "-c", "printf '" + lines + "' | " + program + " --on-demand " + options}, {});
  };
  const Ran ran = serve("0 20\\n7 3\\n", "--workers 2 --size 32 --decode fast");
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_TRUE(std::regex_match(ran.out, std::regex("ready\n[0-9.e+]+\n[0-9.e+]+\n"))) << ran.out;
  EXPECT_EQ(serve("0\\n", "--workers 1").code, 2);
  EXPECT_EQ(serve("", "--workers 1,2").code, 2);
  EXPECT_EQ(serve("", "--workers 1 --seconds 1").code, 2);
}

TEST_F(DataPictures, BenchNamesWhatIsWrong) {
  EXPECT_EQ(reigen({"bench", root_ / "none"}).code, 66);
  EXPECT_EQ(reigen({"bench", source_, "--workers", "0"}).code, 2);
  EXPECT_EQ(reigen({"bench", source_, "--decode", "slow"}).code, 2);
  const std::string whole = tests::content_of(source_ / "bee/3.jpg");
  folder_.write("photos/bee/3.jpg", whole.substr(0, whole.size() / 2));
  const Ran damaged = reigen({"bench", source_, "--workers", "1,2", "--seconds", "0.02"});
  EXPECT_EQ(damaged.code, 65);
  EXPECT_THAT(damaged.err, AllOf(HasSubstr("sample 2"), HasSubstr("bee/3.jpg")));
}

}  // namespace
}  // namespace reigen
