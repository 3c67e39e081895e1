// Presets: which values count, and which the user's own replace.
#include "reigen/config/presets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "reigen/base/error.h"
#include "reigen/config/command_line.h"

namespace reigen::config {
namespace {

using ::testing::HasSubstr;

Config program() {
  Config config;
  config.optim.warmup_steps = 500;
  config.run.presets = {
      {.name = "first",
       .meaning = "of a paper",
       .values = {{"optim.name", "sgd", "section 1"},
                  {"optim.momentum", "0.9", "section 1"},
                  {.option = "optim.lr", .value = "0.5", .source = "section 2", .unless = {"optim.name"}},
                  {"optim.schedule", "multi_step"},
                  {"optim.milestones", "30 epochs, 60 epochs"},
                  {.option = "optim.warmup", .value = "5 epochs", .source = "", .unless = {"optim.warmup_steps"}}}},
      {.name = "second",
       .values = {{"train.global_batch", "64", "the smallest"},
                  {.option = "optim.lr", .value = "1", .source = "small", .below_batch = 100},
                  {.option = "optim.lr", .value = "2", .source = "middle", .from_batch = 100, .below_batch = 200},
                  {.option = "optim.lr", .value = "3", .source = "large", .from_batch = 200}}}};
  return config;
}

Config with(const std::vector<std::string>& arguments, const Environment& environment = {}) {
  return read_command_line(program(), arguments, environment).config;
}

double momentum_of(const Config& config) { return config.optim.rule.of<optim::SGDOptions>().momentum; }

TEST(PresetsTest, SetsItsValuesAndNothingElse) {
  const Config config = with({"--run.preset", "first"});
  EXPECT_EQ(config.optim.rule.name, "sgd");
  EXPECT_EQ(momentum_of(config), 0.9);
  EXPECT_EQ(config.optim.lr, 0.5);
  EXPECT_EQ(config.optim.schedule.name, "multi_step");
  EXPECT_EQ(config.optim.warmup, "5 epochs");
  EXPECT_EQ(config.optim.warmup_steps, 0) << "instead of the program's own";
  const Config none = with({});
  EXPECT_EQ(none.optim.rule.name, "adamw");
  EXPECT_EQ(none.optim.warmup_steps, 500);
}

TEST(PresetsTest, FlagsVariablesAndFilesWinOverIt) {
  EXPECT_EQ(with({"--optim.lr", "0.25", "--run.preset", "first"}).optim.lr, 0.25);
  EXPECT_EQ(with({}, {{"REIGEN_RUN_PRESET", "first"}, {"REIGEN_OPTIM_LR", "0.125"}}).optim.lr, 0.125);
  const auto path = std::filesystem::temp_directory_path() / ("reigen_presets_" + std::to_string(::getpid()) + ".toml");
  std::ofstream(path) << "[run]\npreset = \"first\"\n[optim]\nmomentum = 0.5\n";
  const Config config = with({"--config", path.string()});
  EXPECT_EQ(momentum_of(config), 0.5);
  EXPECT_EQ(config.optim.lr, 0.5);
  // What was printed has all values, so a preset changes nothing of it.
  std::ofstream(path) << to_toml(config);
  EXPECT_EQ(to_toml(with({"--config", path.string()})), to_toml(config));
  std::filesystem::remove(path);
}

TEST(PresetsTest, ValuesThatTheUsersOwnMakeMeaninglessAreLeftOut) {
  const Config adam = with({"--run.preset", "first", "--optim.name", "adam"});
  EXPECT_EQ(adam.optim.rule.name, "adam");
  EXPECT_EQ(adam.optim.lr, std::nullopt) << "the preset's rate is sgd's";
  EXPECT_EQ(adam.optim.schedule.name, "multi_step");
  EXPECT_EQ(with({"--run.preset", "first", "--optim.name", "sgd"}).optim.lr, 0.5);
  EXPECT_EQ(with({"--run.preset", "first", "--optim.schedule", "cosine"}).optim.schedule.name, "cosine");
  const Config steps = with({"--run.preset", "first", "--optim.warmup_steps", "7"});
  EXPECT_EQ(steps.optim.warmup, "");
  EXPECT_EQ(steps.optim.warmup_steps, 7);
}

TEST(PresetsTest, ValuesFollowTheBatch) {
  EXPECT_EQ(with({"--run.preset", "second"}).optim.lr, 1);
  EXPECT_EQ(with({"--run.preset", "second"}).train.global_batch, 64);
  for (const auto& [batch, lr] : {std::pair("99", 1.0), std::pair("100", 2.0), std::pair("199", 2.0),
                                  std::pair("200", 3.0), std::pair("100000", 3.0)}) {
    EXPECT_EQ(with({"--run.preset", "second", "--train.global_batch", batch}).optim.lr, lr) << batch;
  }
}

TEST(PresetsTest, UnknownNamesAreRefusedWithThoseThatThereAre) {
  try {
    with({"--run.preset", "third"});
    ADD_FAILURE() << "no error";
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kConfiguration);
    EXPECT_THAT(error.what(), HasSubstr("run.preset = third: must be none, first, second"));
  }
  try {
    read_command_line(Config{}, {"--run.preset", "first"}, {});
    ADD_FAILURE() << "a program without presets has no such option";
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kUsage);
  }
  Config wrong = program();
  wrong.run.presets[0].values.push_back({"optim.rate", "1"});
  EXPECT_THROW(read_command_line(wrong, {"--run.preset", "first"}, {}), InternalError);
  wrong = program();
  wrong.run.presets[1].values.erase(wrong.run.presets[1].values.begin());
  EXPECT_THROW(read_command_line(wrong, {"--run.preset", "second"}, {}), InternalError) << "which batch?";
}

TEST(PresetsTest, HelpShowsEachValueWithItsSource) {
  const std::string help = help_text(program());
  EXPECT_THAT(help, HasSubstr("--run.preset none|first|second"));
  EXPECT_THAT(help, HasSubstr("\n\n  --run.preset first       of a paper\n"));
  EXPECT_THAT(help, HasSubstr("\n  optim.momentum 0.9       section 1\n"));
  EXPECT_THAT(help, HasSubstr("\n  optim.lr 2               batches from 100 and below 200: middle\n"));
  EXPECT_THAT(help, HasSubstr("\n  optim.lr 3               batches from 200: large\n"));
}

}  // namespace
}  // namespace reigen::config
