#include "reigen/checkpoint/checkpoint.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <iterator>

#include "reigen/base/error.h"

namespace reigen::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::SizeIs;

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

void write_file(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

class CheckpointTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / ("reigen_checkpoint_test_" + std::to_string(::getpid()));
    fs::remove_all(root_);
    directory_ = root_ / "checkpoints";
  }
  void TearDown() override { fs::remove_all(root_); }

  // Values that tell the step they belong to.
  static Contents contents_of(std::int64_t step) {
    const auto value = static_cast<double>(step);
    return {{{"a.weight", at::full({2, 3}, value)}, {"a.bias", at::full({3}, value + 1, at::kDouble)}},
            {{"a.weight.exp_avg", at::full({2, 3}, value + 2)}, {"a.weight.step", at::full({}, value)}}};
  }

  fs::path save_step(std::int64_t step, std::int64_t keep = 10) {
    return save(directory_,
                {.step = step,
                 .epoch = 1,
                 .position = 7,
                 .global_batch = 97,
                 .seed = 3,
                 .world_size = 2,
                 .optimizer_steps = step,
                 .options = {{"optim.lr", "0.001"}}},
                contents_of(step), keep);
  }

  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(directory_)) found.push_back(entry.path().filename().string());
    std::sort(found.begin(), found.end());
    return found;
  }

  fs::path root_;
  fs::path directory_;
};

TEST_F(CheckpointTest, WhatWasSavedComesBack) {
  const fs::path path = save_step(100);
  EXPECT_EQ(path.filename(), "step_00000100");
  const Found found = open(path);
  EXPECT_EQ(found.manifest.step, 100);
  EXPECT_EQ(found.manifest.position, 7);
  EXPECT_EQ(found.manifest.global_batch, 97);
  EXPECT_EQ(found.manifest.options.at("optim.lr"), "0.001");
  EXPECT_FALSE(found.manifest.version.empty());

  const Contents zeros{{{"a.weight", at::zeros({2, 3})}, {"a.bias", at::zeros({3}, at::kDouble)}}, {}};
  read_model_into(found, zeros.model);
  EXPECT_TRUE(at::equal(zeros.model[0].tensor, contents_of(100).model[0].tensor));
  EXPECT_TRUE(at::equal(zeros.model[1].tensor, contents_of(100).model[1].tensor));
  EXPECT_THAT(read_optimizer(found), SizeIs(2));
  EXPECT_EQ(names(), std::vector<std::string>{"step_00000100"});
}

TEST_F(CheckpointTest, AnAbsentDirectoryHoldsNone) {
  EXPECT_FALSE(find_newest(directory_).newest);
  EXPECT_THROW(open(directory_ / "step_00000001"), IoError);
}

TEST_F(CheckpointTest, TheNewestIsFoundByNumberNotByName) {
  save_step(99999999);
  save_step(100000000);
  EXPECT_EQ(find_newest(directory_).newest->manifest.step, 100000000);
}

TEST_F(CheckpointTest, EveryDamageToEveryFileFallsBackToTheOneBefore) {
  save_step(1);
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "manifest.json"}) {
    const fs::path newest = save_step(2);
    const std::string good = read_file(newest / name);
    std::vector<std::string> bad = {good.substr(0, good.size() / 2), good.substr(0, good.size() - 3), ""};
    for (std::size_t at = 0; at < good.size(); at += 7) {
      if (good[at] == ' ' || good[at] == '\n') continue;  // white space of the manifest means nothing
      bad.push_back(good);
      bad.back()[at] = static_cast<char>(bad.back()[at] ^ 0x04);
    }
    for (const std::string& text : bad) {
      write_file(newest / name, text);
      const Search search = find_newest(directory_);
      ASSERT_TRUE(search.newest.has_value()) << name;
      ASSERT_EQ(search.newest->manifest.step, 1) << name << ": " << text.size();
      ASSERT_THAT(search.damaged, SizeIs(1));
      EXPECT_THAT(search.damaged[0], HasSubstr(name));
    }
    fs::remove(newest / name);
    EXPECT_EQ(find_newest(directory_).newest->manifest.step, 1) << name;
    EXPECT_THROW(open(newest), DataError);
  }
}

// It may be as good as ever: a newer program's, or one that this user may not read.
TEST_F(CheckpointTest, WhatCannotBeReadIsNotCalledDamaged) {
  save_step(1);
  const fs::path manifest = save_step(2) / "manifest.json";
  fs::remove(manifest);
  fs::create_directory(manifest);
  EXPECT_THROW(find_newest(directory_), IoError);
}

TEST_F(CheckpointTest, WhatKilledWritersLeftIsClearedAway) {
  const fs::path left = directory_ / ".unfinished_step_00000007";
  fs::create_directories(left);
  write_file(left / "model.safetensors", "half");
  save_step(8);
  EXPECT_FALSE(fs::exists(left));
}

TEST_F(CheckpointTest, OnlyWholeOnesCountAsKept) {
  for (std::int64_t step = 1; step <= 3; ++step) save_step(step);
  write_file(directory_ / "step_00000003" / "model.safetensors", "torn");
  save_step(4, 2);
  EXPECT_EQ(names(), (std::vector<std::string>{"step_00000002", "step_00000003", "step_00000004"}));
  save_step(5, 1);
  EXPECT_EQ(names(), std::vector<std::string>{"step_00000005"});
}

TEST_F(CheckpointTest, WhatAKilledWriterLeftIsNoCheckpoint) {
  save_step(1);
  fs::create_directories(directory_ / ".unfinished_step_00000002");
  write_file(directory_ / ".unfinished_step_00000002" / "model.safetensors", "half");
  EXPECT_EQ(find_newest(directory_).newest->manifest.step, 1);
  save_step(2);
  EXPECT_EQ(names(), (std::vector<std::string>{"step_00000001", "step_00000002"}));
}

TEST_F(CheckpointTest, ASecondOneOfTheSameStepReplacesTheFirst) {
  const fs::path path = save_step(1);
  write_file(path / "model.safetensors", "torn");
  save_step(1);
  EXPECT_EQ(find_newest(directory_).newest->manifest.step, 1);
  EXPECT_THAT(names(), SizeIs(1));
}

TEST_F(CheckpointTest, AFutureThatWasGivenUpIsDropped) {
  for (std::int64_t step = 1; step <= 3; ++step) save_step(step);
  drop_after(directory_, 1);
  EXPECT_EQ(names(), std::vector<std::string>{"step_00000001"});
}

TEST_F(CheckpointTest, AnotherModelIsRefusedAndNothingIsChanged) {
  const Found found = open(save_step(5));
  const auto refusal = [&](const std::vector<NamedTensor>& model) {
    try {
      read_model_into(found, model);
    } catch (const DataError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  const at::Tensor weight = at::zeros({2, 3});
  EXPECT_THAT(refusal({{"a.weight", weight}, {"a.bias", at::zeros({4}, at::kDouble)}}),
              HasSubstr("a.bias does not fit"));
  EXPECT_THAT(refusal({{"a.weight", weight}, {"a.bias", at::zeros({3})}}), HasSubstr("a.bias does not fit"));
  EXPECT_THAT(refusal({{"a.weight", weight}}), HasSubstr("the model has no a.bias"));
  EXPECT_THAT(refusal({{"b.weight", weight}}), HasSubstr("b.weight"));
  EXPECT_EQ(weight.sum().item<double>(), 0);
}

TEST_F(CheckpointTest, AFileInTheWayIsAnIoError) {
  fs::create_directories(root_);
  write_file(directory_, "a file");
  EXPECT_THROW(save_step(1), IoError);
}

}  // namespace
}  // namespace reigen::checkpoint
