// The record in memory: which entries it keeps, for how long, and that no reader sees half an entry.
#include "flight/recorder.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "flight/memory.h"
#include "flight/read.h"
#include "reigen/base/error.h"

namespace reigen::flight {
namespace {

const Vocabulary kWords = {.kinds = {"barrier", "all_reduce"}, .types = {"uint8", "float32"}, .reductions = {"sum"}};

Operation all_reduce(std::uint64_t sequence, std::string_view tag = {}) {
  return {.what = {.kind = 1, .type = 1, .reduction = 0},
          .sequence = sequence,
          .count = sequence * 3,
          .bytes = sequence * 12,
          .tag = tag};
}

std::size_t open_descriptors() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

TEST(Recorder, KeepsWhatWasCalled) {
  const auto recorder = Recorder::open({.rank = 2, .size = 4}, kWords);
  const auto world = recorder->join("world", 2, 4);
  const std::int64_t before = time_now();
  const auto first = recorder->called(world, all_reduce(7, "step 7"));
  recorder->started(first, true);
  recorder->ended(first, Outcome::kDone);
  const auto second =
      recorder->called(world, {.what = {.kind = 0, .type = kNoCode, .root = 3, .between_two = true}, .sequence = 8});
  recorder->started(second, false);
  recorder->called(world, all_reduce(9));
  const ReadRank rank = read_record(recorder->record());
  EXPECT_EQ(rank.rank, 2);
  EXPECT_EQ(rank.size, 4);
  EXPECT_EQ(rank.pid, ::getpid());
  ASSERT_EQ(rank.groups.size(), 1U);
  EXPECT_EQ(rank.groups[0].name, "world");
  ASSERT_EQ(rank.operations.size(), 3U);
  const ReadOperation& done = rank.operations[0];
  EXPECT_EQ(done.group, "world");
  EXPECT_EQ(done.group_rank, 2);
  EXPECT_EQ(done.group_size, 4);
  EXPECT_EQ(done.sequence, 7U);
  EXPECT_EQ(done.kind, "all_reduce");
  EXPECT_EQ(done.type, "float32");
  EXPECT_EQ(done.reduction, "sum");
  EXPECT_EQ(done.root, kNoRoot);
  EXPECT_EQ(done.count, 21U);
  EXPECT_EQ(done.bytes, 84U);
  EXPECT_EQ(done.tag, "step 7");
  EXPECT_EQ(done.outcome, Outcome::kDone);
  EXPECT_EQ(done.started, done.called);
  EXPECT_GE(done.ended, done.called);
  // Two clocks are read one after the other, and the thread may lose its core in between.
  EXPECT_NEAR(static_cast<double>(done.called - before), 0, 1e9);
  const ReadOperation& begun = rank.operations[1];
  EXPECT_EQ(begun.kind, "barrier");
  EXPECT_EQ(begun.type, "");
  EXPECT_EQ(begun.root, 3);
  EXPECT_TRUE(begun.between_two);
  EXPECT_GE(begun.started, begun.called);
  EXPECT_EQ(begun.ended, 0);
  EXPECT_EQ(begun.outcome, Outcome::kRunning);
  EXPECT_EQ(rank.operations[2].started, 0);
  EXPECT_EQ(rank.operations[2].tag, "");
}

TEST(Recorder, KeepsTheLast1024) {
  const auto recorder = Recorder::open({}, kWords);
  const auto world = recorder->join("world", 0, 1);
  std::uint64_t early = 0;
  for (std::uint64_t i = 0; i < 2500; ++i) {
    const auto ticket = recorder->called(world, all_reduce(i, i % 2 == 0 ? "" : "odd"));
    if (i == 1000) early = ticket;
  }
  recorder->started(early, false);  // another call has taken its place
  recorder->ended(early, Outcome::kDone);
  const ReadRank rank = read_record(recorder->record());
  ASSERT_EQ(rank.operations.size(), kEntries);
  for (std::uint64_t i = 0; i < kEntries; ++i) {
    const ReadOperation& operation = rank.operations[i];
    const std::uint64_t sequence = 2500 - kEntries + i;
    EXPECT_EQ(operation.sequence, sequence);
    EXPECT_EQ(operation.tag, sequence % 2 == 0 ? "" : "odd");
    EXPECT_EQ(operation.outcome, Outcome::kRunning);
    EXPECT_EQ(operation.started, 0);
  }
}

TEST(Recorder, CutsLongTexts) {
  const auto recorder = Recorder::open({}, kWords);
  for (const std::size_t length : {0U, 1U, 7U, 8U, 9U, 46U, 47U, 48U, 100U}) {
    const std::string text(length, 'x');
    const auto group = recorder->join(text, 0, 1);
    recorder->called(group, all_reduce(1, text));
    const ReadRank rank = read_record(recorder->record());
    EXPECT_EQ(rank.operations.back().tag, text.substr(0, 47));
    EXPECT_EQ(rank.groups.back().name, text.substr(0, 47));
  }
}

TEST(Recorder, AGroupThatLostItsPlaceLosesItsNameOnly) {
  const auto recorder = Recorder::open({}, kWords);
  const auto old = recorder->join("old", 0, 1);
  recorder->called(old, all_reduce(1));
  for (std::size_t i = 0; i < kGroups; ++i) recorder->join("new " + std::to_string(i), 0, 1);
  recorder->called(old, all_reduce(2));
  const ReadRank rank = read_record(recorder->record());
  EXPECT_EQ(rank.groups.size(), kGroups);
  ASSERT_EQ(rank.operations.size(), 2U);
  EXPECT_EQ(rank.operations[0].group, "");
  EXPECT_EQ(rank.operations[1].group, "");
  EXPECT_EQ(rank.operations[1].sequence, 2U);
}

// Every field of a call is computed from its sequence number, so a torn entry would be noticed.
TEST(Recorder, AReaderNeverSeesHalfAnEntry) {
  const UniqueFd memory = make_memory({.rank = 0, .size = 1});
  const auto recorder = Recorder::open({}, kWords, memory.get());
  const MappedMemory reader(memory.get(), MappedMemory::Access::kRead);
  std::atomic<bool> over{false};
  std::vector<std::thread> writers;
  for (int w = 0; w < 3; ++w) {
    writers.emplace_back([&, w] {
      const auto group = recorder->join("group " + std::to_string(w), w, 3);
      for (std::uint64_t i = 0; i < kEntries || !over.load(); ++i) {
        const std::uint64_t sequence = i * 3 + static_cast<std::uint64_t>(w);
        const auto ticket = recorder->called(group, all_reduce(sequence, "call " + std::to_string(sequence)));
        recorder->started(ticket, i % 2 == 0);
        recorder->ended(ticket, Outcome::kDone);
      }
    });
  }
  std::size_t seen = 0;
  for (int round = 0; !HasFailure() && (round < 60 || seen < 10000); ++round) {
    const ReadRank rank = read_record(reader.record());
    std::uint64_t ticket = 0;
    for (const ReadOperation& o : rank.operations) {
      EXPECT_EQ(o.count, o.sequence * 3);
      EXPECT_EQ(o.bytes, o.sequence * 12);
      EXPECT_EQ(o.tag, "call " + std::to_string(o.sequence));
      EXPECT_EQ(o.group, "group " + std::to_string(o.sequence % 3));
      EXPECT_TRUE(o.ended == 0 || o.ended >= o.called);
      EXPECT_TRUE(seen == 0 || o.ticket >= ticket);
      ticket = o.ticket;
      ++seen;
    }
  }
  over.store(true);
  for (std::thread& writer : writers) writer.join();
  // No thread writes any more, so all entries are whole.
  EXPECT_EQ(read_record(reader.record()).operations.size(), kEntries);
}

TEST(Recorder, TakesTheMemoryItWasGiven) {
  const UniqueFd memory = make_memory({.rank = 3, .size = 8, .job = "job"});
  const MappedMemory outside(memory.get(), MappedMemory::Access::kRead);
  EXPECT_EQ(read_record(outside.record()).pid, 0);
  EXPECT_EQ(read_record(outside.record()).rank, 3);
  const auto recorder = Recorder::open({.rank = 3, .size = 8, .job = "job"}, kWords, memory.get());
  const auto world = recorder->join("world", 3, 8);
  recorder->called(world, all_reduce(1));
  const auto again = Recorder::open({.rank = 3, .size = 8, .job = "job"}, kWords, memory.get());
  again->called(again->join("other", 0, 1), all_reduce(2));
  const ReadRank rank = read_record(outside.record());
  EXPECT_EQ(rank.pid, ::getpid());
  EXPECT_EQ(rank.operations.size(), 2U);
  EXPECT_TRUE(::fcntl(memory.get(), F_GETFD) & FD_CLOEXEC);
}

TEST(Recorder, RefusesADescriptorThatIsNoRecord) {
  const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  for (const int descriptor : {null.get(), 9999, -1}) {
    const auto recorder = Recorder::open({}, kWords, descriptor);
    recorder->called(recorder->join("world", 0, 1), all_reduce(1));
    EXPECT_EQ(read_record(recorder->record()).operations.size(), 1U);
  }
}

TEST(Recorder, LeavesNoDescriptors) {
  const std::size_t before = open_descriptors();
  for (int i = 0; i < 50; ++i) Recorder::open({}, kWords);
  EXPECT_EQ(open_descriptors(), before);
}

TEST(Record, OfAnotherVersionIsRefused) {
  const auto record = std::make_unique<Record>();
  record->header.magic = kMagic + 1;
  EXPECT_THROW(read_record(*record), DataError);
}

}  // namespace
}  // namespace reigen::flight
