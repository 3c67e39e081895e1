// Disks of all sizes, which become full at any write of a run. Results that fit must exist, and the run must report
// those that do not. The disk is a small tmpfs in a mount namespace of this process, which needs root.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "reigen/checkpoint/checkpoint.h"
#include "train/small_run.h"

namespace reigen::train {
namespace {

using ::testing::AnyOf;

class FullDiskTest : public TrainerTest {
 protected:
  static constexpr std::size_t kKiB = 1024;

  void SetUp() override {
    TrainerTest::SetUp();
    if (::geteuid() != 0) GTEST_SKIP() << "a disk of its own needs root";
    // The threads that this thread starts are in the new namespace too.
    if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
      GTEST_SKIP() << "no mount namespace of its own";
    }
    width_ = 1500;  // weights of some 130 KiB, a checkpoint of three times the size
    fs::create_directory(disk_ = root_ / "disk");
    fit(2, saving("whole", 0));
    whole_ = model("whole");
  }
  void TearDown() override {
    if (!disk_.empty()) ::umount2(disk_.c_str(), MNT_DETACH);
    TrainerTest::TearDown();
  }

  void mount(std::size_t kib) {
    ::umount2(disk_.c_str(), MNT_DETACH);
    ASSERT_EQ(::mount("none", disk_.c_str(), "tmpfs", 0, ("size=" + std::to_string(kib) + "k").c_str()), 0);
    fs::create_directory(disk_ / "mine");
    std::ofstream(disk_ / "mine" / "note") << "of the user";
  }

  Config saving(const std::string& directory, std::int64_t every) const {
    Config result = config(directory);
    result.checkpoint.every_steps = every;
    result.optim.rule.name = "adamw";
    return result;
  }

  std::size_t free_kib() const {
    struct statvfs room {};
    EXPECT_EQ(::statvfs(disk_.c_str(), &room), 0);
    return room.f_bavail * room.f_frsize / kKiB;
  }

  // Fills the disk with a file of another user, except for `left_kib`.
  void fill(std::size_t left_kib) const {
    const std::size_t free = free_kib();
    if (free <= left_kib) return;
    std::ofstream(disk_ / "mine" / "filler", std::ios::binary) << std::string((free - left_kib) * kKiB, 'x');
  }

  void expect_theirs() const {
    EXPECT_EQ(read_file(disk_ / "mine" / "note"), "of the user");
    for (const auto& entry : fs::recursive_directory_iterator(disk_)) {
      EXPECT_FALSE(entry.path().filename().string().ends_with(".tmp")) << entry.path();
      EXPECT_FALSE(entry.path().filename().string().starts_with(".unfinished")) << entry.path();
    }
  }

  bool has_last_checkpoint() const {
    const checkpoint::Search found = checkpoint::find_newest(disk_ / "run" / "checkpoints");
    EXPECT_TRUE(found.damaged.empty());
    return found.newest && found.newest->manifest().step == 9;
  }

  void expect_results() {
    EXPECT_EQ(read_file(disk_ / "run" / "model.safetensors"), whole_);
    EXPECT_EQ(summary("disk/run")["steps"], 9);
    EXPECT_EQ(lines_of(disk_ / "run").size(), 9U);
  }

  fs::path disk_;
  std::string whole_;
};

TEST_F(FullDiskTest, WeightsAndResultsAreThereWheneverTheyFit) {
  const std::size_t weights = whole_.size() / kKiB;
  int without = 0;
  int with = 0;
  for (const std::int64_t every : {0, 1}) {
    for (std::size_t kib = 8; kib < 9 * weights; kib += every == 0 ? weights / 3 : weights / 2) {
      SCOPED_TRACE(std::to_string(kib) + " KiB, every " + std::to_string(every));
      mount(kib);
      const ExitCode code = failure(2, saving("disk/run", every));
      expect_theirs();
      EXPECT_THAT(code, AnyOf(ExitCode::kOk, ExitCode::kIo)) << failure_text_;
      // With a checkpoint at every step, one exists before the weights are written, and remains until they are written.
      const std::size_t beside = every == 0 ? 64 : 4 * weights;
      if (kib >= weights + beside) expect_results();
      if (code == ExitCode::kOk) {
        EXPECT_TRUE(has_last_checkpoint());
        ++with;
        continue;
      }
      ++without;
      if (!fs::exists(disk_ / "run")) continue;  // the run did not even start
      EXPECT_FALSE(fs::exists(disk_ / "run" / "summary.json") && has_last_checkpoint());
      EXPECT_THAT(failure_text_, AnyOf(HasSubstr("not all of the run could be saved"), HasSubstr("No space left")));
    }
  }
  EXPECT_GT(without, 5);
  EXPECT_GT(with, 5);
}

TEST_F(FullDiskTest, ADiskThatIsFullFromAnyStepOnCostsNoResult) {
  const std::size_t weights = whole_.size() / kKiB;
  for (std::int64_t step = 1; step <= 9; ++step) {
    for (const std::size_t left : {std::size_t{0}, weights + 160}) {
      SCOPED_TRACE(std::to_string(left) + " KiB left from step " + std::to_string(step));
      mount(12 * weights);
      Config run = saving("disk/run", 4);
      run.run.trace = "2:3";
      run.checkpoint.asynchronous = false;  // a checkpoint in the background could free room later
      const ExitCode code = failure(2, run, [&](int rank, SmallTask& task, TrainerOptions&) {
        if (rank != 0) return;
        task.before_call = [&, left](std::int64_t call) {
          if (call == step) fill(left);
        };
      });
      expect_theirs();
      // Older checkpoints may have been deleted to make room for the last.
      EXPECT_EQ(code, has_last_checkpoint() ? ExitCode::kOk : ExitCode::kIo) << failure_text_;
      if (left > 0) expect_results();
      if (code != ExitCode::kOk) {
        EXPECT_THAT(failure_text_, HasSubstr("no checkpoint of step 9: "));
        if (left > 0) {
          EXPECT_THAT(failure_text_, HasSubstr("the weights after step 9 are in"));
        }
      }
      // When there is room again, the resumed run ends normally.
      fs::remove(disk_ / "mine" / "filler");
      run.run.resume = "true";
      if (checkpoint::list(disk_ / "run" / "checkpoints").empty()) continue;
      EXPECT_EQ(failure(2, run), ExitCode::kOk) << failure_text_;
      expect_results();
    }
  }
}

// The weights are written first, then the old checkpoint is deleted, and then the new one is written. So at every
// moment the weights or a checkpoint exist.
TEST_F(FullDiskTest, AnOlderCheckpointMakesRoomForTheLast) {
  const std::size_t weights = whole_.size() / kKiB;
  mount(6 * weights);
  EXPECT_EQ(failure(2, saving("disk/run", 4)), ExitCode::kOk) << failure_text_;
  EXPECT_THAT(output_, AllOf(HasSubstr("warning: no checkpoint of step 8: no room"),
                             HasSubstr("note: older checkpoints (of steps 4) are deleted")));
  expect_results();
  EXPECT_TRUE(has_last_checkpoint());
}

TEST_F(FullDiskTest, WhatWillNotFitIsSaidBeforeTheFirstStep) {
  const std::size_t weights = whole_.size() / kKiB;
  const auto said = [&](std::size_t kib, std::int64_t every) {
    mount(kib);
    failure(2, saving("disk/run", every));
    const std::size_t at = output_.find("this run will write up to");
    return at == std::string::npos || at > output_.find("epoch 1/3") ? ""
                                                                     : output_.substr(at, output_.find('\n', at) - at);
  };
  EXPECT_EQ(said(8 * weights, 0), "");
  EXPECT_THAT(said(4 * weights, 0), HasSubstr("the last checkpoint will not fit"));
  EXPECT_THAT(said(weights / 2, 0), HasSubstr("not even the trained weights"));
  // checkpoint.keep checkpoints, and the one that is being written.
  EXPECT_THAT(said(8 * weights, 1), HasSubstr("3 checkpoints of"));
}

TEST_F(FullDiskTest, AStopKeepsTheWeightsWhereItCannotKeepMore) {
  const std::size_t weights = whole_.size() / kKiB;
  mount(weights + 64);
  const ExitCode code = failure(2, saving("disk/run", 0), [](int, SmallTask&, TrainerOptions& options) {
    options.stop_requested = [asked = 0]() mutable { return ++asked == 5; };
  });
  EXPECT_EQ(code, ExitCode::kIo);
  EXPECT_THAT(failure_text_, AllOf(HasSubstr("after step 5 of 9"), HasSubstr("the weights after step 5 are in")));
  EXPECT_EQ(read_file(disk_ / "run" / "model.safetensors").size(), whole_.size());
  EXPECT_FALSE(fs::exists(disk_ / "run" / "summary.json"));
  Config on = saving("disk/run", 0);
  on.run.resume = "true";
  EXPECT_EQ(failure(2, on), ExitCode::kInputMissing);
  EXPECT_THAT(failure_text_, HasSubstr("the weights of a run whose checkpoint could not be written"));
}

// If ranks shard the weights, the file is made from the checkpoint. Without a checkpoint, ranks gather the weights for
// it.
TEST_F(FullDiskTest, WeightsThatRanksDivideAreWrittenWithoutACheckpoint) {
  const std::size_t weights = whole_.size() / kKiB;
  backend_ = "tcp";
  Config run = saving("disk/run", 0);
  run.parallel.shard = "parameters";
  run.comm.group.backend = "tcp";
  mount(weights + 64);
  EXPECT_EQ(failure(2, run), ExitCode::kIo);
  EXPECT_THAT(failure_text_, HasSubstr("no checkpoint of step 9"));
  EXPECT_EQ(read_file(disk_ / "run" / "model.safetensors").size(), whole_.size());
  EXPECT_EQ(summary("disk/run")["steps"], 9);
}

}  // namespace
}  // namespace reigen::train
