#include "reigen/image/draft.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>

#include "image/picture_files.h"
#include "image/written_jpeg.h"
#include "reigen/base/error.h"
#include "reigen/image/decode.h"
#include "reigen/image/encode.h"
#include "reigen/image/resize.h"

namespace reigen::image::draft_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using tests::written_jpeg;

// Pixel (x, y) is red 10·x, green 10·y, blue 100.
std::shared_ptr<const Picture> places(int width, int height) {
  auto picture = std::make_shared<Picture>(Picture{.width = width, .height = height});
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (const int value : {10 * x, 10 * y, 100}) picture->pixels.push_back(static_cast<std::uint8_t>(value));
    }
  }
  return picture;
}

std::vector<int> reds(const Picture& picture) {
  std::vector<int> values;
  for (std::size_t i = 0; i < picture.pixels.size(); i += 3) values.push_back(picture.pixels[i]);
  return values;
}
std::vector<int> greens(const Picture& picture) {
  std::vector<int> values;
  for (std::size_t i = 1; i < picture.pixels.size(); i += 3) values.push_back(picture.pixels[i]);
  return values;
}

TEST(Draft, CutsMirrorsAndPadsByHand) {
  Workspace workspace;
  Draft draft(places(4, 3), "p");
  EXPECT_EQ(draft.size(), (Size{4, 3}));
  draft.crop({1, 1, 3, 2});
  EXPECT_THAT(reds(draft.picture(workspace)), ElementsAre(10, 20, 30, 10, 20, 30));
  EXPECT_THAT(greens(draft.picture(workspace)), ElementsAre(10, 10, 10, 20, 20, 20));
  draft.mirror();
  EXPECT_THAT(reds(draft.picture(workspace)), ElementsAre(30, 20, 10, 30, 20, 10));
  draft.crop({0, 0, 2, 1});  // of the mirrored picture
  EXPECT_THAT(reds(draft.picture(workspace)), ElementsAre(30, 20));
  draft.crop({-1, -1, 4, 3});  // black edges
  EXPECT_THAT(reds(draft.picture(workspace)), ElementsAre(0, 0, 0, 0, 0, 30, 20, 0, 0, 0, 0, 0));
  draft.crop({1, 1, 1, 1});
  EXPECT_THAT(reds(draft.picture(workspace)), ElementsAre(30));
}

TEST(Draft, WhatWasCutOffStaysCutOff) {
  Workspace workspace;
  Draft draft(places(5, 1), "p");
  draft.resize({10, 1});
  draft.crop({4, 0, 2, 1});
  const auto inner = reds(draft.picture(workspace));
  draft.crop({-1, 0, 4, 1});  // the neighbours are black, and not those of the resized picture
  EXPECT_THAT(reds(draft.picture(workspace)), ElementsAre(0, inner[0], inner[1], 0));
}

// ---- the same operations, each carried out at once

struct Eager {
  Picture picture;

  void crop(const Box& box) {
    Picture result{.width = box.width, .height = box.height};
    for (int y = box.top; y < box.top + box.height; ++y) {
      for (int x = box.left; x < box.left + box.width; ++x) {
        const bool inside = x >= 0 && y >= 0 && x < picture.width && y < picture.height;
        for (int c = 0; c < 3; ++c) {
          result.pixels.push_back(inside ? PixelView(picture).row(y)[3 * x + c] : std::uint8_t{0});
        }
      }
    }
    picture = std::move(result);
  }
  void mirror() {
    Picture result = picture;
    for (int y = 0; y < picture.height; ++y) {
      for (int x = 0; x < picture.width; ++x) {
        const std::uint8_t* from = PixelView(picture).row(y) + 3 * (picture.width - 1 - x);
        std::memcpy(result.pixels.data() + 3 * (y * picture.width + x), from, 3);
      }
    }
    picture = std::move(result);
  }
  void resize(Size size) { picture = image::resize(picture, size); }
};

int largest_difference(const Picture& a, const Picture& b) {
  int difference = 0;
  for (std::size_t i = 0; i < a.pixels.size(); ++i) {
    difference = std::max(difference, std::abs(int{a.pixels[i]} - int{b.pixels[i]}));
  }
  return difference;
}

// Random chains of operations on JPEG, PNG and pixels. Without mirror images before a resize all bits are equal.
TEST(Draft, EqualsTheOperationsOneAfterTheOther) {
  std::mt19937 random(11);
  const auto below = [&](int bound) { return static_cast<int>(random() % static_cast<unsigned>(bound)); };
  Workspace workspace;
  for (int run = 0; run < 400; ++run) {
    const auto bytes = written_jpeg({.width = 20 + below(90),
                                     .height = 20 + below(90),
                                     .across = 2,
                                     .down = 1 + below(2),
                                     .progressive = below(4) == 0},
                                    static_cast<std::uint32_t>(run));
    Eager eager{decode(bytes, "p")};
    const bool from_pixels = below(3) == 0;
    Draft draft = from_pixels ? Draft(std::make_shared<Picture>(eager.picture), "p") : Draft(bytes, nullptr, "p");
    const bool mirrors_first = below(2) == 0;
    int mirrors = 0;
    for (int step = 0; step < 1 + below(5); ++step) {
      const Size size = draft.size();
      switch (below(mirrors_first ? 4 : 3)) {
        case 0: {
          const int left = below(size.width + 10) - 10;
          const int top = below(size.height + 10) - 10;
          const Box box{left, top, 1 + below(size.width + 5), 1 + below(size.height + 5)};
          draft.crop(box);
          eager.crop(box);
          break;
        }
        case 1: {
          const int left = below(size.width);
          const int top = below(size.height);
          const Box box{left, top, 1 + below(size.width - left), 1 + below(size.height - top)};
          draft.crop(box);
          eager.crop(box);
          break;
        }
        case 2: {
          const Size to{1 + below(60), 1 + below(60)};
          draft.resize(to);
          eager.resize(to);
          break;
        }
        default:
          draft.mirror();
          eager.mirror();
          ++mirrors;
      }
    }
    const Picture got = draft.picture(workspace);
    ASSERT_EQ(got.size(), eager.picture.size());
    ASSERT_LE(largest_difference(got, eager.picture), mirrors == 0 ? 0 : 2) << "run " << run;
  }
}

TEST(Draft, OfAPngReadsTheWholeFile) {
  const auto pixels = places(12, 9);
  const std::string file = tests::png_of(12, 9, 3, pixels->pixels);
  Draft draft(std::as_bytes(std::span(file)), nullptr, "a.png");
  draft.crop({3, 2, 5, 6});
  draft.resize({7, 4});
  Draft other(pixels, "pixels");
  other.crop({3, 2, 5, 6});
  other.resize({7, 4});
  Workspace workspace;
  EXPECT_EQ(draft.picture(workspace).pixels, other.picture(workspace).pixels);
}

TEST(Draft, AHugePictureDoesNotKeepItsMemory) {
  Workspace workspace;
  Draft small(places(40, 30), "small");
  small.resize({20, 15});
  small.picture(workspace);
  const std::size_t usual = workspace.bytes();
  EXPECT_GT(usual, 0U);
  Draft huge(places(40, 30), "huge");
  huge.resize({4000, 3000});  // 36 MB
  huge.resize({20, 15});
  huge.picture(workspace);
  EXPECT_LT(workspace.bytes(), usual + 1'000'000);
  const std::string file = tests::png_of(4000, 3000, 3, std::vector<std::uint8_t>(36'000'000));
  Draft png(std::as_bytes(std::span(file)), nullptr, "huge.png");
  png.resize({20, 15});
  png.picture(workspace);
  EXPECT_LT(workspace.bytes(), usual + 1'000'000);
  std::string damaged = file.substr(0, file.size() / 2);
  Draft broken(std::as_bytes(std::span(damaged)), nullptr, "broken.png");
  broken.resize({20, 15});
  EXPECT_THROW(broken.picture(workspace), DataError);
  EXPECT_LT(workspace.bytes(), usual + 1'000'000);
}

// ---- types and layouts

TEST(Draft, WritesEveryTypeAndLayout) {
  Workspace workspace;
  Draft draft(places(3, 2), "p");
  draft.mirror();
  const Picture pixels = draft.picture(workspace);
  const std::array<double, 3> mean = kImageNetMean;
  const std::array<double, 3> deviation = kImageNetDeviation;
  for (const Layout layout : {Layout::kPlanes, Layout::kChannelsLast}) {
    const Output as_floats{.type = PixelType::kF32, .layout = layout, .mean = mean, .deviation = deviation};
    std::vector<float> floats(18);
    ASSERT_EQ(bytes_of(as_floats, draft.size()), 72U);
    draft.write(as_floats, floats.data(), workspace);
    std::vector<std::uint16_t> halves(18);
    draft.write({.type = PixelType::kBf16, .layout = layout, .mean = mean, .deviation = deviation}, halves.data(),
                workspace);
    std::vector<std::uint8_t> bytes(18);
    draft.write({.type = PixelType::kU8, .layout = layout}, bytes.data(), workspace);
    for (std::size_t i = 0; i < 6; ++i) {
      for (std::size_t c = 0; c < 3; ++c) {
        const std::size_t at = layout == Layout::kPlanes ? 6 * c + i : 3 * i + c;
        const std::uint8_t pixel = pixels.pixels[3 * i + c];
        const float wanted =
            (static_cast<float>(pixel) / 255.0F - static_cast<float>(mean[c])) / static_cast<float>(deviation[c]);
        EXPECT_EQ(floats[at], wanted);
        EXPECT_EQ(bytes[at], pixel);
        const float half = std::bit_cast<float>(std::uint32_t{halves[at]} << 16);
        EXPECT_LE(std::abs(half - wanted), std::abs(wanted) / 256);
      }
    }
  }
}

TEST(Draft, ErasedPixelsAreTheMean) {
  Workspace workspace;
  Draft draft(places(4, 3), "p");
  draft.erase({1, 0, 2, 2});
  const std::array<double, 3> mean = {0.5, 0.2, 0.9};
  EXPECT_THAT(reds(draft.picture(workspace, mean)), ElementsAre(0, 128, 128, 30, 0, 128, 128, 30, 0, 10, 20, 30));
  EXPECT_THAT(greens(draft.picture(workspace, mean)), ElementsAre(0, 51, 51, 0, 10, 51, 51, 10, 20, 20, 20, 20));
  std::vector<float> planes(36);
  draft.write({.mean = mean, .deviation = {0.1, 0.1, 0.1}}, planes.data(), workspace);
  EXPECT_EQ(planes[1], 0);
  EXPECT_EQ(planes[12 + 5], 0);
  EXPECT_NEAR(planes[0], -5, 1e-6);
  EXPECT_THAT([&] { draft.crop({0, 0, 1, 1}); }, ThrowsMessage<InvalidArgument>(HasSubstr("put the erasing last")));
  EXPECT_THAT([&] { draft.erase({3, 0, 2, 1}); }, ThrowsMessage<InvalidArgument>(HasSubstr("4 x 3 pixels of 'p'")));
}

TEST(Draft, ColoursChangeWhatIsThereAtThatTime) {
  Workspace workspace;
  Colours half{.count = 1};
  half.changes[0] = {Adjustment::kBrightness, 0.5};
  Draft draft(places(4, 1), "p");
  draft.change(half);
  EXPECT_THAT(reds(draft.picture(workspace)), ElementsAre(0, 5, 10, 15));
  draft.change(half);
  draft.crop({-1, 0, 3, 1});
  draft.mirror();
  EXPECT_THAT(reds(draft.picture(workspace)), ElementsAre(2, 0, 0));
  // Contrast 0 gives the mean grey of the cut-out part alone: red 25, green 0 and blue 100 are grey 19.
  Colours flat{.count = 1};
  flat.changes[0] = {Adjustment::kContrast, 0};
  Draft other(places(4, 1), "p");
  other.crop({2, 0, 2, 1});
  other.change(flat);
  EXPECT_THAT(other.picture(workspace).pixels, ::testing::Each(19));
  EXPECT_THAT(
      [&] {
        other.change({.changes = {{{Adjustment::kHue, 0.7}}}, .count = 1});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("0.7")));
}

// ---- fast decoding

TEST(Draft, FastDecodingIsNearTheExactOne) {
  // A picture without fine details, of which only the decoding differs.
  Picture smooth{.width = 640, .height = 480};
  for (int y = 0; y < 480; ++y) {
    for (int x = 0; x < 640; ++x) {
      const double wave = 100 * std::sin(x / 40.0) * std::cos(y / 50.0);
      for (const double value : {128 + wave, 128 - wave, 60 + x / 8.0}) {
        smooth.pixels.push_back(static_cast<std::uint8_t>(value));
      }
    }
  }
  const auto bytes = encode_jpeg(smooth, 95);
  Workspace workspace;
  for (const Box& box : {Box{0, 0, 640, 480}, {37, 21, 555, 401}, {101, 99, 300, 300}, {3, 5, 71, 80}}) {
    const auto result = [&](bool fast) {
      Draft draft(bytes, nullptr, "p", {.fast = fast});
      draft.crop(box);
      draft.resize({64, 64});
      return draft.picture(workspace);
    };
    EXPECT_LE(largest_difference(result(true), result(false)), 4) << box.width;
  }
}

// ---- errors

TEST(Draft, NamesTheSampleThatIsDamaged) {
  const auto bytes = written_jpeg({.width = 64, .height = 64});
  const std::span<const std::byte> all = bytes;
  Draft cut(all.first(bytes.size() / 2), nullptr, "train.lmdb, sample 17");
  Workspace workspace;
  EXPECT_THAT([&] { cut.picture(workspace); }, ThrowsMessage<DataError>(HasSubstr("'train.lmdb, sample 17'")));
  cut.crop({0, 0, 64, 8});  // what is read is there
  EXPECT_EQ(cut.picture(workspace).pixels, decode(bytes, "whole", {.region = {0, 0, 64, 8}}).pixels);
  EXPECT_THAT([&] { const Draft draft(all.first(10), nullptr, "sample 3"); },
              ThrowsMessage<DataError>(HasSubstr("'sample 3'")));
}

TEST(Draft, RefusesWhatMakesNoSense) {
  Workspace workspace;
  Draft draft(places(4, 3), "p");
  EXPECT_THAT([&] { draft.crop({0, 0, 0, 3}); }, ThrowsMessage<InvalidArgument>(HasSubstr("got 0 x 3 for 'p'")));
  EXPECT_THAT([&] { draft.resize({1 << 20, 3}); }, ThrowsMessage<InvalidArgument>(HasSubstr("1048576")));
  std::vector<float> planes(36);
  EXPECT_THAT(
      [&] {
        draft.write({.deviation = {1, 0, 1}}, planes.data(), workspace);
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("got 0 and 0")));
  EXPECT_THAT([&] { draft.write({}, nullptr, workspace); }, ThrowsMessage<InvalidArgument>(HasSubstr("144 bytes")));
  EXPECT_THAT([] { const Draft empty(std::make_shared<Picture>(Picture{.width = 2, .height = 2}), "q"); },
              ThrowsMessage<DataError>(HasSubstr("0 bytes for 2 x 2 pixels")));
}

// ---- coding

TEST(EncodeJpeg, GivesTheSamePicturesAndBytes) {
  const Picture picture = decode(written_jpeg({.width = 50, .height = 40}), "p");
  const auto bytes = encode_jpeg(picture, 95);
  EXPECT_EQ(bytes, encode_jpeg(picture, 95));
  const Picture again = decode(bytes, "again");
  EXPECT_EQ(again.size(), picture.size());
  EXPECT_LT(encode_jpeg(picture, 30).size(), bytes.size());
  EXPECT_THAT([&] { encode_jpeg(picture, 0); }, ThrowsMessage<InvalidArgument>(HasSubstr("1..100, got 0")));
  EXPECT_THAT([] { encode_jpeg({.width = 2, .height = 2}, 90); },
              ThrowsMessage<InvalidArgument>(HasSubstr("12 bytes")));
}

}  // namespace
}  // namespace reigen::image::draft_test
