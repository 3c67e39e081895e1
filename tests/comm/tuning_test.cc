// Lines through measured times, switch points, the file of a tuning, and the explanation of a choice.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "comm/tuning/explain.h"
#include "comm/tuning/model.h"
#include "comm/tuning/table.h"
#include "comm/tuning/tuned.h"
#include "reigen/base/bytes.h"
#include "reigen/base/error.h"

namespace reigen::comm::tuning {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<Sample> samples_of(double alpha, double beta, double noise = 0) {
  std::vector<Sample> samples;
  double sign = 1;
  for (double bytes = 256; bytes <= 1 << 20; bytes *= 8) {
    samples.push_back({bytes, (alpha + beta * bytes) * (1 + sign * noise)});
    sign = -sign;
  }
  return samples;
}

TEST(Fit, RecoversWhatMadeTheTimes) {
  const Line line = fit(samples_of(5e-6, 2e-10));
  EXPECT_NEAR(line.alpha, 5e-6, 1e-12);
  EXPECT_NEAR(line.beta, 2e-10, 1e-16);
}

TEST(Fit, NoiseMovesItLittle) {
  const Line line = fit(samples_of(5e-6, 2e-10, 0.1));
  EXPECT_NEAR(line.alpha, 5e-6, 1e-6);
  EXPECT_NEAR(line.beta, 2e-10, 0.4e-10);
}

TEST(Fit, NeitherPartIsBelowNothing) {
  const std::vector<Sample> falling = {{100, 2e-6}, {1000, 1e-6}};
  EXPECT_EQ(fit(falling).beta, 0);
  EXPECT_GT(fit(falling).alpha, 0.9e-6);
  const std::vector<Sample> steep = {{1000, 1e-6}, {2000, 4e-6}};
  EXPECT_EQ(fit(steep).alpha, 0);
  EXPECT_GT(fit(steep).beta, 0);
  EXPECT_EQ(fit(std::vector<Sample>{{1000, 3e-6}}).at(5), 3e-6);
}

std::vector<std::string> as_text(const std::vector<Piece>& pieces) {
  std::vector<std::string> text;
  for (const Piece& piece : pieces) text.push_back(piece.algorithm + " from " + std::to_string(piece.from));
  return text;
}

TEST(Cheapest, SwitchesWhereLinesCross) {
  const std::vector<Candidate> candidates = {
      {"direct", {20e-6, 1e-9}}, {"flat", {10e-6, 2e-9}}, {"ring", {30e-6, 3e-9}}};
  const auto pieces = cheapest(candidates);
  EXPECT_THAT(as_text(pieces), ElementsAre("flat from 0", "direct from 7273"));
  EXPECT_EQ(rules_of("all_reduce", pieces), "all_reduce:flat@<8K,all_reduce:direct");
}

TEST(Cheapest, OneThatIsAlwaysBest) {
  const std::vector<Candidate> candidates = {{"direct", {20e-6, 2e-9}}, {"flat", {10e-6, 1e-9}}};
  EXPECT_EQ(rules_of("all_reduce", cheapest(candidates)), "all_reduce:flat");
  EXPECT_EQ(rules_of("gather", cheapest(std::vector<Candidate>{{"flat", {1e-6, 0}}})), "gather:flat");
  const std::vector<Candidate> equal = {{"a", {1e-6, 1e-9}}, {"b", {1e-6, 1e-9}}};
  EXPECT_EQ(rules_of("reduce", cheapest(equal)), "reduce:a");
}

TEST(Cheapest, ALittleLessIsNoise) {
  const std::vector<Candidate> candidates = {{"direct", {10e-6, 1e-9}}, {"flat", {9.5e-6, 0.95e-9}}};
  EXPECT_THAT(as_text(cheapest(candidates)), ElementsAre("direct from 0"));
}

TEST(Cheapest, OneThatCannotRunBeyondALimit) {
  const std::vector<Candidate> candidates = {
      {"one_shot", {1e-6, 1e-10}, 2048}, {"fused", {3e-6, 1e-10}}, {"two_shot", {3e-6, 2e-10}}};
  const auto pieces = cheapest(candidates);
  EXPECT_THAT(as_text(pieces), ElementsAre("one_shot from 0", "fused from 2049"));
  EXPECT_EQ(rules_of("all_reduce", pieces), "all_reduce:one_shot@<2560,all_reduce:fused");
}

TEST(ExactBytes, AreReadAsTheSameNumber) {
  for (const std::size_t bytes : {0U, 1U, 1023U, 1024U, 2560U, 24U << 10, 1280U << 10, 3U << 30}) {
    EXPECT_EQ(parse_bytes(exact_bytes(bytes)), bytes);
  }
  EXPECT_EQ(exact_bytes(24 << 10), "24K");
}

const char* const kText =
    "reigen tuning 1\nhost node1\nbackend tcp\nranks 2\n"
    "time all_reduce flat 12.300 us 1.25 GB/s\n"
    "rules all_reduce:flat@<24K,all_reduce:direct\nrules broadcast:tree\nend\n";

TEST(Table, IsReadAsItWasWritten) {
  const Table table = parse(kText, "file");
  EXPECT_EQ(table.host, "node1");
  EXPECT_EQ(table.ranks, 2);
  EXPECT_EQ(table.rules, "all_reduce:flat@<24K,all_reduce:direct,broadcast:tree");
  ASSERT_EQ(table.timings.size(), 1U);
  EXPECT_NEAR(table.timings[0].line.beta, 0.8e-9, 1e-15);
  EXPECT_EQ(to_text(table), kText);
}

TEST(Table, EveryLineThatIsLostOrChangedIsSeen) {
  const std::string text = kText;
  for (std::size_t length = 0; length < text.size(); ++length) {
    EXPECT_THROW(parse(text.substr(0, length), "file"), DataError) << length;
  }
  const auto refusal = [&](const std::string& from, const std::string& to) -> std::string {
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    try {
      parse(changed, "file");
    } catch (const DataError& error) {
      return error.what();
    }
    return "it was taken";
  };
  EXPECT_THAT(refusal("tuning 1", "tuning 2"), HasSubstr("file:1: not a tuning file of this version"));
  EXPECT_THAT(refusal("backend tcp", "backend pigeon"), HasSubstr("file:3:"));
  EXPECT_THAT(refusal("ranks 2", "ranks two"), HasSubstr("file:4:"));
  EXPECT_THAT(refusal("12.300", "soon"), HasSubstr("file:5:"));
  EXPECT_THAT(refusal("flat@<24K", "flop@<24K"), HasSubstr("file:6: all_reduce has no algorithm \"flop\""));
  EXPECT_THAT(refusal("flat@<24K", "two_shot"), HasSubstr("file:6:"));
  EXPECT_THAT(refusal("\nend", "\nend\nmore"), HasSubstr("nothing behind end"));
}

class Cache : public ::testing::Test {
 protected:
  Cache() {
    std::string folder = ::testing::TempDir() + "reigen_cache_XXXXXX";
    folder_ = ::mkdtemp(folder.data());
    ::setenv("XDG_CACHE_HOME", folder_.c_str(), 1);
  }
  ~Cache() override {
    ::unsetenv("XDG_CACHE_HOME");
    std::filesystem::remove_all(folder_);
  }
  void write(const std::string& text) {
    std::filesystem::create_directories(folder_ / "reigen");
    std::ofstream(cache_path(Family::kTcp, 2)) << text;
  }

  std::filesystem::path folder_;
};

TEST_F(Cache, IsOneFileForEachBackendAndNumberOfRanks) {
  EXPECT_EQ(cache_path(Family::kSharedMemory, 4), folder_ / "reigen" / "tuning-shared_memory-4.txt");
  EXPECT_FALSE(read_cache(Family::kTcp, 2).has_value());
  write(kText);
  EXPECT_EQ(read_cache(Family::kTcp, 2)->host, "node1");
  std::filesystem::copy_file(cache_path(Family::kTcp, 2), cache_path(Family::kTcp, 3));
  EXPECT_THROW(read_cache(Family::kTcp, 3), DataError);
}

// Both ranks get the error of rank 0 with its type and exit code.
TEST_F(Cache, AnErrorOfRankZeroIsTheSameForAll) {
  std::filesystem::create_directories(cache_path(Family::kTcp, 2));  // a folder where a file should be
  GroupOptions options{.rank = 0, .size = 2, .store = store::make_memory_store(), .name = "g", .algorithms = "tuned"};
  for (const int rank : {0, 1}) {
    options.rank = rank;
    try {
      rules_in_force(options, Family::kTcp);
      ADD_FAILURE() << "no error";
    } catch (const IoError& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::kIo);
      EXPECT_THAT(error.what(), HasSubstr("cannot read"));
    }
  }
}

TEST_F(Cache, RankZeroTellsTheOthers) {
  const auto store = store::make_memory_store();
  GroupOptions options{.rank = 0, .size = 2, .store = store, .name = "g", .backend = "tcp", .algorithms = "tuned"};
  const auto refusal = [&]() -> std::string {
    try {
      rules_in_force(options, Family::kTcp);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "it was found";
  };
  EXPECT_THAT(refusal(), HasSubstr("reigen tune -n 2 --backend tcp"));
  options.rank = 1;
  EXPECT_THAT(refusal(), HasSubstr("reigen tune -n 2 --backend tcp"));
  write(kText);
  options.name = "h";
  options.rank = 0;
  const std::string rules = rules_in_force(options, Family::kTcp);
  EXPECT_THAT(rules, HasSubstr("all_reduce:flat@<24K"));
  std::filesystem::remove_all(folder_);
  options.rank = 1;
  EXPECT_EQ(rules_in_force(options, Family::kTcp), rules);
  options.size = 1;
  EXPECT_EQ(rules_in_force(options, Family::kTcp), "");
}

TEST(Explain, RanksThatShareCoresCarryMore) {
  const AlgorithmChoice none("", Family::kSharedMemory);
  const auto end_of_one_shot = [&](OperationKind kind, int ranks, bool cores_for_all) {
    const auto all = spans(none, kind, ranks, cores_for_all);
    EXPECT_EQ(all.front().taken, (Taken{"one_shot", ""}));
    EXPECT_EQ(all.back().taken, (Taken{"fused", ""}));
    return all.front().to;
  };
  EXPECT_EQ(end_of_one_shot(OperationKind::kAllReduce, 8, true), 2 * kKiB);
  EXPECT_EQ(end_of_one_shot(OperationKind::kAllReduce, 4, false), 16 * kKiB);
  EXPECT_EQ(end_of_one_shot(OperationKind::kAllReduce, 8, false), 4 * kKiB);
  EXPECT_EQ(end_of_one_shot(OperationKind::kAllReduce, 64, false), 2 * kKiB);
  EXPECT_EQ(end_of_one_shot(OperationKind::kBroadcast, 16, false), 16 * kKiB);
  EXPECT_EQ(end_of_one_shot(OperationKind::kBroadcast, 17, false), 2 * kKiB);
  EXPECT_EQ(end_of_one_shot(OperationKind::kAllGather, 4, false), 64 * kKiB);
}

TEST(Explain, SaysWhatIsTakenWhereAndWhy) {
  const AlgorithmChoice none("", Family::kTcp);
  const auto usual = spans(none, OperationKind::kAllReduce, 4, false);
  ASSERT_EQ(usual.size(), 2U);
  EXPECT_EQ(usual[0].taken, (Taken{"flat", ""}));
  EXPECT_EQ(usual[0].to, 16 * kKiB);
  EXPECT_EQ(usual[1].taken, (Taken{"direct", ""}));
  EXPECT_EQ(usual[1].to, SIZE_MAX);
  const AlgorithmChoice choice("all_reduce:one_shot@<1M,all_reduce:two_shot@>1M", Family::kSharedMemory);
  const auto ways = spans(choice, OperationKind::kAllReduce, 2, true);
  ASSERT_EQ(ways.size(), 3U);
  EXPECT_EQ(ways[0].taken, (Taken{"one_shot", "all_reduce:one_shot@<1M"}));
  EXPECT_EQ(ways[0].to, 2048U);
  EXPECT_EQ(ways[1].taken, (Taken{"fused", ""}));
  EXPECT_EQ(ways[2].taken, (Taken{"two_shot", "all_reduce:two_shot@>1M"}));
  EXPECT_EQ(ways[2].from, kMiB + 1);
  EXPECT_EQ(spans(choice, OperationKind::kBarrier, 2, true).size(), 1U);
}

}  // namespace
}  // namespace reigen::comm::tuning
