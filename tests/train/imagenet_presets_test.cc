// The presets of ImageNet: the learning rate of every step beside the papers' formulas, and the plan of a run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>
#include <string>
#include <vector>

#include "format/temporary_folder.h"
#include "reigen/base/error.h"
#include "reigen/config/command_line.h"
#include "train/optimizer/learning_rate.h"
#include "train/program/plan.h"
#include "train/tasks/imagenet.h"

namespace reigen::train::imagenet_presets_test {
namespace {

using ::testing::HasSubstr;

Config with(std::vector<std::string> arguments) {
  return config::read_command_line(imagenet_defaults(), arguments, {}).config;
}
Config preset(const std::string& name, std::int64_t batch) {
  return with({"--run.preset", name, "--train.global_batch", std::to_string(batch)});
}

std::int64_t steps_an_epoch(std::int64_t batch) { return (1'281'167 + batch - 1) / batch; }

LearningRate rate_of(const Config& config) {
  const std::int64_t batch = config.train.global_batch.value();
  return {config.optim,
          {.total_steps = 90 * steps_an_epoch(batch), .global_batch = batch, .steps_of_epoch = steps_an_epoch(batch)}};
}

// Goyal et al., 2017, sections 2.1, 2.2 and 5.1.
TEST(ImageNetPresets, GoyalsRateIsThatOfThePaperInEveryStep) {
  for (const std::int64_t batch : {256, 1024, 8192}) {
    const LearningRate rate = rate_of(preset("goyal", batch));
    const auto epoch = static_cast<double>(steps_an_epoch(batch));
    const double peak = 0.1 * static_cast<double>(batch) / 256;
    for (std::int64_t step = 0; step < 90 * steps_an_epoch(batch); ++step) {
      const double done = static_cast<double>(step) / epoch;  // epochs
      double expected = peak;
      if (done < 5) expected = 0.1 + (peak - 0.1) * done / 5;
      if (done >= 30) expected = peak / 10;
      if (done >= 60) expected = peak / 100;
      if (done >= 80) expected = peak / 1000;
      ASSERT_NEAR(rate.at(step), expected, 1e-12) << "batch " << batch << ", step " << step;
    }
  }
  EXPECT_EQ(rate_of(preset("goyal", 8192)).at(0), 0.1);
  const LearningRate small = rate_of(preset("goyal", 64));
  for (const std::int64_t step : {0, 1000, 100000}) EXPECT_NEAR(small.at(step), 0.025, 1e-15) << "no warm-up downwards";
}

// You et al., 2017: a linear warm-up, then (1 - t / T)^2 to the end. The rates and the lengths of the warm-up are those
// of MLPerf's reference.
TEST(ImageNetPresets, LarsHasTheRateOfItsBatchAndAPolynomial) {
  struct Row {
    std::int64_t batch;
    double peak;
    std::int64_t warm_up;  // epochs
  };
  for (const Row& row : {Row{1024, 1.25, 5}, Row{4096, 5, 5}, Row{8191, 5, 5}, Row{8192, 10, 5}, Row{16384, 25, 5},
                         Row{32768, 32, 14}}) {
    const Config config = preset("lars", row.batch);
    const LearningRate rate = rate_of(config);
    const std::int64_t warm_up = row.warm_up * steps_an_epoch(row.batch);
    const std::int64_t total = 90 * steps_an_epoch(row.batch);
    for (std::int64_t step = 0; step < total; ++step) {
      const double left = static_cast<double>(total - step) / static_cast<double>(total - warm_up);
      const double expected = step < warm_up ? row.peak * static_cast<double>(step + 1) / static_cast<double>(warm_up)
                                             : row.peak * left * left;
      ASSERT_NEAR(rate.at(step), expected, 1e-12) << "batch " << row.batch << ", step " << step;
    }
  }
  const Config config = with({"--run.preset", "lars"});
  EXPECT_EQ(config.train.global_batch, 4096);
  EXPECT_EQ(config.train.label_smoothing, 0.1);
  EXPECT_EQ(config.optim.rule.name, "lars");
  EXPECT_EQ(config.optim.weight_decay, 2e-4);
  EXPECT_EQ(config.optim.no_decay, "@vectors");
}

TEST(ImageNetPresets, GoyalsOtherValues) {
  const Config config = with({"--run.preset", "goyal"});
  EXPECT_FALSE(config.train.global_batch.has_value()) << "the rate follows any batch";
  EXPECT_EQ(config.train.epochs, 90);
  EXPECT_EQ(config.train.label_smoothing, 0);
  EXPECT_EQ(config.optim.rule.name, "sgd");
  EXPECT_EQ(config.optim.rule.of<optim::SGDOptions>().momentum, 0.9);
  EXPECT_TRUE(config.optim.rule.of<optim::SGDOptions>().nesterov);
  EXPECT_EQ(config.optim.weight_decay, 1e-4);
  const models::ResNetOptions model = resnet_options(config, 1000);
  EXPECT_EQ(model.depth, 50);
  EXPECT_EQ(model.norm_batch, 32);
  EXPECT_TRUE(model.zero_last_norm);
  EXPECT_EQ(model.classifier_deviation, 0.01);
  EXPECT_EQ(resnet_options(with({"--model.depth", "18", "--model.zero_last_norm", "false"}), 10).depth, 18);
}

TEST(ImageNetPresets, AnotherOptimizerHasItsOwnRate) {
  for (const char* name : {"goyal", "lars"}) {
    const Config config = with({"--run.preset", name, "--optim.name", "adamw", "--train.global_batch", "1024"});
    EXPECT_EQ(config.optim.lr, std::nullopt) << name;
    EXPECT_EQ(config.optim.weight_decay, std::nullopt) << name;
    EXPECT_EQ(config.optim.lr_scaling, "none") << name;
    EXPECT_EQ(config.optim.warmup_from, std::nullopt) << name;
    EXPECT_EQ(rate_of(config).peak(), optim::AdamWOptions().lr) << name;
  }
}

TEST(ImageNetPresets, HelpFitsATerminalAndPrintedOptionsReadBack) {
  const std::string help = config::help_text(imagenet_defaults());
  std::istringstream lines(help);
  for (std::string line; std::getline(lines, line);) EXPECT_LT(line.size(), 80U) << line;
  for (const config::Preset& one : imagenet_presets()) {
    for (const config::PresetValue& value : one.values) EXPECT_FALSE(value.source.empty()) << value.option;
    const Config config = with({"--run.preset", one.name, "--train.global_batch", "8192"});
    const tests::TemporaryFolder folder;
    const std::string file = folder.write("config.toml", config::to_toml(config)).string();
    EXPECT_EQ(config::to_toml(with({"--config", file})), config::to_toml(config)) << one.name;
  }
}

TEST(ImageNetPresets, AnEmptyWarmUpIsNone) {
  EXPECT_EQ(with({}).optim.warmup, "5 epochs");
  EXPECT_EQ(with({"--optim.warmup", ""}).optim.warmup, "");
  EXPECT_EQ(with({"--optim.warmup", ""}).optim.warmup_steps, 0);
  EXPECT_EQ(with({"--run.preset", "goyal", "--optim.warmup", "", "--optim.warmup_steps", "7"}).optim.warmup_steps, 7);
}

// ---- the plan

std::string plan(const std::vector<std::string>& arguments, const PlanOf& of) { return plan_of(with(arguments), of); }

constexpr std::int64_t kAll = kImageNetSamples;

TEST(PlanTest, HasALineForEachChange) {
  EXPECT_EQ(plan({"--run.preset", "goyal", "--train.global_batch", "8192"},
                 {.name = "resnet50", .samples = kAll, .batch_per_rank = 32, .ranks = 256}),
            "resnet50: global batch 8192 on 256 ranks, 1281167 samples and 157 steps an epoch, 14130 steps\n"
            "     step    epoch      samples   rate\n"
            "        0     0.00            0   0.1          warm-up to 3.2 at step 785\n"
            "      157     1.00      1281167   0.72         warm-up to 3.2 at step 785\n"
            "      314     2.00      2562334   1.34         warm-up to 3.2 at step 785\n"
            "      471     3.00      3843501   1.96         warm-up to 3.2 at step 785\n"
            "      628     4.00      5124668   2.58         warm-up to 3.2 at step 785\n"
            "      785     5.00      6405835   3.2          end of the warm-up\n"
            "     4710    30.00     38435010   0.32\n"
            "     9420    60.00     76870020   0.032\n"
            "    12560    80.00    102493360   0.0032\n"
            "    14130    90.00    115305030                end\n");
}

TEST(PlanTest, FollowsTheBatchOfItsRanks) {
  const std::string text = plan({"--run.preset", "goyal"}, {.samples = kAll, .batch_per_rank = 32, .ranks = 8});
  EXPECT_THAT(text, HasSubstr("global batch 256 on 8 ranks, 1281167 samples and 5005 steps an epoch, 450450 steps"));
  EXPECT_THAT(text, HasSubstr("\n        0     0.00            0   0.1          warm-up to 0.1 at step 25025\n"
                              "    25025     5.00      6405835   0.1          end of the warm-up\n"
                              "   150150    30.00     38435010   0.01\n"));
  EXPECT_THAT(plan({"--mesh.tp", "2"}, {.samples = 64, .batch_per_rank = 4, .ranks = 8}),
              HasSubstr("global batch 16 on 8 ranks"));
}

TEST(PlanTest, ASmoothScheduleHasALineAnEpoch) {
  EXPECT_EQ(plan({"--optim.lr", "1", "--optim.warmup_steps", "0", "--optim.schedule", "polynomial", "--train.epochs",
                  "2", "--train.max_steps", "15", "--train.global_batch", "3"},
                 {.name = "r", .samples = 29, .batch_per_rank = 1}),
            "r: global batch 3 on 1 rank, 29 samples and 10 steps an epoch, 15 steps\n"
            "     step    epoch      samples   rate\n"
            "        0     0.00            0   1\n"
            "       10     1.00           29   0.333333\n"
            "       14     1.40           41   0.0666667\n"
            "       15     1.50           44                end\n");
  EXPECT_EQ(plan({"--optim.lr", "1", "--optim.warmup", "5", "--train.epochs", "1", "--train.global_batch", "1"},
                 {.name = "r", .samples = 9}),
            "r: global batch 1 on 1 rank, 9 samples and 9 steps an epoch, 9 steps\n"
            "     step    epoch      samples   rate\n"
            "        0     0.00            0   0.2          warm-up to 1 at step 5\n"
            "        5     0.56            5   1            end of the warm-up\n"
            "        9     1.00            9                end\n");
  EXPECT_THAT(plan({"--optim.schedule", "plateau", "--optim.warmup_steps", "0", "--train.epochs", "1"},
                   {.samples = 10, .batch_per_rank = 5}),
              HasSubstr("when test_loss stops improving"));
}

TEST(PlanTest, NeedsTheNumberOfSamples) {
  EXPECT_THAT(plan({"--data.limit", "40", "--train.epochs", "1"}, {.batch_per_rank = 10}),
              HasSubstr("4 steps an epoch"));
  EXPECT_THAT(plan({"--data.limit", "40", "--train.overfit", "2", "--train.epochs", "1"}, {.batch_per_rank = 10}),
              HasSubstr("20 samples and 2 steps an epoch"));
  try {
    plan({}, {.batch_per_rank = 10});
    ADD_FAILURE() << "no error";
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kConfiguration);
    EXPECT_THAT(error.what(), HasSubstr("--data.limit"));
  }
  EXPECT_THROW(plan({"--mesh.tp", "2"}, {.samples = 5, .batch_per_rank = 10, .ranks = 3}), InvalidArgument);
}

}  // namespace
}  // namespace reigen::train::imagenet_presets_test
