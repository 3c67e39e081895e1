#include "reigen/data/digits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <array>
#include <numeric>
#include <thread>
#include <vector>

#include "reigen/base/error.h"
#include "reigen/format/hash.h"

namespace reigen::data::digits_test {
namespace {

using Pixels = std::array<std::uint8_t, kDigitPixels>;

std::uint64_t hash_of(std::uint64_t seed, Split split, std::int64_t first, std::int64_t count) {
  format::Hash64 hash;
  for (std::int64_t i = first; i < first + count; ++i) {
    Pixels pixels;
    const auto label = static_cast<std::uint8_t>(draw_digit(seed, split, i, pixels));
    hash.update(&label, 1);
    hash.update(pixels.data(), pixels.size());
  }
  return hash.value();
}

// The images must never change, because accuracies are compared between versions and machines.
TEST(DrawDigit, BytesAreTheSameEverywhere) {
  EXPECT_EQ(format::hash_text(hash_of(0, Split::kTrain, 0, 2000)), "266a49951c1ca564");
  EXPECT_EQ(format::hash_text(hash_of(0, Split::kTest, 0, 500)), "9e6c24f5bb850088");
  EXPECT_EQ(format::hash_text(hash_of(1ull << 40, Split::kTrain, 1ll << 40, 100)), "d9cb52e8fcf6e0b8");
}

TEST(DrawDigit, SeedSplitAndIndexChangeTheImage) {
  const auto base = hash_of(0, Split::kTrain, 0, 1);
  EXPECT_NE(hash_of(1, Split::kTrain, 0, 1), base);
  EXPECT_NE(hash_of(0, Split::kTest, 0, 1), base);
  EXPECT_NE(hash_of(0, Split::kTrain, 1, 1), base);
}

TEST(DrawDigit, EveryDigitIsAsFrequentAndHasInkInside) {
  std::array<int, 10> counts{};
  for (std::int64_t i = 0; i < 5000; ++i) {
    Pixels pixels;
    ++counts[static_cast<std::size_t>(draw_digit(3, Split::kTrain, i, pixels))];
    int bright = 0;
    for (const auto pixel : pixels) bright += pixel > 110 ? 1 : 0;
    EXPECT_GE(bright, 5) << i;
    EXPECT_LE(bright, 400) << i;
  }
  for (const int count : counts) EXPECT_NEAR(count, 500, 110);  // five standard deviations
}

TEST(DrawDigit, NegativeIndexIsRefused) {
  Pixels pixels;
  EXPECT_THROW(draw_digit(0, Split::kTrain, -1, pixels), InvalidArgument);
}

TEST(Digits, TensorsAreTheNormalisedImages) {
  const auto data = digits({.split = Split::kTest, .size = 30, .seed = 5});
  EXPECT_EQ(data->size(), 30);
  EXPECT_EQ(data->name(), "digits test");
  const std::vector<std::int64_t> indices = {29, 0, 29};
  const Samples samples = data->gather(indices);
  ASSERT_EQ(samples.input.sizes().vec(), (std::vector<std::int64_t>{3, 1, 28, 28}));
  ASSERT_EQ(samples.target.scalar_type(), torch::kLong);
  const auto as_double =
      digits({.split = Split::kTest, .size = 30, .seed = 5, .type = torch::kDouble})->gather(indices);
  for (std::int64_t row = 0; row < 3; ++row) {
    Pixels pixels;
    const int label = draw_digit(5, Split::kTest, indices[static_cast<std::size_t>(row)], pixels);
    EXPECT_EQ(samples.target[row].item<int>(), label);
    const auto image = torch::from_blob(pixels.data(), {1, 28, 28}, torch::kByte);
    for (const auto& [type, input] :
         {std::pair(torch::kFloat, samples.input), std::pair(torch::kDouble, as_double.input)}) {
      const auto expected = image.to(type).div(255).sub(0.1307).div(0.3081);
      EXPECT_TRUE(input[row].equal(expected)) << "bit for bit";
    }
  }
}

TEST(Digits, Sizes) {
  EXPECT_EQ(digits()->size(), 20'000);
  EXPECT_EQ(digits({.split = Split::kTest})->size(), 4'000);
  EXPECT_EQ(digits({.size = 7})->size(), 7);
  EXPECT_THROW(digits({.size = -1}), InvalidArgument);
  EXPECT_THROW(digits({.size = 1ll << 50}), InvalidArgument);
  EXPECT_THROW(digits({.type = torch::kInt}), InvalidArgument);
}

TEST(Digits, ManyThreadsAskingForTheSameImages) {
  const auto data = digits({.size = 64});
  std::vector<std::int64_t> indices(64);
  std::iota(indices.begin(), indices.end(), 0);
  std::vector<at::Tensor> results(4);
  std::vector<std::thread> threads;
  for (auto& result : results) threads.emplace_back([&] { result = data->gather(indices).input; });
  for (auto& thread : threads) thread.join();
  const auto again = data->gather(indices).input;
  for (const auto& result : results) EXPECT_TRUE(result.equal(again));
}

}  // namespace
}  // namespace reigen::data::digits_test
