#include "reigen/image/resize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>

#include "image/kernels.h"
#include "reigen/base/error.h"

namespace reigen::image::resize_test {
namespace {

using ::testing::HasSubstr;

Picture noise(Size size, unsigned seed) {
  std::mt19937 random(seed);
  Picture picture{.width = size.width, .height = size.height};
  picture.pixels.resize(static_cast<std::size_t>(3 * size.width * size.height));
  // Runs of black and white reach the ends of the range of sums.
  for (auto& value : picture.pixels) {
    const auto draw = static_cast<std::uint32_t>(random());
    value = static_cast<std::uint8_t>(draw % 3 == 0 ? 255 : draw % 3 == 1 ? 0 : draw >> 24);
  }
  return picture;
}

const std::pair<Size, Size> kSizes[] = {
    {{500, 375}, {224, 224}}, {{97, 61}, {224, 224}}, {{224, 224}, {32, 32}}, {{31, 7}, {31, 30}},  {{5, 5}, {1, 1}},
    {{1, 1}, {9, 9}},         {{640, 3}, {11, 3}},    {{3, 640}, {3, 11}},    {{33, 40}, {29, 41}}, {{1200, 5}, {7, 2}},
};

TEST(Resize, EveryInstructionSetGivesTheSameBits) {
  const Kernels* const other = kernels_for_test("avx2");
  if (other == nullptr) GTEST_SKIP() << "this processor has only the portable kernels";
  const Kernels& plain = *kernels_for_test("portable");
  for (const auto& [from, to] : kSizes) {
    const Picture picture = noise(from, 3);
    Taps across;
    Taps down;
    fill(across, {from.width, 0, static_cast<double>(from.width), to.width, 0, to.width});
    fill(down, {from.height, 0, static_cast<double>(from.height), to.height, 0, to.height});
    const auto row = static_cast<std::size_t>(3 * to.width);
    const std::size_t stride = row + kRowPadding;
    std::vector<std::uint8_t> middle[2];
    std::vector<std::uint8_t> result[2];
    for (int i = 0; i < 2; ++i) {
      const Kernels& used = i == 0 ? plain : *other;
      middle[i].resize(stride * static_cast<std::size_t>(from.height));
      // A heap block of its own, so that AddressSanitizer sees any access beyond the pixels.
      used.across(across, {.rows = picture, .readable = static_cast<std::size_t>(3 * from.width)}, middle[i].data(),
                  stride);
      for (int y = 0; y < from.height; ++y) {  // what lies between rows has no meaning
        std::fill_n(middle[i].begin() + static_cast<std::ptrdiff_t>(stride * static_cast<std::size_t>(y) + row),
                    kRowPadding, std::uint8_t{0});
      }
      result[i].resize(row * static_cast<std::size_t>(to.height));
      for (int y = 0; y < to.height; ++y) {
        const auto at = static_cast<std::size_t>(y);
        used.down({.weights = down.weights_of(y),
                   .count = down.count[at],
                   .from = middle[0].data() + stride * static_cast<std::size_t>(down.first[at]),
                   .stride = stride},
                  result[i].data() + row * at, row);
      }
    }
    EXPECT_EQ(middle[0], middle[1]) << from.width << " to " << to.width;
    EXPECT_EQ(result[0], result[1]) << from.height << " to " << to.height;
  }
}

TEST(Resize, APartEqualsThePartOfTheWhole) {
  std::mt19937 random(5);
  for (const auto& [from, to] : kSizes) {
    const Picture picture = noise(from, 4);
    const Picture whole = resize(picture, to);
    for (int i = 0; i < 10; ++i) {
      Box part;
      part.left = static_cast<int>(random() % static_cast<unsigned>(to.width));
      part.top = static_cast<int>(random() % static_cast<unsigned>(to.height));
      part.width = 1 + static_cast<int>(random() % static_cast<unsigned>(to.width - part.left));
      part.height = 1 + static_cast<int>(random() % static_cast<unsigned>(to.height - part.top));
      const Picture got = resize(picture, to, {.part = part});
      ASSERT_EQ(got.size(), part.size());
      for (int y = 0; y < part.height; ++y) {
        const std::uint8_t* wanted = PixelView(whole).row(part.top + y) + 3 * part.left;
        ASSERT_TRUE(std::equal(wanted, wanted + 3 * part.width, PixelView(got).row(y))) << "row " << y;
      }
    }
  }
}

TEST(Resize, RowsOfAViewMayLieApart) {
  const Picture picture = noise({40, 30}, 6);
  const PixelView inner(PixelView(picture).row(4) + 3 * 7, {20, 15}, static_cast<std::size_t>(3 * 40));
  Picture copy{.width = 20, .height = 15};
  for (int y = 0; y < 15; ++y) copy.pixels.insert(copy.pixels.end(), inner.row(y), inner.row(y) + 60);
  EXPECT_EQ(resize(inner, {13, 11}).pixels, resize(copy, {13, 11}).pixels);
}

TEST(Resize, OneColourStays) {
  for (const int value : {0, 1, 127, 254, 255}) {
    Picture flat{.width = 37, .height = 23};
    flat.pixels.assign(37 * 23 * 3, static_cast<std::uint8_t>(value));
    for (const Size to : {Size{5, 4}, {36, 24}, {101, 57}}) {
      EXPECT_THAT(resize(flat, to).pixels, ::testing::Each(value)) << to.width;
    }
  }
}

TEST(Resize, TheShorterSideIsAsInTorchvision) {
  EXPECT_EQ(with_shorter_side({500, 375}, 256), (Size{341, 256}));  // 341.33
  EXPECT_EQ(with_shorter_side({375, 500}, 256), (Size{256, 341}));
  EXPECT_EQ(with_shorter_side({300, 300}, 256), (Size{256, 256}));
  EXPECT_EQ(with_shorter_side({3, 1000}, 2), (Size{2, 666}));
}

TEST(Resize, RefusesWhatMakesNoSense) {
  const Picture picture = noise({8, 6}, 1);
  EXPECT_THAT([&] { resize(picture, {0, 4}); }, ::testing::ThrowsMessage<InvalidArgument>(HasSubstr("got 0")));
  EXPECT_THAT([&] { resize(picture, {4, 70'000}); }, ::testing::ThrowsMessage<InvalidArgument>(HasSubstr("70000")));
  EXPECT_THAT(
      [&] {
        resize(picture, {4, 4}, {.area = {0, 0, 8.5, 6}});
      },
      ::testing::ThrowsMessage<InvalidArgument>(HasSubstr("8 x 6 pixels of the picture, got (0, 0) to (8.5, 6)")));
  EXPECT_THAT(
      [&] {
        resize(picture, {4, 4}, {.part = {2, 0, 3, 4}});
      },
      ::testing::ThrowsMessage<InvalidArgument>(HasSubstr("got 3 x 4 from (2, 0)")));
}

}  // namespace
}  // namespace reigen::image::resize_test
