#include "reigen/checkpoint/saver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "checkpoint/layouts.h"
#include "format/temporary_folder.h"
#include "reigen/base/error.h"
#include "reigen/runtime/init.h"

namespace reigen::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::testing::SizeIs;
using testing_checkpoint::differences;
using testing_checkpoint::hold;
using testing_checkpoint::Layout;
using testing_checkpoint::some_tensors;

class SaverTest : public ::testing::TestWithParam<bool> {
 protected:
  tests::TemporaryFolder folder_;
  fs::path directory_ = folder_.path() / "checkpoints";
};

// The caller may change its memory as soon as save() returns.
TEST_P(SaverTest, SavesWhatWasThereWhenItWasCalled) {
  constexpr int kRanks = 3;
  run_threads(kRanks, [&](Communicator& world) {
    Saver saver(directory_, world, {.keep = 2, .asynchronous = GetParam()});
    for (std::int64_t step = 1; step <= 4; ++step) {
      auto held = hold(some_tensors(), Layout::kFlat, world.rank(), kRanks, static_cast<std::uint64_t>(step));
      saver.save({.step = step, .world_size = kRanks}, held.contents);
      for (auto& bytes : held.memory) std::fill(bytes.begin(), bytes.end(), std::byte{0});
      // The group itself can make calls meanwhile.
      std::int64_t one = 1;
      world.all_reduce(&one, &one, 1, DataType::kInt64, ReduceOp::kSum);
      EXPECT_EQ(one, kRanks);
      saver.check();
    }
    saver.wait();
    EXPECT_EQ(saver.last(), directory_ / "step_00000004");
    EXPECT_FALSE(saver.is_saving());
  });
  EXPECT_THAT(list(directory_), SizeIs(2));
  const Search search = find_newest(directory_);
  ASSERT_TRUE(search.newest);
  EXPECT_EQ(search.newest->manifest().step, 4);
  EXPECT_THAT(differences(*search.newest, some_tensors(), Layout::kColumns, 1, 2, 4), SizeIs(0));
}

// prepare() may get less, more, or exactly the memory that the save needs.
TEST_P(SaverTest, PreparedMemorySavesTheSame) {
  constexpr int kRanks = 2;
  run_threads(kRanks, [&](Communicator& world) {
    Saver saver(directory_, world, {.asynchronous = GetParam()});
    for (std::int64_t step = 1; step <= 3; ++step) {
      const auto held = hold(some_tensors(), Layout::kFlat, world.rank(), kRanks, static_cast<std::uint64_t>(step));
      Contents other = held.contents;
      if (step == 1) other.begin()->second.resize(1);
      if (step == 2) other["more"] = held.contents.begin()->second;
      saver.prepare(other);
      EXPECT_FALSE(saver.is_saving());
      saver.check();
      saver.save({.step = step, .world_size = kRanks}, held.contents);
    }
    saver.wait();
    saver.prepare({});
  });
  const Search search = find_newest(directory_);
  ASSERT_TRUE(search.newest);
  EXPECT_THAT(differences(*search.newest, some_tensors(), Layout::kColumns, 1, 2, 3), SizeIs(0));
}

// prepare() cannot get its memory for copies. The save tries again, and the checkpoint is written nevertheless.
TEST_P(SaverTest, MemoryThatIsNotThereLeavesTheSaveToThoseWhoTrain) {
  constexpr std::size_t kPast = std::size_t{1} << 46;
  run_threads(1, [&](Communicator& world) {
    Saver saver(directory_, world, {.asynchronous = GetParam()});
    const auto held = hold(some_tensors(), Layout::kFlat, 0, 1, 1);
    Contents huge = held.contents;
    Piece& piece = huge.begin()->second.front();
    piece.bytes = {piece.bytes.data(), kPast};  // only the size is used; the bytes are never read
    saver.prepare(huge);
    saver.save({.step = 1, .world_size = 1}, held.contents);
    saver.wait();
  });
  EXPECT_TRUE(find_newest(directory_).newest);
}

TEST_P(SaverTest, AnErrorIsHeardOnceAndTheNextSaveWorks) {
  run_threads(2, [&](Communicator& world) {
    Saver saver(directory_, world, {.asynchronous = GetParam()});
    const auto held = hold(some_tensors(), Layout::kFlat, world.rank(), 2, 1);
    const auto incomplete = hold(some_tensors(), Layout::kFlat, 0, 2, 1);
    const auto save_twice = [&] {
      saver.save({.step = 1}, incomplete.contents);
      saver.wait();
    };
    EXPECT_THROW(save_twice(), InvalidArgument);
    EXPECT_NO_THROW(saver.check());
    saver.save({.step = 2}, held.contents);
    EXPECT_NO_THROW(saver.wait());
  });
  EXPECT_THAT(list(directory_), SizeIs(1));
}

TEST_P(SaverTest, ASecondJobIsRefused) {
  run_threads(2, [&](Communicator& world) {
    const Saver saver(directory_, world, {.asynchronous = GetParam()});
    world.barrier();
    try {
      const Saver second(directory_, world, {});
      ADD_FAILURE() << "no error";
    } catch (const IoError& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::kOutputLocked);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Asynchronous, SaverTest, ::testing::Bool());

}  // namespace
}  // namespace reigen::checkpoint
