#include "reigen/image/decode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "image/picture_files.h"
#include "reigen/base/error.h"

namespace reigen::image::decode_test {
namespace {

using ::testing::HasSubstr;
using tests::flat;
using tests::jpeg_in_scans;
using tests::jpeg_of;
using tests::png_of;

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

// Every pixel of the decoded picture has this colour, within the tolerance.
void expect_colour(const Picture& picture, std::array<int, 3> colour, int tolerance) {
  ASSERT_EQ(picture.pixels.size(), static_cast<std::size_t>(3 * picture.width * picture.height));
  for (std::size_t i = 0; i < picture.pixels.size(); ++i) {
    ASSERT_NEAR(picture.pixels[i], colour[i % 3], tolerance) << i;
  }
}

TEST(Decode, PngOfEveryKindBecomesRedGreenBlue) {
  std::vector<std::uint8_t> pixels;
  for (int i = 0; i < 5 * 4 * 3; ++i) pixels.push_back(static_cast<std::uint8_t>(37 * i));
  const Picture picture = decode(bytes_of(png_of(5, 4, 3, pixels)), "a");
  EXPECT_EQ(picture.width, 5);
  EXPECT_EQ(picture.height, 4);
  EXPECT_EQ(picture.pixels, pixels);
  expect_colour(decode(bytes_of(png_of(3, 3, 1, flat(3, 3, {77}))), "grey"), {77, 77, 77}, 0);
  expect_colour(decode(bytes_of(png_of(3, 3, 4, flat(3, 3, {200, 100, 50, 0}))), "clear"), {200, 100, 50}, 0);
  expect_colour(decode(bytes_of(png_of(3, 3, 4, flat(3, 3, {200, 100, 50, 255}))), "full"), {200, 100, 50}, 0);
}

TEST(Decode, JpegOfEveryKindBecomesRedGreenBlue) {
  expect_colour(decode(bytes_of(jpeg_of(20, 9, 3, flat(20, 9, {200, 100, 50}))), "a"), {200, 100, 50}, 3);
  expect_colour(decode(bytes_of(jpeg_of(20, 9, 1, flat(20, 9, {77}))), "grey"), {77, 77, 77}, 1);
  // Adobe's CMYK is inverted: 255 means no ink.
  expect_colour(decode(bytes_of(jpeg_of(16, 16, 4, flat(16, 16, {255, 128, 0, 255}))), "cmyk"), {255, 128, 0}, 3);
  expect_colour(decode(bytes_of(jpeg_of(16, 16, 4, flat(16, 16, {255, 255, 255, 64}))), "black"), {64, 64, 64}, 3);
}

TEST(Decode, ALargeJpegComesSmallerButNeverTooSmall) {
  const std::string file = jpeg_of(400, 260, 3, flat(400, 260, {10, 20, 30}));
  EXPECT_EQ(decode(bytes_of(file), "a", {.scale_to = {32, 32}}).height,
            33);  // the JPEG is decoded at an eighth of its size
  EXPECT_EQ(decode(bytes_of(file), "a", {.scale_to = {33, 33}}).height, 65);
  EXPECT_EQ(decode(bytes_of(file), "a", {.scale_to = {300, 300}}).height, 260);
}

// A repeated scan is no damage, but each scan costs a pass over all blocks.
TEST(Decode, AJpegOfScansWithoutEndIsRefused) {
  const std::string whole = jpeg_in_scans(16, 16, flat(16, 16, {200, 100, 50}));
  const std::size_t first = whole.find("\xff\xda");
  const std::size_t second = whole.find("\xff\xda", first + 2);
  ASSERT_NE(second, std::string::npos);
  const auto repeated = [&](int times) {
    std::string file = whole.substr(0, first);
    for (int i = 0; i < times; ++i) file += whole.substr(first, second - first);
    return file + whole.substr(second);
  };
  expect_colour(decode(bytes_of(repeated(400)), "many"), {200, 100, 50}, 3);
  EXPECT_THAT([&] { decode(bytes_of(repeated(600)), "endless"); },
              ::testing::ThrowsMessage<DataError>(HasSubstr("more than 500 scans")));
}

TEST(Decode, DamagedBytesNeverCrash) {
  std::vector<std::uint8_t> pixels;
  for (int i = 0; i < 32 * 32 * 3; ++i) pixels.push_back(static_cast<std::uint8_t>(i * i % 251));
  for (const bool jpeg : {true, false}) {
    const std::string whole = jpeg ? jpeg_of(32, 32, 3, pixels) : png_of(32, 32, 3, pixels);
    for (std::size_t i = 0; i < 300; ++i) {
      std::string damaged = whole;
      const std::size_t at = i * 7919 % damaged.size();
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << i % 8));
      try {
        const Picture picture = decode(bytes_of(damaged), "d");
        EXPECT_EQ(picture.pixels.size(), static_cast<std::size_t>(3 * picture.width * picture.height));
      } catch (const DataError& error) {
        EXPECT_THAT(error.what(), HasSubstr("picture 'd'"));
      }
    }
  }
}

}  // namespace
}  // namespace reigen::image::decode_test
