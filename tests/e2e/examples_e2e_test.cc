// Runs the examples that no other test runs, under the real launcher.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "format/temporary_folder.h"
#include "harness/folders.h"
#include "launch/child_program.h"

namespace reigen::launch {
namespace {

// The losses in the output: 0.1 for a line "step 50 loss 0.1".
std::vector<double> losses_in(const std::string& text) {
  std::vector<double> losses;
  const std::string mark = " loss ";
  for (auto at = text.find(mark); at != std::string::npos; at = text.find(mark, at + 1)) {
    losses.push_back(std::stod(text.substr(at + mark.size())));
  }
  return losses;
}

std::vector<double> losses_on(int ranks) {
  const Ran ran = run_training({built("bin/reigen"), "run", "-n", std::to_string(ranks), built("bin/horovod_style")});
  EXPECT_EQ(ran.code, 0) << ran.err;
  return losses_in(ran.out);
}

TEST(HorovodStyle, LearnsTheSameOnAnyNumberOfRanks) {
  const std::vector<double> alone = losses_on(1);
  ASSERT_EQ(alone.size(), 6U);
  EXPECT_LT(alone.back(), alone.front() / 5);
  for (const int ranks : {2, 3}) {
    const std::vector<double> losses = losses_on(ranks);
    ASSERT_EQ(losses.size(), alone.size()) << ranks << " ranks";
    for (std::size_t i = 0; i < losses.size(); ++i) {
      EXPECT_NEAR(losses[i], alone[i], 0.01 * alone[i]) << ranks << " ranks";
    }
  }
}

TEST(UnevenInputs, LearnsFromEverySampleOnAnyNumberOfRanks) {
  for (const int ranks : {1, 2, 3}) {
    const Ran ran = run_training({built("bin/reigen"), "run", "-n", std::to_string(ranks), built("bin/uneven_inputs")});
    ASSERT_EQ(ran.code, 0) << ran.err;
    const std::vector<double> losses = losses_in(ran.out);
    ASSERT_EQ(losses.size(), 2U) << ran.out;
    EXPECT_LT(losses.back(), losses.front() / 5) << ran.out;
    EXPECT_THAT(ran.out, testing::HasSubstr("the same weights on every rank"));
  }
}

TEST(SummaryWriterExample, WritesWhatTensorBoardReads) {
  const tests::TemporaryFolder folder;
  const Ran ran = run_training({built("bin/summary_writer"), (folder.path() / "board").string()});
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_LT(losses_in(" " + ran.out).at(0), 1.5);
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path() / "board")) {
    ++files;
    EXPECT_GT(entry.file_size(), 10'000U);
  }
  EXPECT_EQ(files, 1U);
}

TEST(Sharded, GoesOnOnAnotherNumberOfRanks) {
  const auto losses_of = [](const std::string& folder, std::vector<int> numbers_of_ranks) {
    std::vector<double> losses;
    for (const int ranks : numbers_of_ranks) {
      const Ran ran =
          run_training({built("bin/reigen"), "run", "-n", std::to_string(ranks), built("bin/sharded"), folder});
      EXPECT_EQ(ran.code, 0) << ran.err;
      for (const double loss : losses_in(ran.out)) losses.push_back(loss);
    }
    return losses;
  };
  const tests::TemporaryFolder folder;
  const std::vector<double> other = losses_of(folder.path() / "other", {2, 4});
  const std::vector<double> same = losses_of(folder.path() / "same", {1, 1});
  ASSERT_EQ(same.size(), 6U);
  ASSERT_EQ(other.size(), same.size());
  EXPECT_LT(same.back(), same.front() / 2);
  for (std::size_t i = 0; i < same.size(); ++i) EXPECT_NEAR(other[i], same[i], 0.01 * same[i]) << i;
}

}  // namespace
}  // namespace reigen::launch
