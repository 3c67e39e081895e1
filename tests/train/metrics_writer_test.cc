#include "reigen/train/metrics_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "reigen/base/error.h"

namespace reigen::train::metrics_writer_test {
namespace {

std::vector<std::string> keys_of(const std::string& line) {
  const auto json = nlohmann::ordered_json::parse(line);
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.push_back(key);
  return keys;
}

class MetricsWriterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = std::filesystem::temp_directory_path() / ("reigen_metrics_test_" + std::to_string(::getpid()) + ".jsonl");
    std::filesystem::remove(path_);
  }
  void TearDown() override { std::filesystem::remove(path_); }

  std::string content() const {
    std::ifstream in(path_);
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
  }

  void write_steps(std::int64_t first, std::int64_t last, std::int64_t keep) {
    MetricsWriter writer(path_, keep);
    for (std::int64_t step = first; step <= last; ++step)
      writer.write(StepMetrics{.step = step, .loss = 1.0 / static_cast<double>(step)});
    writer.flush();
  }

  std::filesystem::path path_;
};

TEST_F(MetricsWriterTest, ALineHasTheDocumentedKeysInOrder) {
  const std::string line =
      to_json_line(StepMetrics{.step = 3, .epoch = 1, .loss = 0.1 + 0.2, .lr = 1e-3, .step_ms = 12.5});
  const auto json = nlohmann::ordered_json::parse(line);
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.push_back(key);
  EXPECT_THAT(keys, ::testing::ElementsAre("step", "epoch", "loss", "lr", "samples_per_s", "step_ms", "data_ms",
                                           "forward_ms", "backward_ms", "comm_exposed_ms", "optimizer_ms"));
  EXPECT_EQ(json["loss"].get<double>(), 0.1 + 0.2);  // all significant digits are written
  EXPECT_EQ(line.back(), '\n');
}

TEST_F(MetricsWriterTest, TheGradientsNormIsTheLastKeyWhereThereIsOne) {
  const std::string line = to_json_line(StepMetrics{.step = 3, .grad_norm = 0.1 + 0.2});
  const auto json = nlohmann::ordered_json::parse(line);
  EXPECT_EQ(json["grad_norm"].get<double>(), 0.1 + 0.2);
  EXPECT_EQ((--json.end()).key(), "grad_norm");
}

TEST_F(MetricsWriterTest, GoingOnCutsLaterLinesAndATornOne) {
  write_steps(1, 5, 0);
  const std::string whole = content();
  std::ofstream(path_, std::ios::app) << "{\"step\":6,\"ep";
  write_steps(4, 5, 3);
  EXPECT_EQ(content(), whole);
}

TEST_F(MetricsWriterTest, TheWallClockStandsBehindTheTimes) {
  const auto json = nlohmann::json::parse(to_json_line(StepMetrics{.step = 3, .time = 1764178260.125}));
  EXPECT_EQ(json["time"].get<double>(), 1764178260.125);
  const double now = seconds_since_1970();
  EXPECT_GT(now, 1.7e9);
  EXPECT_GE(seconds_since_1970(), now);
}

TEST_F(MetricsWriterTest, ALineOfAValidation) {
  const std::string line = to_json_line(ValidationMetrics{
      .step = 3, .epoch = 1, .figures = {{"test_loss", 0.25}, {"a\"b", 2.5}}, .samples = 8, .time = 7});
  EXPECT_THAT(keys_of(line), ::testing::ElementsAre("step", "epoch", "test_loss", "a\"b", "test_samples", "time"));
  EXPECT_TRUE(
      nlohmann::json::parse(to_json_line(ValidationMetrics{.figures = {{"test_loss", NAN}}}))["test_loss"].is_null());
}

TEST_F(MetricsWriterTest, LinesWithWhatTheTaskHasLogged) {
  const std::string step = to_json_line(StepMetrics{.step = 3, .grad_norm = 2, .logged = {{"hits", 0.5}}});
  EXPECT_EQ(keys_of(step).back(), "hits");
  const std::string epoch = to_json_line(EpochMetrics{.step = 3, .epoch = 1, .figures = {{"a", 0.25}, {"b", NAN}}});
  EXPECT_EQ(epoch, "{\"step\":3,\"epoch\":1,\"epoch_means\":{\"a\":0.25,\"b\":null}}\n");
}

// A validation after a step that is kept is kept too. A later validation is cut with its step.
TEST_F(MetricsWriterTest, ValidationsAreCutWithTheirSteps) {
  MetricsWriter writer(path_, 0);
  for (std::int64_t step = 1; step <= 4; ++step) {
    writer.write(StepMetrics{.step = step, .loss = 1});
    if (step % 2 == 0) writer.write(ValidationMetrics{.step = step, .figures = {{"test_loss", 1}}});
  }
  writer.flush();
  const auto lines_kept = [&](std::int64_t step) {
    const MetricsWriter again(path_, step);
    const std::string text = content();
    return std::count(text.begin(), text.end(), '\n');
  };
  EXPECT_EQ(lines_kept(4), 6);
  EXPECT_EQ(lines_kept(3), 4);
  EXPECT_EQ(lines_kept(2), 3);
  EXPECT_THROW(lines_kept(3), DataError);
}

// A limit on the file size stands in for a full disk: both make write() fail half way.
TEST_F(MetricsWriterTest, ADiskThatIsFullForAWhileLosesNoLine) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{5000, before.rlim_max};
  std::string trouble;
  {
    MetricsWriter writer(path_, 0);
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    for (std::int64_t step = 1; step <= 1000; ++step) writer.write(StepMetrics{.step = step, .loss = 1});
    EXPECT_THROW(writer.flush(), IoError);
    trouble = writer.trouble();
    EXPECT_EQ(content().size(), 5000U);
    setrlimit(RLIMIT_FSIZE, &before);
    writer.flush();
    EXPECT_EQ(writer.trouble(), "");
  }
  std::signal(SIGXFSZ, old_handler);
  EXPECT_THAT(trouble, ::testing::HasSubstr("File too large"));
  const std::string full = content();
  std::string expected;
  for (std::int64_t step = 1; step <= 1000; ++step) expected += to_json_line(StepMetrics{.step = step, .loss = 1});
  EXPECT_EQ(full, expected);
}

TEST_F(MetricsWriterTest, AMissingStepIsRefused) {
  write_steps(1, 3, 0);
  EXPECT_THROW(MetricsWriter(path_, 4), DataError);
  write_steps(1, 3, 0);
  const std::string text = content();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);  // a new start deletes the old lines
}

// A run began here with a checkpoint of step 3 from another directory, and goes back to that checkpoint.
TEST_F(MetricsWriterTest, LinesThatBeginBehindTheStepAreCut) {
  write_steps(4, 7, 0);
  EXPECT_THROW(MetricsWriter(path_, 2), DataError);
  const MetricsWriter again(path_, 3);
  EXPECT_EQ(content(), "");
}

TEST_F(MetricsWriterTest, AMissingFolderIsAnIoError) {
  EXPECT_THROW(MetricsWriter("/nowhere/at/all/metrics.jsonl", 0), IoError);
}

}  // namespace
}  // namespace reigen::train::metrics_writer_test
