// The timeline of all ranks: its events on one clock, and the trainer's trace of some steps.
#include "reigen/train/timeline.h"

#include <ATen/ATen.h>

#include <map>

#include "train/small_run.h"
#include "train/watch/clock_offset.h"
#include "train/watch/step_trace.h"

namespace reigen::train {
namespace {

using Json = nlohmann::json;

TEST(ClockOffset, IsThatOfTheShortestRoundTrip) {
  EXPECT_EQ(offset_of({{.left = 100, .answered = 1105, .returned = 110}}), 1000);
  EXPECT_EQ(offset_of({{.left = 100, .answered = 9000, .returned = 9100},
                       {.left = 100, .answered = 1102, .returned = 104},
                       {.left = 100, .answered = 500, .returned = 200}}),
            1000);
}

TEST(ClockOffset, MovesOtherMachinesToTheClockOfRank0) {
  std::vector<std::int64_t> offsets(4, -1);
  const std::vector<std::string> machines{"a", "b", "a", "c"};
  const std::vector<std::int64_t> ahead{0, 5'000'000'000, 0, -7'000'000'000};
  run_threads(4, [&](Communicator& world) {
    const auto rank = static_cast<std::size_t>(world.rank());
    offsets[rank] = offset_to_rank_0(world, machines, [&] { return Timeline::now() + ahead[rank]; });
  });
  EXPECT_EQ(offsets[0], 0);
  EXPECT_EQ(offsets[2], 0);
  EXPECT_NEAR(static_cast<double>(offsets[1]), -5e9, 1e8);
  EXPECT_NEAR(static_cast<double>(offsets[3]), 7e9, 1e8);
}

// The complete events of each rank, by rank.
std::map<int, std::vector<Json>> events_by_rank(const Json& trace) {
  std::map<int, std::vector<Json>> events;
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] == "X") events[event["pid"].get<int>()].push_back(event);
  }
  return events;
}

// The events of this name. After the name of the first bucket's call comes a hash, by which ranks compare weights.
std::vector<Json> named(const std::vector<Json>& events, const std::string& name) {
  std::vector<Json> found;
  for (const Json& event : events) {
    const std::string of_event = event["name"];
    if (of_event == name || of_event.starts_with(name + " weights ")) found.push_back(event);
  }
  return found;
}

double begin_of(const Json& event) { return event["ts"].get<double>(); }
double end_of(const Json& event) { return begin_of(event) + event["dur"].get<double>(); }
bool lies_in(const Json& inner, const Json& outer) {
  constexpr double kRounding = 0.002;
  return begin_of(inner) >= begin_of(outer) - kRounding && end_of(inner) <= end_of(outer) + kRounding;
}

TEST(Timeline, HoldsSpansCallsAndWaitsOfEveryRank) {
  std::string text;
  run_threads(3, [&](Communicator& world) {
    SmallNet net;
    auto parallel = data_parallel(net, world, {.bucket_mb = 0});
    Timeline timeline(world);
    for (int step = 0; step < 2; ++step) {
      const at::Tensor output = parallel(at::ones({5, 6})).sum();
      {
        const auto span = timeline.span("back\"ward");
        output.backward();
      }
      timeline.add_communication(parallel.last_buckets());
    }
    const auto means = timeline.bucket_means();
    ASSERT_EQ(means.size(), 4U);
    double bytes = 0;
    for (const auto& bucket : means) {
      bytes += bucket.bytes;
      EXPECT_GT(bucket.in_flight_s, 0);
      EXPECT_EQ(bucket.parameters, 1);
    }
    EXPECT_EQ(bytes, 4 * (6 * 16 + 16 + 16 * 4 + 4));
    const std::string mine = timeline.to_json();
    EXPECT_EQ(mine.empty(), world.rank() != 0);
    if (world.rank() == 0) text = mine;
  });
  const auto events = events_by_rank(Json::parse(text));
  ASSERT_EQ(events.size(), 3U);
  for (const auto& [rank, of_rank] : events) {
    const auto backwards = named(of_rank, "back\"ward");
    ASSERT_EQ(backwards.size(), 2U) << rank;
    EXPECT_GE(begin_of(backwards[1]), end_of(backwards[0]));
    for (const std::string step : {"step 0", "step 1"}) {
      for (int bucket = 0; bucket < 4; ++bucket) {
        const std::string tag = step + " bucket " + std::to_string(bucket);
        const auto calls = named(of_rank, "all_reduce " + tag);
        ASSERT_EQ(calls.size(), 1U) << tag;
        EXPECT_TRUE(lies_in(calls[0], backwards[step == "step 0" ? 0 : 1])) << calls[0] << backwards[0];
        EXPECT_NE(calls[0]["tid"], backwards[0]["tid"]);
        EXPECT_GT(calls[0]["args"]["bytes"].get<int>(), 0);
      }
    }
    const auto waits = named(of_rank, "wait");
    EXPECT_EQ(waits.size(), 8U);
    for (std::size_t i = 0; i < waits.size(); ++i) EXPECT_TRUE(lies_in(waits[i], backwards[i / 4])) << waits[i];
    EXPECT_TRUE(named(of_rank, "broadcast parameters of rank 0").empty()) << "before the timeline's beginning";
    // Perfetto nests the events of a row, so each two events must be nested or not overlap.
    for (const Json& a : of_rank) {
      for (const Json& b : of_rank) {
        if (a["tid"] != b["tid"] || a == b || begin_of(b) < begin_of(a)) continue;
        EXPECT_TRUE(begin_of(b) >= end_of(a) - 0.002 || lies_in(b, a) || lies_in(a, b)) << a << b;
      }
    }
  }
}

TEST(StepRange, IsReadAndRefused) {
  EXPECT_EQ(parse_step_range("10:15").first, 10);
  EXPECT_EQ(parse_step_range("10:15").last, 15);
  EXPECT_EQ(parse_step_range("3").last, 3);
  for (const char* text : {"", ":", "0:3", "5:4", "1:", ":4", "1:2:3", "a", "1 :2", "-1", "99999999999999999999"}) {
    try {
      parse_step_range(text);
      FAIL() << text;
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr("run.trace is not a range of steps"));
    }
  }
}

using TraceTest = TrainerTest;

TEST_F(TraceTest, WritesTheStepsThatWereAskedFor) {
  for (const int ranks : {1, 2}) {
    Config traced = config("traced");
    traced.parallel.shard = "none";
    traced.run.trace = "2:4";
    fit(ranks, traced);
    EXPECT_THAT(output_, HasSubstr("trace of steps 2 to 4"));
    const auto events = events_by_rank(Json::parse(read_file(root_ / "traced" / "trace.json")));
    ASSERT_EQ(events.size(), static_cast<std::size_t>(ranks));
    for (const auto& [rank, of_rank] : events) {
      EXPECT_EQ(named(of_rank, "step 1").size() + named(of_rank, "step 5").size(), 0U);
      for (const char* name : {"step 2", "step 3", "step 4"}) {
        const auto step = named(of_rank, name);
        ASSERT_EQ(step.size(), 1U) << rank << name;
        double covered = 0;
        for (const char* part : {"data", "forward", "backward", "gradient norm", "loss of all", "optimizer"}) {
          const auto parts = named(of_rank, part);
          ASSERT_EQ(parts.size(), 3U) << part;
          for (const Json& one : parts) covered += lies_in(one, step[0]) ? one["dur"].get<double>() : 0;
        }
        EXPECT_NEAR(covered, step[0]["dur"].get<double>(), 0.1) << "the parts are the step";
      }
      EXPECT_EQ(named(of_rank, "wait").empty(), ranks == 1);
    }
    fs::remove_all(root_ / "traced");
  }
}

// No buckets are sent, so none can be in flight, waited for or hidden.
TEST_F(TraceTest, GradientsThatStayHaveNoBuckets) {
  Config traced = config("traced");
  traced.run.trace = "2:4";
  traced.parallel.shard = "gradients";
  fit(2, traced);
  EXPECT_THAT(output_, AllOf(HasSubstr("trace of steps 2 to 4"), Not(HasSubstr("in flight"))));
  for (const auto& [rank, of_rank] : events_by_rank(Json::parse(read_file(root_ / "traced" / "trace.json")))) {
    EXPECT_EQ(named(of_rank, "optimizer").size(), 3U) << rank;
    EXPECT_TRUE(named(of_rank, "wait").empty()) << rank;
  }
}

TEST_F(TraceTest, WhatDoesNotComeIsSaid) {
  Config traced = config("traced");
  traced.run.trace = "8:20";  // the run has 9 steps
  fit(2, traced);
  EXPECT_THAT(output_, HasSubstr("trace of steps 8 to 9"));
  EXPECT_TRUE(fs::exists(root_ / "traced" / "trace.json"));
  Config late = config("late");
  late.run.trace = "10:11";
  fit(2, late);
  EXPECT_THAT(output_, HasSubstr("run.trace 10:11 has none of the steps 1 to 9"));
  EXPECT_FALSE(fs::exists(root_ / "late" / "trace.json"));
  Config wrong = config("wrong");
  wrong.run.trace = "4:2";
  EXPECT_THROW(fit(2, wrong), Error);
  EXPECT_FALSE(fs::exists(root_ / "wrong"));
}

TEST_F(TraceTest, TracingChangesNothing) {
  Config plain = config("plain");
  Config traced = config("traced");
  traced.run.trace = "1:9";
  fit(3, plain);
  fit(3, traced);
  EXPECT_EQ(model("plain"), model("traced"));
}

}  // namespace
}  // namespace reigen::train
