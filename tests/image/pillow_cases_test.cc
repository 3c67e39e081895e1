// Compares resized and recoloured pictures with Pillow's pixels. tests/image/pillow_cases/make.py wrote them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <memory>
#include <string>

#include "format/byte_stream.h"
#include "harness/folders.h"
#include "reigen/image/draft.h"
#include "reigen/image/resize.h"

namespace reigen::image::pillow_cases_test {
namespace {

enum class Kind { kResize, kBrightness, kContrast, kSaturation, kHue };

struct Case {
  Kind kind = Kind::kResize;
  Size size;
  std::uint32_t seed = 0;
  std::array<double, 4> numbers{};
  Picture wanted;
};

class Cases {
 public:
  Cases() : content_(std::size_t{2} << 20, '\0') {
    format::ByteStream stream(std::string(kSourceFolder) + "/tests/image/pillow_cases/cases.bin.gz");
    content_.resize(stream.read(std::as_writable_bytes(std::span(content_))));
  }
  bool more() const { return at_ < content_.size(); }
  Case next() {
    Case one;
    one.kind = static_cast<Kind>(number(1));
    one.size.width = static_cast<int>(number(2));
    one.size.height = static_cast<int>(number(2));
    one.seed = static_cast<std::uint32_t>(number(2));
    for (double& value : one.numbers) value = std::bit_cast<double>(number(8));
    one.wanted.width = static_cast<int>(number(2));
    one.wanted.height = static_cast<int>(number(2));
    const auto bytes = static_cast<std::size_t>(3 * one.wanted.width * one.wanted.height);
    const std::string pixels = content_.substr(at_, bytes);
    at_ += bytes;
    one.wanted.pixels.assign(pixels.begin(), pixels.end());
    return one;
  }

 private:
  std::uint64_t number(int bytes) {
    std::uint64_t value = 0;
    for (int i = 0; i < bytes; ++i) value = value << 8 | static_cast<unsigned char>(content_.at(at_++));
    return value;
  }
  std::string content_;
  std::size_t at_ = 0;
};

// The formula of make.py.
Picture source(Size size, std::uint32_t seed) {
  Picture picture{.width = size.width, .height = size.height};
  std::uint32_t state = seed;
  for (std::uint32_t i = 0; i < static_cast<std::uint32_t>(3 * size.width * size.height); ++i) {
    state = state * 1664525U + 1013904223U;
    picture.pixels.push_back(static_cast<std::uint8_t>(seed < 10 ? state >> 24 : 255 * (i / seed % 2)));
  }
  return picture;
}

Picture result_of(const Case& one) {
  const Picture from = source(one.size, one.seed);
  const auto& n = one.numbers;
  if (one.kind == Kind::kResize) return resize(from, one.wanted.size(), {.area = {n[0], n[1], n[2], n[3]}});
  constexpr Adjustment kWhat[] = {Adjustment::kBrightness, Adjustment::kContrast, Adjustment::kSaturation,
                                  Adjustment::kHue};
  Draft draft(std::make_shared<Picture>(from), "source");
  Colours colours{.count = 1};
  colours.changes[0] = {kWhat[static_cast<int>(one.kind) - 1], n[0]};
  draft.change(colours);
  Workspace workspace;
  return draft.picture(workspace);
}

TEST(PillowCases, HavePillowsPixels) {
  std::array<int, 5> counts{};
  for (Cases cases; cases.more();) {
    const Case one = cases.next();
    ++counts[static_cast<std::size_t>(one.kind)];
    const Picture got = result_of(one);
    ASSERT_EQ(got.size(), one.wanted.size());
    ASSERT_EQ(got.pixels, one.wanted.pixels)
        << "kind " << static_cast<int>(one.kind) << ", " << one.size.width << " x " << one.size.height << ", seed "
        << one.seed << ", numbers " << ::testing::PrintToString(one.numbers);
  }
  EXPECT_THAT(counts, ::testing::ElementsAre(78, 18, 18, 18, 21));
}

}  // namespace
}  // namespace reigen::image::pillow_cases_test
