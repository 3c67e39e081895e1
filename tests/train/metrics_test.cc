#include "reigen/train/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "reigen/base/error.h"

namespace reigen::train {
namespace {

class MetricsTest : public ::testing::Test {
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
      writer.write({.step = step, .loss = 1.0 / static_cast<double>(step)});
    writer.flush();
  }

  std::filesystem::path path_;
};

TEST_F(MetricsTest, ALineHasTheDocumentedKeysInOrder) {
  const std::string line = to_json_line({.step = 3, .epoch = 1, .loss = 0.1 + 0.2, .lr = 1e-3, .step_ms = 12.5});
  const auto json = nlohmann::ordered_json::parse(line);
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.push_back(key);
  EXPECT_THAT(keys, ::testing::ElementsAre("step", "epoch", "loss", "lr", "samples_per_s", "step_ms", "data_ms",
                                           "forward_ms", "backward_ms", "comm_exposed_ms", "optimizer_ms"));
  EXPECT_EQ(json["loss"].get<double>(), 0.1 + 0.2);  // every digit that counts
  EXPECT_EQ(line.back(), '\n');
}

TEST_F(MetricsTest, TheGradientsNormIsTheLastKeyWhereThereIsOne) {
  const std::string line = to_json_line({.step = 3, .grad_norm = 0.1 + 0.2});
  const auto json = nlohmann::ordered_json::parse(line);
  EXPECT_EQ(json["grad_norm"].get<double>(), 0.1 + 0.2);
  EXPECT_EQ((--json.end()).key(), "grad_norm");
}

TEST_F(MetricsTest, GoingOnCutsLaterLinesAndATornOne) {
  write_steps(1, 5, 0);
  const std::string whole = content();
  std::ofstream(path_, std::ios::app) << "{\"step\":6,\"ep";
  write_steps(4, 5, 3);
  EXPECT_EQ(content(), whole);
}

TEST_F(MetricsTest, AMissingStepIsRefused) {
  write_steps(1, 3, 0);
  EXPECT_THROW(MetricsWriter(path_, 4), DataError);
  write_steps(1, 3, 0);
  const std::string text = content();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);  // a new start forgets what was there
}

TEST_F(MetricsTest, AMissingFolderIsAnIoError) {
  EXPECT_THROW(MetricsWriter("/nowhere/at/all/metrics.jsonl", 0), IoError);
}

}  // namespace
}  // namespace reigen::train
