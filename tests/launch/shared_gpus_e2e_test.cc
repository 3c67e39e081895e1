// The daemon for GPUs that ranks share. A script takes the place of NVIDIA's nvidia-cuda-mps-control.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

#include "base/machine/mps.h"
#include "child_program.h"
#include "harness/folders.h"
#include "harness/read_file.h"
#include "launch/gpus/shared_gpus.h"
#include "reigen/base/unique_fd.h"

namespace reigen::launch::shared_gpus_e2e_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// With -d the script starts a daemon and ends, as NVIDIA's does. Without arguments it reads a request.
constexpr const char* kScript = R"(#!/bin/sh
echo "$0 $* $CUDA_VISIBLE_DEVICES" >> "$(dirname "$0")/calls"
if [ "$1" = -d ]; then
  if [ -n "$FAKE_MPS_FAILS" ]; then echo "no permission for this GPU"; exit 1; fi
  (setsid sh -c 'trap "" TERM; echo $$ > "$CUDA_MPS_PIPE_DIRECTORY/pid"
     touch "$CUDA_MPS_PIPE_DIRECTORY/control"
     while [ -n "$FAKE_MPS_STAYS" ] || [ -e "$CUDA_MPS_PIPE_DIRECTORY/control" ]; do
       sleep 0.02
     done' >/dev/null 2>&1 &)
  while [ ! -e "$CUDA_MPS_PIPE_DIRECTORY/control" ]; do sleep 0.01; done
  exit 0
fi
read -r request
[ "$request" = quit ] && rm -f "$CUDA_MPS_PIPE_DIRECTORY/control"
)";

// What a rank prints: where it looks for the daemon, and the daemon's process.
constexpr const char* kRank =
    "echo at $CUDA_MPS_PIPE_DIRECTORY pid $(cat \"$CUDA_MPS_PIPE_DIRECTORY/pid\" 2>/dev/null)";

class SharedGpusTest : public ::testing::Test {
 protected:
  SharedGpusTest() {
    const auto folder = std::filesystem::temp_directory_path() / ("shared-gpus-" + std::to_string(::getpid()));
    folder_ = folder.string();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    std::ofstream(program()) << kScript;
    std::filesystem::permissions(program(), std::filesystem::perms::owner_all);
  }
  ~SharedGpusTest() override { std::filesystem::remove_all(folder_); }

  void SetUp() override {
    if (base::mps_daemon_listens(base::mps_folder())) GTEST_SKIP() << "this machine has a daemon of MPS";
  }
  const std::string& folder() const { return folder_; }
  std::string program() const { return folder_ + "/nvidia-cuda-mps-control"; }
  std::vector<std::string> environment(const std::string& gpus, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all = {"PATH=" + folder_ + ":" + std::getenv("PATH"), "CUDA_VISIBLE_DEVICES=" + gpus,
                                    "CUDA_MPS_PIPE_DIRECTORY"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  Ran ranks(const std::vector<std::string>& words, const std::string& gpus, const std::vector<std::string>& more = {},
            const std::string& script = kRank) const {
    std::vector<std::string> command = words;
    command.insert(command.end(), {"--prefix", "none", "sh", "-c", script});
    return run(reigen_run(command), environment(gpus, more));
  }
  // The daemon's process, or 0 if the ranks found none.
  static pid_t pid_in(const std::string& text) {
    const auto at = text.find(" pid ");
    return at == std::string::npos ? 0 : std::atoi(text.c_str() + at + 5);
  }
  static std::string folder_in(const std::string& text) {
    const std::string begin = (std::filesystem::temp_directory_path() / "reigen-mps-").string();
    const auto at = text.find(begin);
    return at == std::string::npos ? "" : text.substr(at, begin.size() + 6);
  }

 private:
  std::string folder_;
};

TEST_F(SharedGpusTest, ADaemonLivesAsLongAsTheJob) {
  for (const char* option : {"--grace=30", "--gpus-shared"}) {
    const Ran ran = ranks({"-n", "2", option}, "3");
    EXPECT_EQ(ran.code, 0) << ran.err;
    const pid_t daemon = pid_in(ran.out);
    ASSERT_GT(daemon, 1) << ran.out;
    EXPECT_TRUE(disappears(daemon));
    EXPECT_FALSE(std::filesystem::exists(folder_in(ran.out))) << ran.out;
  }
  // The daemon was asked to end.
  const std::string text = tests::read_file(folder() + "/calls");
  EXPECT_EQ(text, program() + " -d 3\n" + program() + "  3\n" + program() + " -d 3\n" + program() + "  3\n");
}

// The daemon sees the GPUs of the variable, and counts them from 0. The ranks name them by the daemon's numbers.
TEST_F(SharedGpusTest, TheRanksCountTheGpusOfTheDaemon) {
  for (const auto& [listed, seen] : {std::pair{"3,5", "0,1"}, {"GPU-8a,GPU-8b", "GPU-8a,GPU-8b"}, {"4,-1,2", "0"}}) {
    const Ran ran = ranks({"-n", "3"}, listed, {}, "echo $CUDA_VISIBLE_DEVICES");
    EXPECT_EQ(ran.out, std::string(seen) + "\n" + seen + "\n" + seen + "\n") << listed << ran.err;
  }
}

TEST_F(SharedGpusTest, ThereIsNoneWhereItIsNotWanted) {
  struct Case {
    const char* ranks;
    const char* option;
    const char* gpus;
  };
  for (const Case& one : {Case{"1", "--grace=30", "0"},
                          {"2", "--grace=30", "0,1"},
                          {"2", "--grace=30", ""},
                          {"2", "--no-mps", "0"},
                          {"2", "--grace=30", "NoDevFiles"},
                          {"49", "--grace=30", "0"}}) {
    const Ran ran = ranks({"-n", one.ranks, one.option}, one.gpus);
    EXPECT_EQ(ran.code, 0);
    EXPECT_EQ(pid_in(ran.out), 0) << one.ranks << one.option << one.gpus;
    EXPECT_EQ(folder_in(ran.out), "");
  }
}

// A socket that listens, as that of a daemon.
class Listener {
 public:
  explicit Listener(const std::string& path) : socket_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    EXPECT_EQ(::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(socket_.get(), 8), 0);
  }

 private:
  UniqueFd socket_;
};

TEST_F(SharedGpusTest, ADaemonOfTheUserIsUsed) {
  const std::string told = "CUDA_MPS_PIPE_DIRECTORY=" + folder();
  std::optional<Listener> daemon(folder() + "/control");
  for (const char* option : {"--gpus-shared", "--no-mps", "--grace=30"}) {
    const Ran ran = ranks({"-n", "2", option}, "0", {told});
    EXPECT_EQ(ran.code, 0) << ran.err;
    EXPECT_EQ(ran.out, "at " + folder() + " pid\nat " + folder() + " pid\n");
  }
  daemon.reset();  // the file of the socket remains
  EXPECT_EQ(ranks({"-n", "2"}, "0", {told}).code, 0);
  const Ran refused = ranks({"-n", "2", "--gpus-shared"}, "0", {told});
  EXPECT_EQ(refused.code, 69);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("nobody listens"), HasSubstr(told)));
}

TEST_F(SharedGpusTest, WhatIsMissingIsSaid) {
  Ran ran = ranks({"-n", "2", "--gpus-shared"}, "");
  EXPECT_EQ(ran.code, 69);
  EXPECT_THAT(ran.err, HasSubstr("no GPU is visible"));
  std::filesystem::rename(program(), program() + "-not");
  ran = ranks({"-n", "2", "--gpus-shared"}, "0");
  std::filesystem::rename(program() + "-not", program());
  EXPECT_EQ(ran.code, 69);
  EXPECT_THAT(ran.err, AllOf(HasSubstr("no nvidia-cuda-mps-control in PATH"), HasSubstr("Debian: nvidia-cuda-mps")));
  ran = ranks({"-n", "2", "--gpus-shared"}, "0", {"FAKE_MPS_FAILS=1"});
  EXPECT_EQ(ran.code, 69);
  EXPECT_THAT(ran.err, HasSubstr("no permission for this GPU"));
  ran = ranks({"-n", "2"}, "0", {"FAKE_MPS_FAILS=1"});
  EXPECT_EQ(ran.code, 0);
  EXPECT_THAT(ran.err, AllOf(HasSubstr("share GPUs without MPS"), HasSubstr("no permission for this GPU")));
  ran = ranks({"-n", "2", "--gpus-shared", "--no-mps"}, "0");
  EXPECT_EQ(ran.code, 2) << ran.err;
}

// The ranks end at once, because there is no GPU or the rate is wrong.
TEST_F(SharedGpusTest, ATrainingOnGpusHasOne) {
  if (!std::filesystem::exists(built("bin/reigen-train"))) GTEST_SKIP() << "built without LibTorch";
  struct Case {
    std::vector<std::string> words;
    std::vector<std::string> variables;
    bool has_daemon;
  };
  for (const Case& one : {Case{{"--train.device", "cuda"}, {}, true},
                          {{"--train.device=auto", "--optim.lr", "-1"}, {}, true},
                          {{"--optim.lr", "-1"}, {"REIGEN_TRAIN_DEVICE=cuda"}, true},
                          {{"--train.device", "cuda", "--no-mps"}, {}, false},
                          {{"--train.device", "cpu", "--optim.lr", "-1"}, {"REIGEN_TRAIN_DEVICE=cuda"}, false}}) {
    std::filesystem::remove(folder() + "/calls");
    std::vector<std::string> command = {built("bin/reigen"), "train", "mlp", "-n", "2"};
    command.insert(command.end(), one.words.begin(), one.words.end());
    EXPECT_NE(run_training(command, environment("0", one.variables)).code, 0);
    EXPECT_EQ(std::filesystem::exists(folder() + "/calls"), one.has_daemon) << one.words.front();
  }
}

TEST_F(SharedGpusTest, ADaemonThatDoesNotEndIsKilled) {
  const auto begin = std::chrono::steady_clock::now();
  const Ran ran = ranks({"-n", "2"}, "0", {"FAKE_MPS_STAYS=1"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_TRUE(disappears(pid_in(ran.out)));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
  EXPECT_FALSE(std::filesystem::exists(folder_in(ran.out)));
}

TEST_F(SharedGpusTest, ADaemonEndsWithAJobThatFails) {
  const Ran ran = ranks({"-n", "2"}, "0", {}, std::string(kRank) + "; [ $RANK = 0 ] && exit 5; sleep 60");
  EXPECT_EQ(ran.code, 5);
  EXPECT_TRUE(disappears(pid_in(ran.out)));
}

TEST_F(SharedGpusTest, ADaemonEndsWhenTheLauncherIsKilled) {
  for (const int signal : {SIGKILL, SIGTERM}) {
    ChildProgram job(reigen_run({"-n", "2", "--prefix", "none", "sh", "-c", std::string(kRank) + "; sleep 60"}),
                     environment("0"));
    ASSERT_TRUE(job.wait_for_text(" pid ", 2));
    const pid_t daemon = pid_in(job.out());
    ASSERT_GT(daemon, 1);
    ::kill(job.pid(), signal);
    job.wait();
    EXPECT_TRUE(disappears(daemon)) << signal;
    EXPECT_EQ(std::filesystem::exists(folder_in(job.out())), signal == SIGKILL);
    std::filesystem::remove_all(folder_in(job.out()));
  }
}

TEST(VisibleGpus, AreThoseOfTheVariableOrOfTheDriver) {
  const auto folder = std::filesystem::temp_directory_path() / ("gpus-" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder / "0000:01:00.0");
  std::filesystem::create_directories(folder / "0000:02:00.0");
  EXPECT_THAT(visible_gpus({}, folder), ElementsAre("0", "1"));
  EXPECT_THAT(visible_gpus({}, folder / "none"), IsEmpty());
  const auto listed = [](const char* value) { return visible_gpus({{"CUDA_VISIBLE_DEVICES", value}}); };
  EXPECT_THAT(listed(""), IsEmpty());
  EXPECT_THAT(listed("-1"), IsEmpty());
  EXPECT_THAT(listed("NoDevFiles"), IsEmpty());
  EXPECT_THAT(listed("2,0,1"), ElementsAre("2", "0", "1"));
  EXPECT_THAT(listed("0,-1,1"), ElementsAre("0"));
  EXPECT_THAT(listed("GPU-8a,MIG-8b"), ElementsAre("GPU-8a", "MIG-8b"));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace reigen::launch::shared_gpus_e2e_test
