#include "reigen/checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <sys/fsuid.h>
#include <unistd.h>

#include <algorithm>

#include "base/machine/file_system.h"
#include "checkpoint/directory.h"
#include "checkpoint/layouts.h"
#include "checkpoint/write.h"
#include "format/temporary_folder.h"
#include "harness/no_locks.h"
#include "harness/sanitizer.h"
#include "reigen/base/error.h"
#include "reigen/checkpoint/weights.h"
#include "reigen/runtime/init.h"

namespace reigen::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using testing_checkpoint::differences;
using testing_checkpoint::hold;
using testing_checkpoint::Layout;
using testing_checkpoint::some_tensors;
using tests::content_of;

void write_file(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

class CheckpointTest : public ::testing::Test {
 protected:
  // Saves a checkpoint of one rank, whose values depend on the step.
  fs::path save_step(std::int64_t step, std::int64_t keep = 10) const {
    const auto held = hold(some_tensors(), Layout::kFirst, 0, 1, static_cast<std::uint64_t>(step));
    return save(directory_,
                {.step = step,
                 .epoch = 1,
                 .position = 7,
                 .global_batch = 97,
                 .seed = 3,
                 .world_size = 2,
                 .optimizer_steps = step,
                 .mesh = {{"dp", 2}},
                 .options = {{"optim.lr", "0.001"}}},
                held.contents, keep);
  }

  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(directory_)) found.push_back(entry.path().filename().string());
    std::sort(found.begin(), found.end());
    return found;
  }

  tests::TemporaryFolder folder_;
  fs::path root_ = folder_.path();
  fs::path directory_ = root_ / "run" / "checkpoints";
};

TEST_F(CheckpointTest, WhatWasSavedComesBack) {
  const fs::path path = save_step(100);
  EXPECT_EQ(path.filename(), "step_00000100");
  const Checkpoint checkpoint(path);
  const Manifest& manifest = checkpoint.manifest();
  EXPECT_EQ(manifest.step, 100);
  EXPECT_EQ(manifest.epoch, 1);
  EXPECT_EQ(manifest.position, 7);
  EXPECT_EQ(manifest.global_batch, 97);
  EXPECT_EQ(manifest.world_size, 2);
  EXPECT_EQ(manifest.mesh, (std::vector<std::pair<std::string, std::int64_t>>{{"dp", 2}}));
  EXPECT_EQ(manifest.options.at("optim.lr"), "0.001");
  EXPECT_FALSE(manifest.version.empty());
  checkpoint.verify();
  EXPECT_THAT(differences(checkpoint, some_tensors(), Layout::kFirst, 0, 1, 100), SizeIs(0));
  EXPECT_EQ(names(), std::vector<std::string>{"step_00000100"});
}

// One rank saved the whole model, so any reader of safetensors can read the file.
TEST_F(CheckpointTest, AWholeModelIsAPlainFile) {
  const format::SafetensorsFile file(save_step(3) / "model.safetensors");
  for (const auto& tensor : some_tensors()) {
    const format::TensorEntry& entry = file.at(tensor.name);
    EXPECT_EQ(entry.shape, tensor.shape);
    std::vector<std::byte> bytes(entry.bytes);
    file.read(entry, bytes);
    EXPECT_EQ(bytes, tensor.values(3)) << tensor.name;
  }
}

struct Way {
  int ranks;
  Layout layout;
};

// A checkpoint written with any layout and number of ranks can be read with any other: the bytes are the same.
TEST_F(CheckpointTest, AnyLayoutReadsAnyOther) {
  std::vector<Way> ways;
  for (const int ranks : testing::kSanitized ? std::vector{1, 3} : std::vector{1, 2, 3, 4, 7}) {
    for (const Layout layout : testing_checkpoint::kLayouts) ways.push_back({ranks, layout});
  }
  int pairs = 0;
  for (const Way& writer : ways) {
    fs::remove_all(directory_);
    run_threads(writer.ranks, [&](Communicator& world) {
      const auto held = hold(some_tensors(), writer.layout, world.rank(), writer.ranks, 5);
      const fs::path path = save(directory_, {.step = 5, .world_size = writer.ranks}, held.contents, 3, world);
      EXPECT_EQ(path, directory_ / "step_00000005");
    });
    const Search search = find_newest(directory_);
    ASSERT_TRUE(search.newest) << writer.ranks;
    for (const Way& reader : ways) {
      for (int rank = 0; rank < reader.ranks; ++rank) {
        EXPECT_THAT(differences(*search.newest, some_tensors(), reader.layout, rank, reader.ranks, 5), SizeIs(0));
      }
      ++pairs;
    }
  }
  EXPECT_GE(pairs, testing::kSanitized ? 144 : 900);
}

TEST_F(CheckpointTest, EachRankVerifiesItsShare) {
  const fs::path path = save_step(1);
  const Checkpoint checkpoint(path);
  std::string text = content_of(path / "model.safetensors");
  text[text.size() / 2] = static_cast<char>(text[text.size() / 2] ^ 1);
  write_file(path / "model.safetensors", text);
  for (const int shares : {1, 2, 3, 5}) {
    int found = 0;
    for (int share = 0; share < shares; ++share) {
      try {
        checkpoint.verify(share, shares);
      } catch (const DataError&) {
        ++found;
      }
    }
    EXPECT_EQ(found, 1) << shares;
  }
}

TEST_F(CheckpointTest, GivenTwiceOrNotAtAllIsRefusedOnAllRanks) {
  save_step(1);
  for (const bool twice : {true, false}) {
    run_threads(3, [&](Communicator& world) {
      auto held = hold(some_tensors(), Layout::kFlat, world.rank(), 3, 5);
      auto& pieces = held.contents["model"];
      if (world.rank() == 1) {
        const auto fc =
            std::find_if(pieces.begin(), pieces.end(), [](const Piece& p) { return p.name == "fc.weight"; });
        if (twice)
          pieces.push_back(*fc);
        else
          pieces.erase(fc);
      }
      try {
        save(directory_, {.step = 2}, held.contents, 3, world);
        ADD_FAILURE() << "no error";
      } catch (const InvalidArgument& error) {
        EXPECT_THAT(error.what(), HasSubstr("fc.weight"));
      }
    });
    EXPECT_EQ(names(), std::vector<std::string>{"step_00000001"});
  }
}

// All ranks get the error of one rank, and the earlier checkpoint remains.
TEST_F(CheckpointTest, AnErrorOfOneRankIsOneOfAll) {
  save_step(1);
  run_threads(3, [&](Communicator& world) {
    auto held = hold(some_tensors(), Layout::kFlat, world.rank(), 3, 5);
    std::vector<std::byte> wrong(3);
    if (world.rank() == 2) held.contents["model"][0].bytes = wrong;
    try {
      save(directory_, {.step = 2}, held.contents, 3, world);
      ADD_FAILURE() << "no error";
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr("rank 2 of 3"));
      EXPECT_THAT(error.what(), HasSubstr("conv.weight"));
    }
  });
  EXPECT_EQ(find_newest(directory_).newest->manifest().step, 1);
}

TEST_F(CheckpointTest, AnAbsentDirectoryHoldsNone) {
  EXPECT_FALSE(find_newest(directory_).newest);
  try {
    Checkpoint(directory_ / "step_00000001");
    ADD_FAILURE() << "no error";
  } catch (const IoError& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kInputMissing);
  }
}

TEST_F(CheckpointTest, AFileOfSuchANameIsNoCheckpoint) {
  save_step(1);
  write_file(directory_ / "step_00000099", "no folder");
  const Search search = find_newest(directory_);
  ASSERT_TRUE(search.newest.has_value());
  EXPECT_EQ(search.newest->manifest().step, 1);
  EXPECT_THAT(search.damaged, SizeIs(0));
}

TEST_F(CheckpointTest, WhatWasWrittenStaysThoughNewerStepsLieThere) {
  for (const std::int64_t step : {60, 80, 100}) save_step(step);
  const fs::path path = save_step(50, 2);
  EXPECT_EQ(Checkpoint(path).manifest().step, 50);
  EXPECT_EQ(names(), (std::vector<std::string>{"step_00000050", "step_00000100"}));
}

TEST_F(CheckpointTest, WeightsOfADamagedOneAreRefused) {
  const fs::path path = save_step(1);
  std::string text = content_of(path / "model.safetensors");
  text.back() = static_cast<char>(text.back() ^ 1);
  write_file(path / "model.safetensors", text);
  EXPECT_THROW(Weights{path}, DataError);
}

TEST_F(CheckpointTest, TheNewestIsFoundByNumberNotByName) {
  save_step(99999999);
  save_step(100000000);
  EXPECT_EQ(find_newest(directory_).newest->manifest().step, 100000000);
}

TEST_F(CheckpointTest, DamageNamesFileBytesAndTensor) {
  const fs::path path = save_step(2);
  std::string text = content_of(path / "model.safetensors");
  const format::SafetensorsFile file(path / "model.safetensors");
  const format::TensorEntry entry = file.at("fc.weight");
  text[entry.offset + 5] = static_cast<char>(text[entry.offset + 5] ^ 1);
  text[entry.offset - 1] = static_cast<char>(text[entry.offset - 1] ^ 1);
  write_file(path / "model.safetensors", text);
  const auto damage = Checkpoint(path).damage();
  ASSERT_THAT(damage, SizeIs(2));
  EXPECT_THAT(damage[1],
              HasSubstr(fmt::format("bytes {} to {}, model fc.weight", entry.offset, entry.offset + entry.bytes)));
  EXPECT_THAT(damage[1], HasSubstr("model.safetensors"));
}

TEST_F(CheckpointTest, AnotherTensorThanThereIsIsRefused) {
  const Checkpoint checkpoint(save_step(5));
  std::vector<std::byte> bytes(4 * 143);
  const Target good{"fc.weight", format::TensorType::kF64, {13, 11}, layout::whole({13, 11}), bytes};
  const auto refusal = [&](Target target) {
    try {
      bytes.resize(static_cast<std::size_t>(target.part.count) * format::size_of(target.type));
      target.bytes = bytes;
      checkpoint.read("model", target);
    } catch (const DataError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(refusal(good), "no error");
  Target other = good;
  other.shape = {11, 13};
  other.part = layout::whole(other.shape);
  EXPECT_THAT(refusal(other), HasSubstr("F64 [13, 11]"));
  other = good;
  other.type = format::TensorType::kF32;
  EXPECT_THAT(refusal(other), HasSubstr("F32 [13, 11]"));
  other = good;
  other.name = "fc2.weight";
  EXPECT_THAT(refusal(other), HasSubstr("no tensor of that name"));
}

TEST_F(CheckpointTest, OneJobAtATimeWritesADirectory) {
  const DirectoryLock lock(directory_);
  try {
    const DirectoryLock second(directory_);
    ADD_FAILURE() << "no error";
  } catch (const IoError& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kOutputLocked);
    EXPECT_THAT(error.what(), HasSubstr(fmt::format("pid {}", ::getpid())));
  }
}

TEST_F(CheckpointTest, AFileSystemWithoutLocksIsWrittenAllTheSame) {
  for (const int error : {ENOSYS, ENOLCK, EOPNOTSUPP, 524}) {
    const tests::NoLocks none(error);
    ::testing::internal::CaptureStderr();
    { const DirectoryLock lock(directory_); }
    EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("has no locks"));
    ::testing::internal::CaptureStderr();
    { const DirectoryLock lock(directory_, false); }
    EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  }
}

// The required room for a small model is not much larger than the model.
TEST_F(CheckpointTest, TheRoomAskedForGoesWithTheSize) {
  const std::vector<std::byte> bytes(1 << 20);
  const auto room = [&](std::size_t size) {
    const auto count = static_cast<std::int64_t>(size / 4);
    return room_for({{"model",
                      {{.name = "weight",
                        .type = format::TensorType::kF32,
                        .shape = {count},
                        .part = layout::whole({count}),
                        .bytes = std::span(bytes).first(size)}}}});
  };
  EXPECT_GT(room(1 << 20), 1 << 20);
  EXPECT_LT(room(1 << 20), (1 << 20) + (256 << 10));
  EXPECT_LT(room(1024), 256 << 10);
}

TEST_F(CheckpointTest, NothingIsDeletedForRoomThatThereIsOrCannotBe) {
  save_step(1);
  save_step(2);
  EXPECT_THAT(make_room(directory_, 1), SizeIs(0));
  EXPECT_THAT(make_room(directory_, std::uint64_t{1} << 60), SizeIs(0));
  // A spared checkpoint and newer ones are not deleted either, although that would make room.
  EXPECT_THAT(make_room(directory_, base::room_in(directory_).value_or(0) + 1, 1), SizeIs(0));
  EXPECT_THAT(list(directory_), SizeIs(2));
}

TEST_F(CheckpointTest, WhatNoSaveMadeIsNotDeleted) {
  for (const char* name : {"step_1", ".unfinished_notes", ".unfinished_step_2x"}) {
    fs::create_directories(directory_ / name);
    write_file(directory_ / name / "mine", "x");
  }
  fs::create_directories(directory_ / ".unfinished_step_00000009");
  for (const std::int64_t step : {2, 3, 4}) save_step(step, 1);
  EXPECT_THAT(names(), ::testing::ElementsAre(".unfinished_notes", ".unfinished_step_2x", "step_00000004", "step_1"));
}

TEST_F(CheckpointTest, ALinkThatLeadsNowhereIsNamedAndStays) {
  fs::create_directories(directory_.parent_path());
  fs::create_directory_symlink("/nowhere/scratch", directory_);
  try {
    save_step(1);
    ADD_FAILURE() << "no error";
  } catch (const IoError& error) {
    EXPECT_THAT(error.what(), HasSubstr("a symbolic link that leads nowhere, to /nowhere/scratch"));
  }
  EXPECT_TRUE(fs::is_symlink(directory_));
}

// The unreadable checkpoint may be whole, so the search must not skip it.
TEST_F(CheckpointTest, WhatThisUserMayNotReadEndsTheSearch) {
  save_step(1);
  fs::permissions(save_step(2) / "manifest.json", fs::perms::none);
  const int before = ::setfsuid(65534);  // root could read it
  try {
    find_newest(directory_);
    ADD_FAILURE() << "no error";
  } catch (const IoError& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kPermission);
  }
  ::setfsuid(static_cast<uid_t>(before));
}

TEST_F(CheckpointTest, WhatNoDiskGivesIsPassedOver) {
  save_step(1);
  const auto replaced = [&](const char* name, const auto& make) {
    const fs::path file = save_step(2) / name;
    fs::remove(file);
    make(file);
    const Search search = find_newest(directory_);
    ASSERT_TRUE(search.newest) << name;
    EXPECT_EQ(search.newest->manifest().step, 1) << name;
    ASSERT_THAT(search.damaged, SizeIs(1)) << name;
    EXPECT_THAT(search.damaged.front(), HasSubstr(name));
  };
  for (const char* name : {"manifest.json", "model.safetensors"}) {
    replaced(name, [](const fs::path& file) { fs::create_directory(file); });
    replaced(name, [](const fs::path& file) { fs::create_symlink(file, file); });
  }
  const fs::path newest = save_step(3);
  for (const char* target : {"step_00000003", "nowhere"}) {
    fs::remove_all(newest);
    fs::create_symlink(directory_ / target, newest);
    const Search search = find_newest(directory_);
    EXPECT_THAT(search.unreadable, SizeIs(2)) << target;  // the checkpoint of step 2 is also a link to itself
    ASSERT_TRUE(search.newest) << target;
    EXPECT_EQ(search.newest->manifest().step, 1) << target;
  }
}

TEST_F(CheckpointTest, WhatKilledWritersLeftIsClearedAway) {
  for (const char* name : {".unfinished_step_00000007", ".unfinished_set_aside"}) {
    const fs::path left = directory_ / name;
    fs::create_directories(left);
    write_file(left / "model.safetensors", "half");
    save_step(8);
    EXPECT_FALSE(fs::exists(left)) << name;
  }
}

TEST_F(CheckpointTest, OnlyWholeOnesCountAsKept) {
  for (std::int64_t step = 1; step <= 3; ++step) save_step(step);
  write_file(directory_ / "step_00000003" / "model.safetensors", "torn");
  save_step(4, 2);
  EXPECT_EQ(names(), (std::vector<std::string>{"step_00000002", "step_00000003", "step_00000004"}));
  save_step(5, 1);
  EXPECT_EQ(names(), std::vector<std::string>{"step_00000005"});
}

TEST_F(CheckpointTest, WhatAKilledWriterLeftIsNoCheckpoint) {
  save_step(1);
  fs::create_directories(directory_ / ".unfinished_step_00000002");
  write_file(directory_ / ".unfinished_step_00000002" / "model.safetensors", "half");
  EXPECT_EQ(find_newest(directory_).newest->manifest().step, 1);
  save_step(2);
  EXPECT_EQ(names(), (std::vector<std::string>{"step_00000001", "step_00000002"}));
}

TEST_F(CheckpointTest, ASecondOneOfTheSameStepReplacesTheFirst) {
  const fs::path path = save_step(1);
  write_file(path / "model.safetensors", "torn");
  save_step(1);
  EXPECT_EQ(find_newest(directory_).newest->manifest().step, 1);
  EXPECT_THAT(names(), SizeIs(1));
}

TEST_F(CheckpointTest, AFutureThatWasGivenUpIsSetAsideUntilItIsDropped) {
  for (std::int64_t step = 1; step <= 3; ++step) save_step(step);
  EXPECT_THAT(set_aside_after(directory_, 3), SizeIs(0));
  EXPECT_FALSE(fs::exists(set_aside_path(directory_)));
  const fs::path aside = set_aside_path(directory_);
  EXPECT_EQ(set_aside_after(directory_, 1), (std::vector<fs::path>{aside / "step_00000003", aside / "step_00000002"}));
  EXPECT_EQ(names(), (std::vector<std::string>{"set_aside", "step_00000001"}));
  EXPECT_EQ(find_newest(directory_).newest->manifest().step, 1);
  EXPECT_EQ(find_newest(aside).newest->manifest().step, 3) << "and may be taken back";
  // Another checkpoint of step 2 replaces the one that was set aside.
  fs::copy(aside / "step_00000002", directory_ / "step_00000002", fs::copy_options::recursive);
  EXPECT_EQ(set_aside_after(directory_, 1), std::vector<fs::path>{aside / "step_00000002"});
  EXPECT_THAT(list(aside), SizeIs(2));
  // An unreadable checkpoint is kept. The next checkpoint deletes all others that were set aside.
  const fs::path unreadable = save_step(3);
  set_aside_after(directory_, 1, {unreadable});
  save_step(2);
  EXPECT_FALSE(fs::exists(aside));
  EXPECT_EQ(names(), (std::vector<std::string>{"step_00000001", "step_00000002", "unreadable"}));
  EXPECT_EQ(find_newest(directory_ / "unreadable").newest->manifest().step, 3);
}

TEST_F(CheckpointTest, WhatIsTheUsersStaysWhereAFutureIsDropped) {
  save_step(1);
  save_step(2);
  set_aside_after(directory_, 1);
  const fs::path aside = set_aside_path(directory_);
  write_file(aside / "notes", "of the user");
  write_file(aside / "metrics_of_step_00000002.jsonl", "{}\n");
  save_step(2);
  EXPECT_TRUE(fs::exists(aside / "notes"));
  EXPECT_FALSE(fs::exists(aside / "step_00000002"));
  EXPECT_FALSE(fs::exists(aside / "metrics_of_step_00000002.jsonl"));
}

TEST_F(CheckpointTest, AFileInTheWayIsAnIoError) {
  fs::create_directories(root_ / "run");
  write_file(directory_, "a file");
  EXPECT_THROW(save_step(1), IoError);
}

}  // namespace
}  // namespace reigen::checkpoint
