#include "train/run/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace reigen::train::progress_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

class ProgressTest : public ::testing::Test {
 protected:
  Progress make(int columns) {
    return Progress({.columns = columns,
                     .log_every = 10,
                     .steps = 100,
                     .epochs = 2,
                     .write = [this](const std::string& text) { written_.push_back(text); }},
                    start_);
  }

  Progress::Clock::time_point start_ = Progress::Clock::now();
  std::vector<std::string> written_;
};

TEST_F(ProgressTest, PlainLinesComeEveryLogEverySteps) {
  Progress progress = make(0);
  for (std::int64_t step = 1; step <= 100; ++step)
    progress.step(step, step > 50 ? 1 : 0, 0.25, 1234.5, start_ + milliseconds(100 * step));
  ASSERT_EQ(written_.size(), 11U);  // the first step and every tenth
  EXPECT_EQ(written_[1], "epoch 1/2  step 10/100  loss 0.2500  1234 samples/s  9 s left\n");
  EXPECT_THAT(written_.back(), HasSubstr("epoch 2/2  step 100/100"));
}

TEST_F(ProgressTest, ABarFitsTheTerminalAndRedrawsTenTimesASecond) {
  Progress progress = make(100);
  for (std::int64_t step = 1; step <= 100; ++step) progress.step(step, 0, 0.25, 10, start_ + milliseconds(10 * step));
  EXPECT_LE(written_.size(), 11U);
  EXPECT_GE(written_.size(), 9U);
  for (const auto& text : written_) {
    EXPECT_EQ(text.size(), 100U);
    EXPECT_EQ(text.back(), '\r');
  }
  EXPECT_THAT(written_.back(), HasSubstr("[====================]"));
  progress.line("done");
  EXPECT_EQ(written_.back(), "done\n");
}

// A narrow terminal once cut off the words at the end of the line, for example the remaining time.
TEST_F(ProgressTest, TheBarShrinksBeforeTheWordsDo) {
  const std::string words = "epoch 1/2  step 100/100  loss 2.1374  186 samples/s  0 s left";
  for (const int columns : {80, 72, 69, 68, 62}) {
    written_.clear();
    make(columns).step(100, 0, 2.1374, 186, start_ + milliseconds(100));
    ASSERT_EQ(written_.size(), 1U);
    EXPECT_EQ(written_.back().size(), static_cast<std::size_t>(columns));
    EXPECT_THAT(written_.back(), HasSubstr(words)) << columns;
  }
  EXPECT_THAT(written_.back(), ::testing::StartsWith("epoch"));  // no bar at all
  written_.clear();
  make(80).step(50, 0, 2.1374, 186, start_ + milliseconds(100));
  EXPECT_THAT(written_.back(), HasSubstr("[========        ] epoch 1/2  step 50/100"));
  written_.clear();
  make(40).step(100, 0, 2.1374, 186, start_ + milliseconds(100));
  EXPECT_EQ(written_.back().size(), 40U);
}

TEST_F(ProgressTest, ValidationDoesNotCountTowardsTheTimeLeft) {
  Progress progress = make(0);
  progress.exclude(seconds(100));
  progress.step(10, 0, 1, 1, start_ + seconds(110));
  EXPECT_THAT(written_.back(), HasSubstr("1:30 left"));
}

TEST(FormatDurationTest, PicksTheUnit) {
  EXPECT_EQ(format_duration(0.4), "0 s");
  EXPECT_EQ(format_duration(59), "59 s");
  EXPECT_EQ(format_duration(187), "3:07");
  EXPECT_EQ(format_duration(7384), "2:03:04");
  EXPECT_EQ(format_duration(-1), "?");
}

}  // namespace
}  // namespace reigen::train::progress_test
