#include "reigen/image/operations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "reigen/base/error.h"

namespace reigen::image::operations_test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

Random numbers(std::int64_t sample = 0) { return Random({.seed = 5, .epoch = 1, .sample = sample, .place = 2}); }

Draft flat(int width, int height, std::uint8_t value = 200) {
  auto picture = std::make_shared<Picture>(Picture{.width = width, .height = height});
  picture->pixels.assign(static_cast<std::size_t>(3 * width * height), value);
  return {std::move(picture), "flat"};
}

// ---- distributions

// The largest distance between the distributions of two samples (Kolmogorov and Smirnov).
double distance(std::vector<double> a, std::vector<double> b) {
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  double most = 0;
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < a.size() && j < b.size()) {
    const double at = std::min(a[i], b[j]);
    while (i < a.size() && a[i] == at) ++i;
    while (j < b.size() && b[j] == at) ++j;
    most = std::max(most, std::abs(static_cast<double>(i) / static_cast<double>(a.size()) -
                                   static_cast<double>(j) / static_cast<double>(b.size())));
  }
  return most;
}

// torchvision.transforms.RandomResizedCrop.get_params, with the generator of the standard library.
Box torchvision_box(Size size, std::mt19937_64& random) {
  const auto uniform = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  const auto randint = [&](int end) { return std::uniform_int_distribution<int>(0, end - 1)(random); };
  const double area = static_cast<double>(size.height) * size.width;
  for (int i = 0; i < 10; ++i) {
    const double target = area * uniform(0.08, 1.0);
    const double ratio = std::exp(uniform(std::log(3.0 / 4.0), std::log(4.0 / 3.0)));
    const int w = static_cast<int>(std::nearbyint(std::sqrt(target * ratio)));
    const int h = static_cast<int>(std::nearbyint(std::sqrt(target / ratio)));
    if (0 < w && w <= size.width && 0 < h && h <= size.height) {
      const int top = randint(size.height - h + 1);
      const int left = randint(size.width - w + 1);
      return {left, top, w, h};
    }
  }
  const double own = static_cast<double>(size.width) / size.height;
  int w = size.width;
  int h = size.height;
  if (own < 3.0 / 4.0) h = static_cast<int>(std::nearbyint(w / (3.0 / 4.0)));
  if (own > 4.0 / 3.0) w = static_cast<int>(std::nearbyint(h * (4.0 / 3.0)));
  return {(size.width - w) / 2, (size.height - h) / 2, w, h};
}

// With 100,000 boxes on each side, distances above 0.0087 have a probability below one in a thousand. The numbers are
// the same in every run.
TEST(RandomResizedCrop, DrawsTheBoxesOfTorchvision) {
  constexpr int kCount = 100'000;
  const auto crop = random_resized_crop(224);
  constexpr const char* kNames[] = {"left", "top", "width", "height", "right edge", "area", "ratio"};
  for (const Size size : {Size{500, 375}, {900, 200}}) {
    std::mt19937_64 other(17);
    std::array<std::array<std::vector<double>, 2>, std::size(kNames)> values;
    for (int i = 0; i < kCount; ++i) {
      Random random = numbers(i);
      const Box boxes[] = {crop.box(size, random), torchvision_box(size, other)};
      for (std::size_t k = 0; k < 2; ++k) {
        const Box& box = boxes[k];
        ASSERT_TRUE(box.left >= 0 && box.top >= 0 && box.left + box.width <= size.width &&
                    box.top + box.height <= size.height && box.width > 0 && box.height > 0);
        const double of_box[] = {1.0 * box.left,
                                 1.0 * box.top,
                                 1.0 * box.width,
                                 1.0 * box.height,
                                 1.0 * box.left + box.width,
                                 1.0 * box.width * box.height,
                                 1.0 * box.width / box.height};
        for (std::size_t v = 0; v < std::size(kNames); ++v) values[v][k].push_back(of_box[v]);
      }
    }
    for (std::size_t v = 0; v < std::size(kNames); ++v) {
      EXPECT_LT(distance(values[v][0], values[v][1]), 0.0087)
          << kNames[v] << " of " << size.width << " x " << size.height;
    }
  }
}

TEST(RandomResizedCrop, TakesTheMiddleIfNoBoxFits) {
  const auto crop = random_resized_crop(8);
  Random random = numbers();
  EXPECT_EQ(crop.box({1000, 10}, random), (Box{493, 0, 13, 10}));  // 10 · 4 / 3 = 13.3
  EXPECT_EQ(crop.box({10, 1000}, random), (Box{0, 493, 10, 13}));
  const auto whole = random_resized_crop(8, {.scale = {5, 6}});
  EXPECT_EQ(whole.box({11, 10}, random), (Box{0, 0, 11, 10}));
}

TEST(RandomResizedCrop, GivesTheSizeAndDependsOnTheRandomNumbersAlone) {
  Draft one = flat(60, 50);
  Draft two = flat(60, 50);
  const auto crop = random_resized_crop(24);
  Random a = numbers(3);
  Random b = numbers(3);
  crop(one, a);
  crop(two, b);
  EXPECT_EQ(one.size(), (Size{24, 24}));
  EXPECT_EQ(a.next(), b.next());
  EXPECT_EQ(crop.box({60, 50}, a), crop.box({60, 50}, b));
  Random c = numbers(4);
  EXPECT_NE(crop.box({600, 500}, a), crop.box({600, 500}, c));
}

// ---- places

TEST(CenterCrop, RoundsAsTorchvisionDoes) {
  const auto left = [](int width, int height, int size) {
    auto picture = std::make_shared<Picture>(Picture{.width = width, .height = height});
    for (int i = 0; i < width * height; ++i)
      picture->pixels.insert(picture->pixels.end(), 3, static_cast<std::uint8_t>(i % width + 1));
    Draft draft(picture, "p");
    Random random = numbers();
    center_crop(size)(draft, random);
    Workspace workspace;
    return int{
        draft.picture(workspace).pixels[3 * static_cast<std::size_t>(size) * static_cast<std::size_t>(size / 2)]};
  };
  EXPECT_EQ(left(9, 4, 4), 3);   // begins at 2.5, rounded to the even 2
  EXPECT_EQ(left(11, 4, 4), 5);  // 3.5 becomes 4
  EXPECT_EQ(left(10, 4, 4), 4);
  EXPECT_EQ(left(5, 8, 8), 0);  // one black column before and two after
}

TEST(ResizeShorter, RefusesAPictureThatWouldBecomeTooLongAsDamagedData) {
  const Picture line{.width = 300, .height = 1, .pixels = std::vector<std::uint8_t>(900)};
  Draft draft(std::make_shared<const Picture>(line), "the line");
  Random random({});
  EXPECT_THROW(resize_shorter(256)(draft, random), DataError);
}

TEST(ResizeShorter, KeepsTheRatio) {
  Draft draft = flat(50, 40);
  Random random = numbers();
  resize_shorter(16)(draft, random);
  EXPECT_EQ(draft.size(), (Size{20, 16}));
  resize(7, 9)(draft, random);
  EXPECT_EQ(draft.size(), (Size{7, 9}));
}

TEST(PadAndCrop, ReachesEveryPlace) {
  std::map<int, int> counts;  // black pixels in the result
  for (int i = 0; i < 900; ++i) {
    Draft draft = flat(4, 4);
    Random random = numbers(i);
    pad_and_crop(4, 1)(draft, random);
    EXPECT_EQ(draft.size(), (Size{4, 4}));
    Workspace workspace;
    const auto pixels = draft.picture(workspace).pixels;
    ++counts[static_cast<int>(std::count(pixels.begin(), pixels.end(), 0)) / 3];
  }
  // Of nine places one has no edge, four have one edge and four have two.
  EXPECT_EQ(counts.size(), 3U);
  EXPECT_NEAR(counts[0], 100, 40);
  EXPECT_NEAR(counts[4], 400, 60);
  EXPECT_NEAR(counts[7], 400, 60);
  Draft small = flat(2, 9);
  Random random = numbers();
  EXPECT_THAT([&] { pad_and_crop(5, 1)(small, random); },
              ThrowsMessage<InvalidArgument>(HasSubstr("'flat' has 2 x 9 pixels")));
}

TEST(RandomFlip, HappensAsOftenAsAsked) {
  const auto flips = [](double probability) {
    auto picture = std::make_shared<Picture>(Picture{.width = 2, .height = 1, .pixels = {1, 1, 1, 2, 2, 2}});
    Workspace workspace;
    int count = 0;
    for (int i = 0; i < 1000; ++i) {
      Draft draft(picture, "p");
      Random random = numbers(i);
      random_flip(probability)(draft, random);
      count += draft.picture(workspace).pixels[0] == 2 ? 1 : 0;
    }
    return count;
  };
  EXPECT_EQ(flips(0), 0);
  EXPECT_EQ(flips(1), 1000);
  EXPECT_NEAR(flips(0.5), 500, 60);
  EXPECT_NEAR(flips(0.1), 100, 40);
}

// ---- colours

TEST(ColourJitter, DrawsAmountsInTheirRangesAndOrdersAtRandom) {
  Workspace workspace;
  int changed = 0;
  std::vector<double> means;
  for (int i = 0; i < 2000; ++i) {
    Draft draft = flat(1, 1, 100);
    Random random = numbers(i);
    colour_jitter({.brightness = 0.4})(draft, random);
    const int value = draft.picture(workspace).pixels[0];
    EXPECT_GE(value, 60 - 1);
    EXPECT_LE(value, 140);
    means.push_back(value);
    changed += value != 100 ? 1 : 0;
  }
  EXPECT_GT(changed, 1900);
  const auto [least, most] = std::minmax_element(means.begin(), means.end());
  EXPECT_LT(*least, 62);
  EXPECT_GT(*most, 138);
  // Brightness that clips to white and contrast do not commute, so both orders show.
  std::map<int, int> results;
  for (int i = 0; i < 200; ++i) {
    auto picture = std::make_shared<Picture>(Picture{.width = 2, .height = 1, .pixels = {250, 0, 0, 10, 200, 90}});
    Draft draft(picture, "p");
    Random random = numbers(i);
    colour_jitter({.brightness = 1, .contrast = 1, .saturation = 1, .hue = 0.5})(draft, random);
    ++results[draft.picture(workspace).pixels[0]];
  }
  EXPECT_GT(results.size(), 40U);
}

TEST(ColourJitter, OfNothingChangesNothing) {
  Workspace workspace;
  Draft draft = flat(3, 3, 77);
  Random random = numbers();
  colour_jitter({})(draft, random);
  EXPECT_THAT(draft.picture(workspace).pixels, ::testing::Each(77));
}

// ---- erasing

TEST(RandomErasing, ErasesBoxesOfTheAskedAreaAndRatio) {
  Workspace workspace;
  int erased = 0;
  for (int i = 0; i < 1000; ++i) {
    Draft draft = flat(40, 30);
    Random random = numbers(i);
    random_erasing({.p = 0.25})(draft, random);
    const Picture picture = draft.picture(workspace);
    int left = 40;
    int right = -1;
    int top = 30;
    int bottom = -1;
    int count = 0;
    for (int y = 0; y < 30; ++y) {
      for (int x = 0; x < 40; ++x) {
        if (PixelView(picture).row(y)[3 * x] != 0) continue;
        left = std::min(left, x);
        right = std::max(right, x);
        top = std::min(top, y);
        bottom = std::max(bottom, y);
        ++count;
      }
    }
    if (count == 0) continue;
    ++erased;
    const int width = right - left + 1;
    const int height = bottom - top + 1;
    ASSERT_EQ(count, width * height);
    EXPECT_GE(count, 0.01 * 1200);  // 0.02, but sides are rounded
    EXPECT_LE(count, 0.35 * 1200);
    EXPECT_GE((height + 0.5) / (width - 0.5), 0.3);
    EXPECT_LE((height - 0.5) / (width + 0.5), 3.3);
  }
  EXPECT_NEAR(erased, 250, 50);
}

// ---- bad values

TEST(Operations, RefuseWhatMakesNoSense) {
  EXPECT_THAT([] { random_resized_crop(0); }, ThrowsMessage<InvalidArgument>(HasSubstr("got 0")));
  EXPECT_THAT(
      [] {
        random_resized_crop(8, {.scale = {0.5, 0.2}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("scales of random_resized_crop")));
  EXPECT_THAT([] { random_resized_crop(8, {.ratio = {0, 2}}); }, ThrowsMessage<InvalidArgument>(HasSubstr("0 and 2")));
  EXPECT_THAT([] { random_flip(1.5); }, ThrowsMessage<InvalidArgument>(HasSubstr("1.5")));
  EXPECT_THAT([] { colour_jitter({.hue = 0.6}); }, ThrowsMessage<InvalidArgument>(HasSubstr("0.6")));
  EXPECT_THAT([] { colour_jitter({.contrast = -1}); }, ThrowsMessage<InvalidArgument>(HasSubstr("-1")));
  EXPECT_THAT([] { random_erasing({.scale = {0.1, 2}}); }, ThrowsMessage<InvalidArgument>(HasSubstr("got 2")));
  EXPECT_THAT([] { pad_and_crop(4, -1); }, ThrowsMessage<InvalidArgument>(HasSubstr("-1")));
}

}  // namespace
}  // namespace reigen::image::operations_test
