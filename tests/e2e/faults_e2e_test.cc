// One rank of four fails at init, in a step or at the end. The job must end soon, name the rank, end with the right
// exit code, and leave nothing behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "harness/folders.h"
#include "launch/child_program.h"

namespace reigen::launch {
namespace {

using ::testing::HasSubstr;

struct Case {
  std::string fault;
  std::string place;
  int code;
  std::string words;
};

class Faults : public ::testing::TestWithParam<Case> {};

// The number of Reigen's files. Other programs may make and delete files meanwhile.
std::size_t shared_files() {
  std::error_code ignored;
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm", ignored)) {
    count += entry.path().filename().string().find("reigen") != std::string::npos ? 1U : 0U;
  }
  return count;
}

TEST_P(Faults, EndTheJobAndNameTheCulprit) {
  const auto before = shared_files();
  const Case& c = GetParam();
  const Ran ran = run(reigen_run({"-n", "4", built("tests/faulty_rank"), c.fault, c.place, "2"}));
  EXPECT_EQ(ran.code, c.code) << ran.out << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("rank 2")) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr(c.words)) << ran.err;
  const auto pids = pids_after("pid", ran.out);
  if (c.place != "init") {
    EXPECT_EQ(pids.size(), 4u) << ran.out;  // at init some ranks may end before they print their pid
  }
  for (const pid_t pid : pids) EXPECT_TRUE(disappears(pid)) << pid;
  EXPECT_EQ(shared_files(), before);
}

// The timeout can be changed, for example for a debugger, or for a machine that freezes now and then.
TEST(HeartbeatTimeout, IsChosenFromOutsideAndNamed) {
  const Ran ran = run(reigen_run({"-n", "2", built("tests/faulty_rank"), "stop", "step", "1"}),
                      {"REIGEN_COMM_HEARTBEAT_TIMEOUT=1"});
  EXPECT_EQ(ran.code, 79) << ran.out << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("no sign of life for 1 s"));
  EXPECT_THAT(ran.err, HasSubstr("REIGEN_COMM_HEARTBEAT_TIMEOUT=seconds"));
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const char* place : {"init", "step", "end"}) {
    all.push_back({"kill", place, 137, "SIGKILL"});
    all.push_back({"exit", place, 3, "exit code 3"});
    all.push_back({"throw", place, 70, "planned exception"});
  }
  all.push_back({"stop", "init", 79, "stopped"});
  all.push_back({"stop", "step", 79, "stopped"});
  all.push_back({"stop", "end", 79, "stopped"});
  return all;
}

INSTANTIATE_TEST_SUITE_P(OneOfFour, Faults, ::testing::ValuesIn(cases()),
                         [](const auto& made) { return made.param.fault + "_at_" + made.param.place; });

TEST(NoFault, IsADoneJob) {
  const Ran ran = run(reigen_run({"-n", "4", built("tests/faulty_rank"), "none", "step", "2"}));
  EXPECT_EQ(ran.code, 0) << ran.err;
}

}  // namespace
}  // namespace reigen::launch
