// Saves are killed at every event, fail at every event, or lose at every event the data that was not fsynced.
// Afterwards there must be a whole checkpoint of one step, not older than the last one that was saved.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "checkpoint/layouts.h"
#include "format/temporary_folder.h"
#include "harness/folders.h"
#include "harness/recorded_files.h"

namespace reigen::testing_checkpoint {
namespace {

namespace fs = std::filesystem;
using checkpoint::find_newest;
using testing::RecordedFiles;

constexpr int kTimes = 2;

class Crash : public ::testing::Test {
 protected:
  using Variables = std::vector<std::pair<std::string, std::string>>;

  // Runs the program and returns its status from waitpid().
  int run(const fs::path& directory, const Variables& variables) {
    fs::create_directories(directory);
    std::vector<std::string> words{built("tests/saving_program"), directory.string(), std::to_string(kTimes)};
    if (replaces_) words.emplace_back("again");
    std::vector<std::string> settings{"LD_PRELOAD=" + built("tests/libreigen_file_layer.so"),
                                      "REIGEN_FILES_BELOW=" + directory.string()};
    if (!exchanges_) settings.emplace_back("REIGEN_FILES_NO_EXCHANGE=1");
    for (const auto& [name, value] : variables) settings.push_back(name + "=" + value);
    const auto pointers = [](std::vector<std::string>& texts) {
      std::vector<char*> result;
      for (std::string& text : texts) result.push_back(text.data());
      result.push_back(nullptr);
      return result;
    };
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    pid_t child = 0;
    const int error = ::posix_spawn(&child, built("tests/saving_program").c_str(), &actions, nullptr,
                                    pointers(words).data(), pointers(settings).data());
    ::posix_spawn_file_actions_destroy(&actions);
    EXPECT_EQ(error, 0);
    int status = 0;
    ::waitpid(child, &status, 0);
    return status;
  }

  static int steps_done(const fs::path& directory) {
    int done = 0;
    while (fs::exists(directory / ("done_" + std::to_string(done + 1)))) ++done;
    return done;
  }

  // What is wrong with the files that a crash left; empty if nothing is. With `at_least` 0 there need be no checkpoint.
  static std::string wrong(const fs::path& directory, int at_least) {
    const auto found = find_newest(directory / "checkpoints");
    if (!found.damaged.empty()) return "damaged: " + found.damaged.front();
    if (!found.newest) return at_least == 0 ? "" : "nothing is there of save " + std::to_string(at_least);
    const std::int64_t time = found.newest->manifest().epoch;
    if (time < at_least) return "save " + std::to_string(time) + " of " + std::to_string(at_least);
    const auto differ =
        differences(*found.newest, some_tensors(), Layout::kFirst, 0, 1, static_cast<std::uint64_t>(100 * time));
    return differ.empty() ? "" : "save " + std::to_string(time) + " is a mix: " + differ.front();
  }

  long count_events() {
    const fs::path count = root_ / "count";
    EXPECT_EQ(run(root_ / "counted", {{"REIGEN_FILES_COUNT", count.string()}}), 0);
    EXPECT_EQ(wrong(root_ / "counted", kTimes), "");
    long events = 0;
    std::ifstream(count) >> events;
    EXPECT_GT(events, 20 * kTimes);
    return events;
  }

  void kill_at_every_event();

  bool replaces_ = false;  // each checkpoint replaces the previous one, of the same step
  bool exchanges_ = true;  // the file system has RENAME_EXCHANGE
  tests::TemporaryFolder folder_;
  fs::path root_ = fs::canonical(folder_.path());  // the path as the file layer sees it
};

TEST_F(Crash, KilledAtEveryEvent) { kill_at_every_event(); }

TEST_F(Crash, KilledAtEveryEventWhereACheckpointIsReplaced) {
  replaces_ = true;
  for (const bool exchanges : {true, false}) {
    exchanges_ = exchanges;
    kill_at_every_event();
  }
}

void Crash::kill_at_every_event() {
  const long events = count_events();
  int killed = 0;
  for (long at = 1; at <= events; ++at) {
    const fs::path directory = root_ / "killed";
    fs::remove_all(directory);
    const int status = run(directory, {{"REIGEN_FILES_AT", std::to_string(at)}, {"REIGEN_FILES_FAULT", "kill"}});
    killed += WIFSIGNALED(status) ? 1 : 0;
    ASSERT_EQ(wrong(directory, steps_done(directory)), "") << "killed at event " << at << " of " << events;
    // The next run must work with these files.
    if (at % 10 != 0) continue;
    ASSERT_EQ(run(directory, {}), 0) << at;
    ASSERT_EQ(wrong(directory, kTimes), "") << at;
  }
  EXPECT_GT(killed, events * 9 / 10);  // the order of two ranks' events may vary, and so their number
}

TEST_F(Crash, FailingAtEveryEvent) {
  const long events = count_events();
  for (const char* fault : {"EIO", "ENOSPC"}) {
    for (long at = 1; at <= events; ++at) {
      const fs::path directory = root_ / "failing";
      fs::remove_all(directory);
      const int status =
          run(directory,
              {{"REIGEN_FILES_AT", std::to_string(at)}, {"REIGEN_FILES_FAULT", fault}, {"REIGEN_FILES_TIMES", "1"}});
      ASSERT_EQ(status, 0) << fault << " at event " << at << ": the second try succeeds";
      ASSERT_EQ(wrong(directory, kTimes), "") << fault << " at event " << at;
    }
  }
}

TEST_F(Crash, ADiskThatStaysBrokenLeavesWhatWasSaved) {
  const long events = count_events();
  for (long at = 1; at <= events; at += 7) {
    const fs::path directory = root_ / "broken";
    fs::remove_all(directory);
    const int status = run(directory, {{"REIGEN_FILES_AT", std::to_string(at)}, {"REIGEN_FILES_FAULT", "EIO"}});
    EXPECT_TRUE(WIFEXITED(status)) << at;
    ASSERT_EQ(wrong(directory, steps_done(directory)), "") << at;
  }
}

TEST_F(Crash, LosingWhatWasNotFsynced) {
  const fs::path directory = root_ / "recorded";
  fs::create_directories(directory);
  struct stat info {};
  ASSERT_EQ(::stat(directory.c_str(), &info), 0);
  ASSERT_EQ(run(directory, {{"REIGEN_FILES_LOG", (root_ / "log").string()}}), 0);
  const RecordedFiles recorded(root_ / "log", info.st_ino);
  int done = 0;
  for (std::size_t count = 0; count <= recorded.events().size(); ++count) {
    if (count > 0) {
      const RecordedFiles::Event& last = recorded.events()[count - 1];
      if (last.kind == 'M' && last.first == "done_" + std::to_string(done + 1)) ++done;
    }
    for (std::uint64_t seed = 0; seed < 8; ++seed) {
      const auto lost = seed == 0   ? RecordedFiles::Lost::kNothing
                        : seed == 1 ? RecordedFiles::Lost::kEverything
                                    : RecordedFiles::Lost::kSome;
      const fs::path left = root_ / "left";
      fs::remove_all(left);
      recorded.crash(count, lost, 1000 * count + seed, left);
      ASSERT_EQ(wrong(left, done), "") << "behind event " << count << " of " << recorded.events().size() << ", seed "
                                       << seed;
    }
  }
  EXPECT_EQ(done, kTimes);
}

}  // namespace
}  // namespace reigen::testing_checkpoint
