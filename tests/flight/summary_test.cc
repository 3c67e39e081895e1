// Merges records made by hand: which lines the summary shows, and which it does not.
#include "flight/summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "flight/json.h"
#include "flight/merge.h"

namespace reigen::flight {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kNow = 1000 * kSecond;

ReadRank rank_of(int rank, int size) {
  return {.rank = rank, .size = size, .pid = 100 + rank, .host = "a", .groups = {{"world", rank, size}}};
}

// Adds a call that was made `ago` seconds before now and took one second.
ReadOperation& call(ReadRank& rank, std::uint64_t sequence, std::int64_t ago, Outcome outcome = Outcome::kDone,
                    std::uint64_t count = 8) {
  ReadOperation operation{.ticket = rank.operations.size(),
                          .group = "world",
                          .group_rank = rank.rank,
                          .group_size = rank.size,
                          .sequence = sequence,
                          .kind = "all_reduce",
                          .type = "float32",
                          .reduction = "sum",
                          .count = count,
                          .bytes = count * 4};
  operation.called = operation.started = kNow - ago * kSecond;
  operation.outcome = outcome;
  operation.ended = outcome == Outcome::kRunning ? 0 : operation.called + kSecond;
  return rank.operations.emplace_back(operation);
}

TEST(Merge, FindsTheFirstCallThatNotAllCompleted) {
  std::vector<ReadRank> ranks = {rank_of(0, 3), rank_of(1, 3), rank_of(2, 3)};
  for (std::uint64_t i = 0; i < 5; ++i) {
    for (ReadRank& rank : ranks) call(rank, i, 100);
  }
  call(ranks[0], 5, 50);
  call(ranks[0], 6, 40, Outcome::kRunning);
  call(ranks[2], 5, 30, Outcome::kRunning);
  const auto groups = merge(ranks);
  ASSERT_EQ(groups.size(), 1U);
  EXPECT_EQ(groups[0].completed, 4);
  EXPECT_EQ(groups[0].last, 6);
  EXPECT_FALSE(groups[0].is_at_rest());
  EXPECT_TRUE(groups[0].missing.empty());
  EXPECT_EQ(summary(ranks, kNow, 25),
            "  group \"world\", 3 ranks: all completed #4 all_reduce(8 float32, sum), 99.0 s ago\n"
            "    #5     rank 0  all_reduce(8 float32, sum)  done 49.0 s ago\n"
            "           rank 1  has not called it; its last: #4 all_reduce(8 float32, sum), done 99.0 s ago\n"
            "           rank 2  all_reduce(8 float32, sum)  unfinished, called 30.0 s ago\n"
            "    #6     rank 0  all_reduce(8 float32, sum)  unfinished, called 40.0 s ago\n");
}

TEST(Merge, RanksThatDidTheSameShareALine) {
  std::vector<ReadRank> ranks;
  for (int r = 0; r < 64; ++r) ranks.push_back(rank_of(r, 64));
  for (ReadRank& rank : ranks) call(rank, 0, 20);
  for (ReadRank& rank : ranks) {
    if (rank.rank != 17) call(rank, 1, 10 + rank.rank % 2, Outcome::kTimeout);
  }
  const std::string text = summary(ranks, kNow, 25);
  EXPECT_THAT(text,
              HasSubstr("    #1     ranks 0-16, 18-63  all_reduce(8 float32, sum)  failed after 1.0 s: timed out\n"));
  EXPECT_THAT(text, HasSubstr("           rank 17            has not called it; its last: #0"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
}

TEST(Merge, ShowsCallsThatDiffer) {
  std::vector<ReadRank> ranks = {rank_of(0, 2), rank_of(1, 2)};
  call(ranks[0], 0, 5, Outcome::kMismatch, 8);
  call(ranks[1], 0, 5, Outcome::kMismatch, 9).tag = "last";
  EXPECT_EQ(summary(ranks, kNow, 25),
            "  group \"world\", 2 ranks: no call that all have completed\n"
            "    #0     rank 0  all_reduce(8 float32, sum)         failed after 1.0 s: the calls differ\n"
            "           rank 1  all_reduce(9 float32, sum) \"last\"  failed after 1.0 s: the calls differ\n");
}

TEST(Merge, SaysLittleWhenNobodyWaits) {
  std::vector<ReadRank> ranks = {rank_of(0, 2), rank_of(1, 2)};
  EXPECT_EQ(summary(ranks, kNow, 25), "");
  for (ReadRank& rank : ranks) call(rank, 0, 5).root = 1;
  EXPECT_EQ(summary(ranks, kNow, 25),
            "  group \"world\", 2 ranks: all completed #0 all_reduce(8 float32, sum, root 1), 4.0 s ago\n");
  std::vector<ReadRank> alone = {rank_of(0, 1)};
  call(alone[0], 0, 5);
  EXPECT_EQ(summary(alone, kNow, 25), "");
}

TEST(Merge, RanksAgreeWhenAllHaveCompletedTheSame) {
  std::vector<ReadRank> ranks = {rank_of(0, 2), rank_of(1, 2)};
  EXPECT_TRUE(all_agree(ranks));
  call(ranks[0], 0, 5);
  EXPECT_FALSE(all_agree(ranks));
  call(ranks[1], 0, 5);
  EXPECT_TRUE(all_agree(ranks));
  ranks[1].pid = 0;
  EXPECT_FALSE(all_agree(ranks));
}

TEST(Merge, ShowsARankThatWaitsForNothingMore) {
  std::vector<ReadRank> ranks = {rank_of(0, 2), rank_of(1, 2)};
  call(ranks[0], 0, 5, Outcome::kRunning).started = 0;
  EXPECT_THAT(summary(ranks, kNow, 25), HasSubstr("rank 0  all_reduce(8 float32, sum)  not begun, called 5.0 s ago\n"));
  EXPECT_THAT(summary(ranks, kNow, 25), HasSubstr("rank 1  has not called anything yet\n"));
}

TEST(Merge, NamesRanksWithoutARecord) {
  std::vector<ReadRank> ranks = {rank_of(0, 3), {.rank = 1, .size = 3}};
  call(ranks[0], 0, 5, Outcome::kRunning);
  const std::string text = summary(ranks, kNow, 25);
  EXPECT_THAT(text, HasSubstr("  rank 1: nothing recorded, reigen::init() was not called\n"));
  EXPECT_THAT(text, HasSubstr("3 ranks (2 without a record)"));
  EXPECT_EQ(merge(ranks)[0].missing, (std::vector<int>{1, 2}));
}

TEST(Merge, DoesNotTakeAForgottenCallForOneThatNeverWas) {
  std::vector<ReadRank> ranks = {rank_of(0, 2), rank_of(1, 2)};
  call(ranks[0], 3, 5, Outcome::kRunning);
  ranks[1].groups.push_back({"other", 0, 2});
  ReadOperation& other = call(ranks[1], 9000, 1);
  other.ticket = 9000;
  other.group = "other";
  const std::string text = summary(ranks, kNow, 25);
  EXPECT_THAT(text, HasSubstr("rank 1  not in its record any more"));
  EXPECT_THAT(text, Not(HasSubstr("not called anything")));
}

TEST(Merge, GroupsOfSomeRanksNameThemByTheirNumberInTheJob) {
  std::vector<ReadRank> ranks = {rank_of(0, 4), rank_of(1, 4), rank_of(2, 4), rank_of(3, 4)};
  for (const int r : {1, 3}) {
    ReadRank& rank = ranks[static_cast<std::size_t>(r)];
    rank.groups.push_back({"world/0.1", r / 2, 2});
    if (r == 3) call(rank, 0, 5, Outcome::kRunning).group = "world/0.1";
  }
  EXPECT_EQ(summary(ranks, kNow, 25),
            "  group \"world/0.1\", ranks 1, 3: no call that all have completed\n"
            "    #0     rank 1  has not called anything yet\n"
            "           rank 3  all_reduce(8 float32, sum)  unfinished, called 5.0 s ago\n");
}

TEST(Merge, ShowsWhatTwoRanksHaveOpen) {
  std::vector<ReadRank> ranks = {rank_of(0, 2), rank_of(1, 2)};
  for (ReadRank& rank : ranks) call(rank, 0, 50);
  ReadOperation& send = call(ranks[1], 0, 5, Outcome::kRunning);
  send.kind = "send";
  send.reduction = "";
  send.between_two = true;
  send.root = 0;
  EXPECT_EQ(summary(ranks, kNow, 25),
            "  group \"world\", 2 ranks: all completed #0 all_reduce(8 float32, sum), 49.0 s ago\n"
            "    rank 1  send(8 float32, other 0)  unfinished, called 5.0 s ago\n");
}

TEST(Merge, StopsAfterTheLinesAllowed) {
  std::vector<ReadRank> ranks = {rank_of(0, 2), rank_of(1, 2)};
  ranks[0].groups.clear();
  for (int g = 0; g < 40; ++g) {
    const std::string name = "group " + std::to_string(g);
    ranks[0].groups.push_back({name, 0, 2});
    call(ranks[0], 0, 5, Outcome::kRunning).group = name;
  }
  const std::string text = summary(ranks, kNow, 25);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 25);
  EXPECT_THAT(text, HasSubstr("  ... 56 more lines\n"));
}

TEST(Merge, ManyCallsAheadAreCounted) {
  std::vector<ReadRank> ranks = {rank_of(0, 2), rank_of(1, 2)};
  for (std::uint64_t i = 0; i < 50; ++i) call(ranks[0], i, 5, Outcome::kRunning);
  EXPECT_THAT(summary(ranks, kNow, 25), HasSubstr("    up to #49 on rank 0\n"));
}

TEST(Words, DurationsAndRanks) {
  EXPECT_EQ(duration(-5), "0 us");
  EXPECT_EQ(duration(12'300), "12 us");
  EXPECT_EQ(duration(12'300'000), "12 ms");
  EXPECT_EQ(duration(1'500'000'000), "1.5 s");
  EXPECT_EQ(duration(125 * kSecond), "2 min 5 s");
  EXPECT_EQ(duration(3 * 3600 * kSecond), "3 h 0 min");
  EXPECT_EQ(rank_list({3}), "rank 3");
  EXPECT_EQ(rank_list({0, 1, 3, 4, 5, 7}), "ranks 0, 1, 3-5, 7");
}

TEST(Json, HasALineForEveryRankAndOperation) {
  std::vector<ReadRank> ranks = {rank_of(0, 2), {.rank = 1, .size = 2}};
  call(ranks[0], 4, 5, Outcome::kRunning).tag = "a \"b\"\n\xff \xc3\xa9";
  std::istringstream text(to_json_lines(ranks));
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(nlohmann::json::parse(line));
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0]["what"], "rank");
  EXPECT_EQ(lines[0]["groups"][0]["name"], "world");
  EXPECT_EQ(lines[1]["what"], "operation");
  EXPECT_EQ(lines[1]["tag"], "a \"b\"\n\xef\xbf\xbd \xc3\xa9");
  EXPECT_EQ(lines[1]["state"], "running");
  EXPECT_EQ(lines[1]["called_ns"], kNow - 5 * kSecond);
  EXPECT_TRUE(lines[1]["ended_ns"].is_null());
  EXPECT_TRUE(lines[1]["root"].is_null());
  EXPECT_EQ(lines[2]["pid"], 0);
}

}  // namespace
}  // namespace reigen::flight
