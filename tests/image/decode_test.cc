#include "reigen/image/decode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <zlib.h>

#include <array>

#include "image/picture_files.h"
#include "image/written_jpeg.h"
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

// Every cut of a file is refused, or has lost nothing but bytes behind the last pixel.
TEST(Decode, EveryCutIsRefusedOrLosesNothing) {
  const tests::JpegKind kinds[] = {
      {.across = 2, .down = 2}, {.progressive = true}, {.in_scans = true}, {.across = 2, .restart_every = 2}};
  for (tests::JpegKind kind : kinds) {
    kind.width = 33;
    kind.height = 59;
    const std::vector<std::byte> bytes = tests::written_jpeg(kind);
    const std::span<const std::byte> all = bytes;
    const Picture whole = decode(bytes, "whole");
    const Box region{5, 17, 20, 4};
    const Picture part = decode(bytes, "part", {.region = region});
    std::size_t shortest = bytes.size();
    std::size_t shortest_of_part = bytes.size();
    for (std::size_t length = bytes.size(); length-- > 0;) {
      // A block of its own size, so that AddressSanitizer sees any access beyond it.
      const std::vector<std::byte> cut(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(length));
      try {
        ASSERT_EQ(decode(cut, "cut").pixels, whole.pixels) << length << " of " << bytes.size();
        shortest = length;
      } catch (const DataError& error) {
        EXPECT_THAT(error.what(), HasSubstr("picture 'cut'"));
      }
      try {
        ASSERT_EQ(decode(cut, "cut", {.region = region}).pixels, part.pixels) << length << " of " << bytes.size();
        shortest_of_part = length;
      } catch (const DataError& error) {
        EXPECT_THAT(error.what(), HasSubstr("picture 'cut'"));
      }
    }
    EXPECT_GE(shortest + 4, bytes.size());  // an end marker of two bytes, and bits that only fill the last byte
    // Nothing below the region is read, unless each scan holds all rows.
    const bool reads_all = kind.progressive || kind.in_scans;
    EXPECT_EQ(shortest_of_part < shortest - bytes.size() / 10, !reads_all);
  }
}

TEST(Decode, DamageInTheRegionIsRefused) {
  const std::vector<std::byte> bytes = tests::written_jpeg({.width = 64, .height = 64, .restart_every = 8});
  std::vector<std::byte> damaged = bytes;
  // A restart marker that comes in place of another one: the decoder has lost its place.
  int markers = 0;
  for (std::size_t i = 0; i + 1 < damaged.size(); ++i) {
    const bool restart = damaged[i] == std::byte{0xFF} && (damaged[i + 1] & std::byte{0xF8}) == std::byte{0xD0};
    if (restart && ++markers == 4) damaged[i + 1] = std::byte{0xD1};
  }
  ASSERT_EQ(markers, 7);
  EXPECT_THROW(decode(damaged, "d"), DataError);
  EXPECT_THROW(decode(damaged, "d", {.region = {8, 40, 16, 8}}), DataError);
  // The damage lies below the region.
  const Box above{8, 3, 16, 16};
  EXPECT_EQ(decode(damaged, "d", {.region = above}).pixels, decode(bytes, "d", {.region = above}).pixels);
}

TEST(Decode, TheSizeIsThatOfTheHeader) {
  const auto jpeg = tests::written_jpeg({.width = 33, .height = 27});
  EXPECT_EQ(size_of(jpeg, "a"), (Size{33, 27}));
  EXPECT_EQ(size_of(bytes_of(png_of(5, 4, 1, flat(5, 4, {9}))), "a"), (Size{5, 4}));
  EXPECT_THAT([] { size_of(bytes_of("GIF89a"), "x.gif"); },
              ::testing::ThrowsMessage<DataError>(::testing::AllOf(HasSubstr("'x.gif'"), HasSubstr("a GIF picture"))));
}

// The header states a huge size; nothing of this size is allocated.
TEST(Decode, HugeSizesAreRefused) {
  std::vector<std::byte> jpeg = tests::written_jpeg({.width = 33, .height = 27});
  for (std::size_t i = 0; i + 9 < jpeg.size(); ++i) {
    if (jpeg[i] != std::byte{0xFF} || jpeg[i + 1] != std::byte{0xC0}) continue;
    for (std::size_t k = 5; k < 9; ++k) jpeg[i + k] = std::byte{0x7F};  // height and width
    break;
  }
  EXPECT_THAT([&] { size_of(jpeg, "a"); }, ::testing::ThrowsMessage<DataError>(HasSubstr("32639 x 32639 pixels")));
  EXPECT_THAT([&] { decode(jpeg, "a"); }, ::testing::ThrowsMessage<DataError>(HasSubstr("at most 100 million pixels")));
  std::string png = png_of(3, 3, 1, flat(3, 3, {9}));
  png.replace(16, 8, std::string("\0\1\0\0\0\1\0\0", 8));  // width and height 65,536
  const auto sum = ::crc32(0, reinterpret_cast<const Bytef*>(png.data() + 12), 17);
  for (std::size_t i = 0; i < 4; ++i) png[29 + i] = static_cast<char>(sum >> (24 - 8 * i));
  EXPECT_THAT([&] { decode(bytes_of(png), "a"); },
              ::testing::ThrowsMessage<DataError>(HasSubstr("65536 x 65536 pixels")));
}

TEST(Decode, ARegionBesideThePictureIsRefused) {
  const auto jpeg = tests::written_jpeg({.width = 33, .height = 27});
  for (const Box& box : {Box{0, 0, 34, 27}, {1, 1, 33, 2}, {-1, 0, 4, 4}, {0, 20, 4, 8}, {0, 0, 0, 4}}) {
    EXPECT_THAT([&] { decode(jpeg, "a", {.region = box}); },
                ::testing::ThrowsMessage<InvalidArgument>(HasSubstr("within its 33 x 27 pixels")));
  }
}

}  // namespace
}  // namespace reigen::image::decode_test
