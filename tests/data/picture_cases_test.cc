// Compares small pictures of every kind with Pillow's pixels. tests/data/picture_cases/make.py wrote both.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "data/pictures/picture.h"
#include "format/byte_stream.h"
#include "format/temporary_folder.h"
#include "harness/folders.h"
#include "image/picture_kind.h"
#include "reigen/base/error.h"
#include "reigen/data/pictures.h"
#include "reigen/image/decode.h"

namespace reigen::data::picture_cases_test {
namespace {

using image::kind_of_picture;
using image::Picture;
using ::testing::HasSubstr;
using tests::TemporaryFolder;

enum class Verdict { kEqual, kRefused, kStrict, kGrey16 };  // make.py explains them

struct Case {
  std::string name;
  Verdict verdict = Verdict::kEqual;
  std::string file;
  Picture wanted;
};

class Cases {
 public:
  Cases() {
    format::ByteStream stream(std::string(kSourceFolder) + "/tests/data/picture_cases/cases.bin.gz");
    content_.resize(4 << 20);
    content_.resize(stream.read(std::as_writable_bytes(std::span(content_))));
    while (at_ < content_.size()) all_.push_back(next());
  }

  const std::vector<Case>& all() const { return all_; }
  const Case& named(const std::string& name) const {
    for (const Case& one : all_) {
      if (one.name == name) return one;
    }
    throw std::runtime_error("no case " + name);
  }

 private:
  std::size_t number(int bytes) {
    std::size_t value = 0;
    for (int i = 0; i < bytes; ++i) value = value << 8 | static_cast<unsigned char>(content_.at(at_++));
    return value;
  }
  std::string text(std::size_t length) {
    at_ += length;
    return content_.substr(at_ - length, length);
  }
  Case next() {
    Case one;
    one.name = text(number(2));
    one.verdict = static_cast<Verdict>(number(1));
    one.file = text(number(4));
    if (one.verdict == Verdict::kRefused || one.verdict == Verdict::kStrict) return one;
    one.wanted.width = static_cast<int>(number(2));
    one.wanted.height = static_cast<int>(number(2));
    const std::string pixels = text(static_cast<std::size_t>(3 * one.wanted.width * one.wanted.height));
    one.wanted.pixels.assign(pixels.begin(), pixels.end());
    return one;
  }

  std::string content_;
  std::size_t at_ = 0;
  std::vector<Case> all_;
};

TEST(PictureCases, HavePillowsValuesOrAreRefusedByName) {
  const Cases cases;
  const TemporaryFolder folder;
  std::map<Verdict, int> counts;
  for (const Case& one : cases.all()) {
    SCOPED_TRACE(one.name);
    ++counts[one.verdict];
    const auto path = folder.write("picture", one.file);
    try {
      const Picture picture = read_picture(path, 32);
      EXPECT_TRUE(one.verdict == Verdict::kEqual || one.verdict == Verdict::kGrey16) << "read without complaint";
      EXPECT_EQ(picture.width, one.wanted.width);
      EXPECT_EQ(picture.height, one.wanted.height);
      EXPECT_EQ(picture.pixels, one.wanted.pixels);
    } catch (const DataError& error) {
      EXPECT_TRUE(one.verdict == Verdict::kRefused || one.verdict == Verdict::kStrict) << error.what();
      EXPECT_THAT(error.what(), HasSubstr(path.string()));
    }
  }
  EXPECT_GT(counts[Verdict::kEqual], 180);
  EXPECT_GT(counts[Verdict::kRefused], 60);
  EXPECT_GT(counts[Verdict::kStrict], 30);
  EXPECT_EQ(counts[Verdict::kGrey16], 8);
}

// Pictures as a data set reads them, not only as the decoder does: 8-bit and 16-bit pictures are equally bright.
TEST(PictureCases, SixteenBitsAreAsBrightAsEight) {
  const Cases cases;
  const TemporaryFolder folder;
  for (const char* name : {"a", "b"}) std::filesystem::create_directory(folder.path() / name);
  folder.write("a/0.png", cases.named("png grey 16 ramp").file);
  folder.write("b/0.png", cases.named("png rgb 16 ramp").file);
  for (const char* name : {"a/0.png", "b/0.png"}) {
    const Picture picture = read_picture(folder.path() / name, 32);
    ASSERT_EQ(picture.width, 32);
    for (std::size_t x = 0; x < 32; ++x) EXPECT_EQ(picture.pixels[3 * x], 8 * x) << name;
  }
}

// Samsung's phones write three zeros into the header of the scan, but the pixels are complete.
TEST(PictureCases, AnOddScanHeaderLosesNothing) {
  const Cases cases;
  const Case& odd = cases.named("jpeg zeros for the spectral range");
  EXPECT_NE(odd.file, cases.named("jpeg 420").file);
  EXPECT_EQ(odd.wanted.pixels, cases.named("jpeg 420").wanted.pixels);
  EXPECT_EQ(image::decode(std::as_bytes(std::span(odd.file)), "odd").pixels, odd.wanted.pixels);
}

TEST(PictureCases, StrangersAreToldByWhatTheyAre) {
  const Cases cases;
  const TemporaryFolder folder;
  const std::map<std::string, std::string> kinds = {
      {"GIF", "a GIF picture"},        {"BMP", "a BMP picture"},    {"WEBP", "a WebP picture"},
      {"TIFF", "a TIFF picture"},      {"PPM", "a netpbm picture"}, {"ICO", "an icon"},
      {"JPEG2000", "a JPEG 2000"},     {"AVIF", "an AVIF picture"}, {"empty", "an empty file"},
      {"LFS pointer", "git lfs pull"}, {"web page", "a web page"},  {"SVG", "an SVG drawing"},
      {"of zeros", "a file of zeros"}, {"of text", "got: a text"},
  };
  for (const auto& [name, words] : kinds) {
    const auto path = folder.write("picture.jpg", cases.named("file " + name).file);
    try {
      read_picture(path, 32);
      ADD_FAILURE() << name << " was read";
    } catch (const DataError& error) {
      EXPECT_THAT(error.what(), HasSubstr(words));
      EXPECT_THAT(error.what(), HasSubstr("a JPEG or PNG file"));
    }
  }
  // A file's signature may start after its first bytes. In these texts the same letters are parts of words.
  for (const char* text : {"I said, heilo", "she was heir of all", "picture WEBP", "in here avid readers"}) {
    EXPECT_EQ(kind_of_picture(std::as_bytes(std::span(std::string_view(text)))).name, std::string("a text")) << text;
  }
  // The ending of the name does not matter.
  EXPECT_EQ(read_picture(folder.write("a.jpg", cases.named("png rgb 8").file), 32).width, 9);
  EXPECT_EQ(read_picture(folder.write("a.png", cases.named("jpeg 420").file), 32).width, 19);
}

}  // namespace
}  // namespace reigen::data::picture_cases_test
