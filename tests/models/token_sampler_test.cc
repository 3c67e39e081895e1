#include "reigen/models/token_sampler.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "reigen/base/error.h"

namespace reigen::models::token_sampler_test {
namespace {

const at::Tensor& scores() {
  static const at::Tensor kScores = at::tensor({0.5, 0.1, 0.25, 0.15}, at::kDouble).log();
  return kScores;
}

std::map<std::int64_t, double> shares(const SamplingOptions& options, int count = 20000) {
  const TokenSampler sampler(options);
  std::map<std::int64_t, double> found;
  for (int i = 0; i < count; ++i) found[sampler.draw(scores(), static_cast<std::uint64_t>(i))] += 1.0 / count;
  return found;
}

TEST(TokenSampler, DrawsByProbability) {
  auto found = shares({});
  EXPECT_NEAR(found[0], 0.5, 0.02);
  EXPECT_NEAR(found[1], 0.1, 0.02);
  EXPECT_NEAR(found[2], 0.25, 0.02);
  found = shares({.temperature = 0.5});  // squares of the probabilities
  EXPECT_NEAR(found[0], 0.25 / 0.345, 0.02);
  found = shares({.seed = 5});
  EXPECT_NEAR(found[3], 0.15, 0.02);
}

TEST(TokenSampler, LimitsTheChoice) {
  auto found = shares({.top_k = 2});
  EXPECT_EQ(found.size(), 2U);
  EXPECT_NEAR(found[0], 2.0 / 3, 0.02);
  EXPECT_EQ(shares({.top_k = 1}).size(), 1U);
  EXPECT_EQ(shares({.top_k = 100}).size(), 4U);
  EXPECT_EQ(shares({.top_p = 0.4}).size(), 1U);   // the first token alone has 0.5
  EXPECT_EQ(shares({.top_p = 0.51}).size(), 2U);  // the fewest that reach it
  EXPECT_EQ(shares({.top_p = 0.8}).size(), 3U);
  found = shares({.top_k = 2, .top_p = 0.7});  // of the two, 2/3 and 1/3
  EXPECT_EQ(found.size(), 2U);
  EXPECT_EQ(shares({.top_k = 2, .top_p = 0.6}).size(), 1U);
  EXPECT_EQ(shares({.greedy = true}, 10).count(0), 1U);
}

TEST(TokenSampler, IsAFunctionOfSeedAndPlace) {
  const TokenSampler one({.seed = 7});
  const TokenSampler same({.seed = 7});
  const TokenSampler other({.seed = 8});
  int differ = 0;
  for (std::uint64_t place = 0; place < 50; ++place) {
    EXPECT_EQ(one.draw(scores(), place), same.draw(scores(), place));
    differ += one.draw(scores(), place) != other.draw(scores(), place) ? 1 : 0;
  }
  EXPECT_GT(differ, 5);
}

TEST(TokenSampler, PassesOverWhatIsNoScore) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const at::Tensor some = at::tensor({NAN, -kInfinity, 1.0, 1.0}, at::kDouble);
  EXPECT_EQ(TokenSampler({.greedy = true}).draw(some, 0), 2);  // of equal scores the lower token
  std::set<std::int64_t> found;
  for (std::uint64_t place = 0; place < 40; ++place) found.insert(TokenSampler({}).draw(some, place));
  EXPECT_EQ(found, (std::set<std::int64_t>{2, 3}));
  EXPECT_THROW(TokenSampler({}).draw(at::full({3}, NAN), 0), InvalidArgument);
  EXPECT_THROW(TokenSampler({}).draw(at::zeros({1, 3}), 0), InvalidArgument);
}

TEST(TokenSampler, RefusesOptionsOutOfRange) {
  EXPECT_THROW(TokenSampler({.temperature = 0}), InvalidArgument);
  EXPECT_THROW(TokenSampler({.temperature = NAN}), InvalidArgument);
  EXPECT_THROW(TokenSampler({.top_k = -1}), InvalidArgument);
  EXPECT_THROW(TokenSampler({.top_p = 0}), InvalidArgument);
  EXPECT_THROW(TokenSampler({.top_p = 1.1}), InvalidArgument);
}

}  // namespace
}  // namespace reigen::models::token_sampler_test
