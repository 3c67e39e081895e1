// Decoding a region gives the same bits as cutting it out of the wholly decoded picture.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "image/written_jpeg.h"
#include "reigen/base/error.h"
#include "reigen/image/decode.h"

namespace reigen::image::region_test {
namespace {

using tests::JpegKind;
using tests::written_jpeg;

std::vector<std::uint8_t> cut(const Picture& picture, const Box& box) {
  std::vector<std::uint8_t> result;
  for (int y = box.top; y < box.top + box.height; ++y) {
    const std::uint8_t* row = PixelView(picture).row(y) + 3 * box.left;
    result.insert(result.end(), row, row + 3 * box.width);
  }
  return result;
}

// Boxes at all corners and edges, single pixels, and boxes at random places.
std::vector<Box> boxes_of(Size size, int count) {
  const int w = size.width;
  const int h = size.height;
  std::vector<Box> boxes = {{0, 0, w, h}, {0, 0, 1, 1}, {w - 1, h - 1, 1, 1}, {0, h - 1, w, 1}, {w - 1, 0, 1, h}};
  for (const int edge : {1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33}) {
    if (edge >= w || edge >= h) continue;
    boxes.push_back({edge, edge, w - edge, h - edge});
    boxes.push_back({0, 0, w - edge, h - edge});
    boxes.push_back({edge, edge, 1, 1});
    boxes.push_back({w - edge, h - edge, edge, edge});
  }
  std::mt19937 random(7);
  for (int i = 0; i < count; ++i) {
    const int left = static_cast<int>(random() % static_cast<unsigned>(w));
    const int top = static_cast<int>(random() % static_cast<unsigned>(h));
    boxes.push_back({left, top, 1 + static_cast<int>(random() % static_cast<unsigned>(w - left)),
                     1 + static_cast<int>(random() % static_cast<unsigned>(h - top))});
  }
  return boxes;
}

void expect_regions_equal(const std::vector<std::byte>& bytes, int count) {
  const Picture whole = decode(bytes, "whole");
  for (const Box& box : boxes_of(whole.size(), count)) {
    const Picture part = decode(bytes, "part", {.region = box});
    ASSERT_EQ(part.size(), box.size());
    ASSERT_EQ(part.pixels, cut(whole, box)) << "box (" << box.left << ", " << box.top << ") " << box.width << " x "
                                            << box.height << " of " << whole.width << " x " << whole.height;
  }
}

std::vector<JpegKind> kinds() {
  std::vector<JpegKind> kinds;
  for (const auto& [across, down] : {std::pair{1, 1}, {2, 1}, {1, 2}, {2, 2}, {4, 1}, {1, 4}, {4, 2}, {3, 1}}) {
    for (const int components : {3, 4}) {
      if (across * down + components - 1 > 10) continue;  // more blocks than JPEG allows together
      for (const int form : {0, 1, 2, 3}) {
        kinds.push_back({.components = components,
                         .across = across,
                         .down = down,
                         .progressive = form == 1,
                         .in_scans = form == 2,
                         .restart_every = form == 3 ? 3 : 0});
      }
    }
  }
  kinds.push_back({.components = 1});
  kinds.push_back({.components = 1, .progressive = true});
  kinds.push_back({.components = 1, .restart_every = 2});
  return kinds;
}

TEST(Region, OfAJpegEqualsThePartOfTheWhole) {
  for (JpegKind kind : kinds()) {
    for (const Size size : {Size{128, 96}, {117, 83}, {50, 131}, {16, 16}, {5, 3}}) {
      kind.width = size.width;
      kind.height = size.height;
      SCOPED_TRACE(::testing::Message() << size.width << " x " << size.height << ", " << kind.components
                                        << " components, " << kind.across << " x " << kind.down << ", progressive "
                                        << kind.progressive << ", scans " << kind.in_scans << ", restart "
                                        << kind.restart_every);
      expect_regions_equal(written_jpeg(kind), 30);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace reigen::image::region_test
