#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "reigen/checkpoint/checkpoint.h"
#include "train/small_run.h"

namespace reigen::train {
namespace {

// Replaces the directory by a file until give_back(), so that nothing can be written there, also by root.
void take_away(const fs::path& checkpoints) {
  fs::rename(checkpoints, checkpoints.string() + "_away");
  std::ofstream(checkpoints) << "in the way";
}

void give_back(const fs::path& checkpoints) {
  fs::remove(checkpoints);
  fs::rename(checkpoints.string() + "_away", checkpoints);
}

// The save of step 3 may still be running. Its last action is to delete all but the two newest checkpoints.
void wait_for_third(const fs::path& checkpoints) {
  const auto is_done = [&] {
    return fs::exists(checkpoints / "step_00000003") && !fs::exists(checkpoints / "step_00000001");
  };
  for (int i = 0; i < 1000 && !is_done(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

class SavingTest : public TrainerTest, public ::testing::WithParamInterface<bool> {
 protected:
  // Nine steps, a checkpoint after each.
  Config saving(const std::string& directory) const {
    Config result = config(directory);
    result.checkpoint.every_steps = 1;
    result.checkpoint.asynchronous = GetParam();
    return result;
  }
};

TEST_P(SavingTest, ADiskThatFailsForAWhileIsAWarning) {
  fit(2, saving("undisturbed"));
  const fs::path checkpoints = root_ / "run" / "checkpoints";
  bool away = false;
  const FitResult result = fit(2, saving("run"), [&](int rank, SmallTask& task, TrainerOptions&) {
    if (rank != 0) return;
    task.before_call = [&](std::int64_t call) {
      if (call == 4) {
        wait_for_third(checkpoints);
        take_away(checkpoints);
        away = true;
      } else if (away && output_.find("no checkpoint of step 4") != std::string::npos) {
        give_back(checkpoints);
        away = false;
      }
    };
  });
  EXPECT_EQ(result.steps, 9);
  EXPECT_THAT(output_, HasSubstr("warning: no checkpoint of step 4: "));
  EXPECT_EQ(losses("run"), losses("undisturbed"));
  EXPECT_EQ(model("run"), model("undisturbed"));
  const checkpoint::Search found = checkpoint::find_newest(checkpoints);
  ASSERT_TRUE(found.newest);
  EXPECT_EQ(found.newest->manifest().step, 9);
  EXPECT_TRUE(found.damaged.empty());
}

TEST_P(SavingTest, ADiskThatStaysAwayEndsTheRunAndTheLastCheckpointIsWhole) {
  const fs::path checkpoints = root_ / "run" / "checkpoints";
  const ExitCode code = failure(2, saving("run"), [&](int rank, SmallTask& task, TrainerOptions&) {
    if (rank != 0) return;
    task.before_call = [&](std::int64_t call) {
      if (call != 4) return;
      wait_for_third(checkpoints);
      take_away(checkpoints);
    };
  });
  EXPECT_EQ(code, ExitCode::kIo);
  EXPECT_THAT(failure_text_, AllOf(HasSubstr("3 checkpoints in a row could not be written"), HasSubstr("checkpoints")));
  give_back(checkpoints);
  const checkpoint::Search found = checkpoint::find_newest(checkpoints);
  ASSERT_TRUE(found.newest);
  EXPECT_EQ(found.newest->manifest().step, 3);

  Config second = saving("run");
  second.run.resume = "true";
  EXPECT_EQ(fit(2, second).steps, 9);
  fit(2, saving("undisturbed"));
  EXPECT_EQ(model("run"), model("undisturbed"));
}

INSTANTIATE_TEST_SUITE_P(, SavingTest, ::testing::Bool(),
                         [](const auto& one) { return one.param ? "beside_the_work" : "in_between"; });

}  // namespace
}  // namespace reigen::train
