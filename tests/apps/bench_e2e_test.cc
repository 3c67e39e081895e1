// reigen bench: every operation is right on two and three ranks, and programs can read the output.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "harness/folders.h"
#include "launch/child_program.h"

namespace reigen {
namespace {

using launch::Ran;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::vector<std::string> kOperations = {"all_reduce", "reduce_scatter", "all_gather",  "broadcast",
                                              "reduce",     "gather",         "scatter",     "all_to_all",
                                              "barrier",    "send_recv",      "all_to_all_v"};

Ran bench(std::vector<std::string> words) {
  words.insert(words.begin(), {built("bin/reigen"), "bench"});
  return launch::run(words, {"WORLD_SIZE", "RANK"});
}

// Few iterations, because these tests only check whether the results are right.
Ran quick(std::vector<std::string> words) {
  words.insert(words.end(), {"--iters", "3", "--warmup", "1", "--check"});
  return bench(words);
}

// The lines of the table below its header, in words.
std::vector<std::vector<std::string>> rows_of(const std::string& out) {
  std::vector<std::vector<std::string>> rows;
  std::istringstream lines(out);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    rows.emplace_back();
    for (std::string word; words >> word;) rows.back().push_back(word);
  }
  return rows;
}

void expect_right(const Ran& ran) {
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.err, Not(HasSubstr("fix:")));  // a warning about few cores is allowed
  const auto rows = rows_of(ran.out);
  EXPECT_FALSE(rows.empty()) << ran.out;
  for (const auto& row : rows) {
    ASSERT_EQ(row.size(), 13U) << ran.out;
    EXPECT_EQ(row[8], "0") << ran.out;
  }
  EXPECT_THAT(ran.out, HasSubstr("# Out of bounds values : 0 OK"));
}

class Bench : public ::testing::TestWithParam<const char*> {};

TEST_P(Bench, EveryOperationIsRight) {
  for (const std::string& operation : kOperations) {
    SCOPED_TRACE(operation);
    expect_right(quick({operation, "-n", GetParam(), "-e", "4K"}));
  }
}

TEST_P(Bench, MemoryOfTheProcessAndInPlace) {
  for (const std::string& operation : kOperations) {
    SCOPED_TRACE(operation);
    std::vector<std::string> words = {operation, "-n", GetParam(), "-b", "1000", "-e", "1M", "-f", "1000", "--foreign"};
    if (operation.find("all_to_all") != 0 && operation != "send_recv") words.push_back("--in-place");
    expect_right(quick(words));
  }
}

TEST_P(Bench, TwoOperationsDoTheWorkOfOne) {
  const std::vector<std::pair<std::string, std::string>> cases = {{"all_reduce", "reduce+broadcast"},
                                                                  {"all_reduce", "reduce_scatter+all_gather"},
                                                                  {"all_gather", "gather+broadcast"}};
  for (const auto& [operation, two] : cases) {
    const Ran ran = quick({operation, "--as", two, "-n", GetParam(), "-r", "1", "-b", "4", "-e", "1M", "-f", "64"});
    expect_right(ran);
    EXPECT_THAT(ran.out, HasSubstr("starting: " + operation + " as " + two + "\n"));
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Bench, testing::Values("2", "3"));

TEST(BenchWaiting, SaysWhatWaitingCosts) {
  const Ran ran = quick({"barrier", "--late", "50"});
  expect_right(ran);
  EXPECT_THAT(ran.out, HasSubstr("% of a core while it waited"));
}

TEST(BenchShared, AllGatherMovesNothing) {
  expect_right(quick({"all_gather", "-n", "3", "-b", "4K", "-e", "1M", "-f", "256", "--shared"}));
}

TEST(BenchTypes, EveryTypeAndReduction) {
  for (const char* type : {"int8", "uint8", "int16", "int32", "int64", "half", "bfloat16", "double", "bool"}) {
    SCOPED_TRACE(type);
    expect_right(quick({"all_reduce", "-n", "3", "-b", "600", "-e", "600", "-d", type}));
  }
  for (const char* op : {"avg", "prod", "min", "max", "band", "bor", "bxor"}) {
    SCOPED_TRACE(op);
    expect_right(quick({"reduce_scatter", "-n", "3", "-b", "600", "-e", "600", "-d", "int32", "-o", op}));
  }
}

TEST(BenchRoot, AnyRankMayBeIt) {
  for (const char* operation : {"broadcast", "reduce", "gather", "scatter"}) {
    SCOPED_TRACE(operation);
    const Ran ran = quick({operation, "-n", "3", "-e", "4K", "-r", "2"});
    expect_right(ran);
    for (const auto& row : rows_of(ran.out)) EXPECT_EQ(row.at(4), "2");
  }
}

TEST(BenchRanks, OneIsEnoughAndALauncherMayStartThem) {
  expect_right(quick({"all_reduce", "-n", "1", "-e", "4K"}));
  expect_right(launch::run(launch::reigen_run({"-n", "2", "--prefix", "none", built("bin/reigen"), "bench",
                                               "all_gather", "-e", "4K", "--iters", "3", "--check"})));
  const Ran ran = launch::run(launch::reigen_run({"-n", "2", built("bin/reigen"), "bench", "barrier", "-n", "3"}));
  EXPECT_EQ(ran.code, 2);
  EXPECT_THAT(ran.err, HasSubstr("-n 3"));
}

TEST(BenchTable, HasTheColumnsOfNcclTests) {
  const Ran ran = bench({"reduce_scatter", "-b", "1K", "-e", "1K", "--iters", "5", "-d", "half", "-o", "max"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, AllOf(HasSubstr("# Collective test starting: reduce_scatter\n"), HasSubstr("out-of-place"),
                             HasSubstr("#       size         count      type   redop    root     time   algbw   busbw"),
                             HasSubstr("mean      p99      min   bound")));
  const auto rows = rows_of(ran.out);
  ASSERT_EQ(rows.size(), 1U);
  const std::vector<std::string> begin(rows[0].begin(), rows[0].begin() + 5);
  EXPECT_THAT(begin, testing::ElementsAre("1024", "256", "half", "max", "-1"));
  EXPECT_EQ(rows[0].at(8), "N/A");
}

TEST(BenchJson, HasARowForEachSize) {
  std::string folder = testing::TempDir() + "reigen_bench_XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string file = folder + "/rows.json";
  expect_right(quick({"all_reduce", "-e", "64", "--json", file}));
  const auto rows = nlohmann::json::parse(std::ifstream(file));
  ASSERT_EQ(rows.size(), 3U);
  for (const auto& row : rows) {
    std::vector<std::string> keys;
    for (const auto& [key, value] : row.items()) keys.push_back(key);
    EXPECT_THAT(keys,
                testing::UnorderedElementsAre("op", "ranks", "bytes", "dtype", "backend", "algorithm", "time_us_p50",
                                              "time_us_min", "algbw_gbps", "busbw_gbps", "bound_fraction", "wrong"));
    EXPECT_EQ(row["op"], "all_reduce");
    EXPECT_EQ(row["ranks"], 2);
    EXPECT_EQ(row["dtype"], "float32");
    EXPECT_EQ(row["algorithm"], "one_shot");
    EXPECT_EQ(row["wrong"], 0);
    EXPECT_GT(row["time_us_p50"].get<double>(), 0);
    EXPECT_GE(row["time_us_p50"].get<double>(), row["time_us_min"].get<double>());
  }
  EXPECT_EQ(rows[2]["bytes"], 64);
  EXPECT_EQ(bench({"barrier", "--iters", "3", "--json", file}).code, 0);
  const auto barrier = nlohmann::json::parse(std::ifstream(file));
  EXPECT_TRUE(barrier.at(0).at("bound_fraction").is_null());
  EXPECT_TRUE(barrier.at(0).at("wrong").is_null());
  std::filesystem::remove_all(folder);
  EXPECT_EQ(bench({"barrier", "--iters", "3", "--json", file}).code, 74);
}

TEST(BenchAlgorithm, OneThatNoSizeTookIsWarnedOf) {
  const Ran ran = bench({"all_reduce", "-b", "64K", "-e", "64K", "--iters", "3", "--algorithm", "ring"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("no size took --algorithm ring: auto took fused"));
}

TEST(BenchJson, NamesTheAlgorithmThatRan) {
  std::string folder = testing::TempDir() + "reigen_bench_XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string file = folder + "/rows.json";
  const auto algorithms_of = [&](std::vector<std::string> words) {
    words.insert(words.end(), {"-b", "1K", "-e", "64K", "-f", "64", "--json", file});
    expect_right(quick(words));
    std::vector<std::string> algorithms;
    for (const auto& row : nlohmann::json::parse(std::ifstream(file))) algorithms.push_back(row["algorithm"]);
    return algorithms;
  };
  using testing::ElementsAre;
  EXPECT_THAT(algorithms_of({"all_reduce"}), ElementsAre("one_shot", "fused"));
  EXPECT_THAT(algorithms_of({"all_reduce", "--foreign"}), ElementsAre("one_shot", "two_shot"));
  EXPECT_THAT(algorithms_of({"all_gather", "--algorithm", "two_shot"}), ElementsAre("two_shot", "two_shot"));
  EXPECT_THAT(algorithms_of({"all_reduce", "--algorithm", "one_shot"}), ElementsAre("one_shot", "fused"));
  EXPECT_THAT(algorithms_of({"all_reduce", "--backend", "tcp"}), ElementsAre("flat", "direct"));
  EXPECT_THAT(algorithms_of({"reduce_scatter_v", "--backend", "tcp", "--algorithm", "ring"}),
              ElementsAre("ring", "ring"));
  EXPECT_THAT(algorithms_of({"all_reduce", "-n", "1"}), ElementsAre("self", "self"));
  std::filesystem::remove_all(folder);
}

TEST(BenchExplain, SaysWhatWouldRunAndWhy) {
  const auto lines_of = [](std::vector<std::string> words) {
    words.insert(words.end(), {"--explain", "-b", "1K", "-e", "4M", "-f", "64"});
    const Ran ran = bench(words);
    EXPECT_EQ(ran.code, 0) << ran.err;
    std::vector<std::string> lines;
    for (const auto& row : rows_of(ran.out)) {
      lines.emplace_back();
      for (const std::string& word : row) lines.back() += (lines.back().empty() ? "" : " ") + word;
    }
    return lines;
  };
  using testing::ElementsAre;
  EXPECT_THAT(lines_of({"all_reduce"}),
              ElementsAre("1024 one_shot built in", "65536 fused built in", "4194304 fused built in"));
  EXPECT_THAT(lines_of({"all_reduce", "--algorithm", "two_shot@>1M"}).back(),
              "4194304 two_shot rule all_reduce:two_shot@>1M");
  EXPECT_THAT(lines_of({"all_reduce", "--backend", "tcp"}),
              ElementsAre("1024 flat built in", "65536 direct built in", "4194304 direct built in"));
  EXPECT_THAT(lines_of({"all_reduce", "--foreign"}).back(), HasSubstr("two_shot built in; fused is for memory"));
  EXPECT_THAT(lines_of({"all_reduce", "-n", "4", "--machines", "2"}).front(),
              AllOf(HasSubstr("shared_memory reduce_scatter_v by one_shot"), HasSubstr("tcp all_reduce by flat")));
  EXPECT_EQ(bench({"send_recv", "--explain"}).code, 2);
  EXPECT_EQ(bench({"all_reduce", "--explain", "--backend", "mpi"}).code, 2);
}

struct Wrong {
  std::vector<std::string> words;
  std::string text;
};

TEST(BenchCommandLine, WhatIsWrongIsSaidOnceBeforeARankIsStarted) {
  const std::vector<Wrong> cases = {
      {{}, "OP"},
      {{"allreduce"}, "did you mean all_reduce?"},
      {{"xyzzy"}, "unknown operation"},
      {{"all_reduce", "-d", "flaot"}, "did you mean float?"},
      {{"all_reduce", "-d", "uint128"}, "unknown type"},
      {{"all_reduce", "-o", "mulsum"}, "unknown reduction"},
      {{"all_reduce", "-d", "float", "-o", "bxor"}, "not defined"},
      {{"reduce", "-d", "bool", "-o", "avg"}, "not defined"},
      {{"all_reduce", "-b", "8K", "-e", "4K"}, "fix: -b 4K -e 8K"},
      {{"all_reduce", "-f", "1"}, "-f is out of range"},
      {{"all_reduce", "-f", "x"}, "-f"},
      {{"all_reduce", "-b", "12X"}, "got: -b 12X"},
      {{"all_reduce", "-e", "big"}, "got: -e big"},
      {{"all_reduce", "-b", "0"}, "got: -b 0"},
      {{"all_reduce", "-n", "two"}, "got: -n two"},
      {{"all_reduce", "-n", "0"}, "got: -n 0   expected: at least 1"},
      {{"all_reduce", "-np", "2"}, "the number of ranks is -n N"},
      {{"all_reduce", "--late", "x"}, "got: --late x   expected: a number"},
      {{"all_reduce", "--backend", "self"}, "self is one rank alone"},
      {{"all_reduce", "--iters", "0"}, "--iters"},
      {{"all_reduce", "--warmup", "-1"}, "--warmup"},
      {{"all_reduce", "--chek"}, "did you mean `--check`?"},
      {{"broadcast", "-n", "2", "-r", "2"}, "expected: 0 to 1"},
      {{"broadcast", "-r", "-1"}, "no such root"},
      {{"all_to_all", "--in-place"}, "never in place"},
      {{"send_recv", "-n", "1"}, "somebody to send to"},
      {{"all_reduce", "--shared"}, "--shared is for all_gather"},
      {{"all_reduce", "--late", "-5"}, "--late is out of range"},
      {{"reduce", "--as", "gather+broadcast"}, "expected: all_reduce or all_gather"},
      {{"all_reduce", "--as", ""}, "not two operations that do the work of all_reduce"},
      {{"all_reduce", "-n", "2", "-r", "2", "--as", "reduce+broadcast"}, "expected: 0 to 1"},
      {{"all_gather", "--as", "gather+brodcast"}, "did you mean gather+broadcast?"},
      {{"all_gather", "--as", "gather+broadcast", "--algorithm", "fused"}, "fix: leave --algorithm out"},
      {{"all_reduce", "--algorithm", "rnig"}, "fix: --algorithm ring"},
      {{"all_reduce", "--algorithm", "all_reduce:ring"}, "fix: --algorithm ring"},
      {{"all_reduce", "--backend", "tpc"}, "did you mean tcp?"},
      {{"all_reduce", "--machines", "0"}, "--machines is out of range"},
      {{"all_reduce", "-n", "2", "--machines", "3"}, "more machines than ranks"},
      {{"all_reduce", "--machines", "2", "--backend", "shared_memory"}, "fix: leave --machines out"},
      {{"all_reduce", "--segments", "4", "--backend", "shared_memory"}, "fix: leave --segments out"},
      {{"all_reduce", "--foreign", "--device", "cuda"}, "got: --foreign"},
      {{"all_gather", "--shared", "--backend", "nccl"}, "got: --shared"},
      {{"all_reduce", "--device", "gpu"}, "expected: cpu, cuda or cuda:N"},
      {{"all_reduce", "--algorithm", "magic"}, "one_shot, fused, two_shot (shared_memory)"},
      {{"all_reduce", "--backend", "tcp", "--algorithm", "two_shot"}, "expected: direct, flat"},
  };
  for (const Wrong& wrong : cases) {
    const Ran ran = bench(wrong.words);
    SCOPED_TRACE(testing::PrintToString(wrong.words));
    EXPECT_EQ(ran.code, 2);
    EXPECT_THAT(ran.err, AllOf(HasSubstr(wrong.text), testing::StartsWith("reigen: "),
                               Not(testing::ContainsRegex("rank [0-9]"))));
    EXPECT_EQ(ran.out, "");
    EXPECT_LE(std::count(ran.err.begin(), ran.err.end(), '\n'), 3) << ran.err;
  }
}

TEST(BenchCommandLine, Help) {
  const Ran ran = bench({"--help"});
  EXPECT_EQ(ran.code, 0);
  EXPECT_THAT(ran.out, AllOf(HasSubstr("Usage: reigen bench OP"), HasSubstr("reduce_scatter"), HasSubstr("--check")));
  EXPECT_EQ(launch::run({built("bin/reigen"), "help", "bench"}).out, ran.out);
}

}  // namespace
}  // namespace reigen
