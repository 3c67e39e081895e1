// The same program under every launcher: it finds its rank and meets the others.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <memory>
#include <string>
#include <vector>

#include "child_program.h"
#include "reigen/base/unique_fd.h"

namespace reigen::launch {
namespace {

using testing::HasSubstr;

// A socket that listens on a port of its own, as torchrun's agent does.
struct Agent {
  Agent() : socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    ::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), size);
    ::listen(socket.get(), 8);
    ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size);
    port = std::to_string(ntohs(address.sin_port));
  }
  UniqueFd socket;
  std::string port;
};

// Starts each rank with the variables that a launcher would give it.
void expect_meeting(const std::string& source, const std::vector<std::vector<std::string>>& ranks) {
  std::vector<std::unique_ptr<ChildProgram>> programs;
  for (const auto& variables : ranks) {
    programs.push_back(std::make_unique<ChildProgram>(std::vector<std::string>{TEST_RANK_PROGRAM, "join"}, variables));
  }
  for (std::size_t rank = 0; rank < programs.size(); ++rank) {
    EXPECT_EQ(programs[rank]->wait(), 0) << programs[rank]->err();
    EXPECT_EQ(programs[rank]->out(),
              source + ": rank " + std::to_string(rank) + " of " + std::to_string(ranks.size()) + " met all\n");
  }
}

TEST(Launchers, Alone) { EXPECT_EQ(run({TEST_RANK_PROGRAM, "join"}).out, "none: rank 0 of 1 met all\n"); }

TEST(Launchers, ReigenRun) {
  const Ran ran = run(reigen_run({"-n", "3", TEST_RANK_PROGRAM, "join"}));
  EXPECT_EQ(ran.code, 0) << ran.err;
  for (const char* rank : {"0", "1", "2"}) {
    EXPECT_THAT(ran.out, HasSubstr(std::string("[") + rank + "] reigen: rank " + rank + " of 3 met all\n"));
  }
}

TEST(Launchers, TorchrunWhoseAgentOwnsThePort) {
  const Agent agent;
  std::vector<std::vector<std::string>> ranks;
  for (const std::string rank : {"0", "1"}) {
    ranks.push_back({"RANK=" + rank, "LOCAL_RANK=" + rank, "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=2", "GROUP_RANK=0",
                     "MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + agent.port, "TORCHELASTIC_RUN_ID=none",
                     "TORCHELASTIC_USE_AGENT_STORE=True"});
  }
  expect_meeting("torchrun", ranks);
}

TEST(Launchers, Slurm) {
  const std::string job = std::to_string(::getpid());  // the port follows from it
  std::vector<std::vector<std::string>> ranks;
  for (const std::string rank : {"0", "1"}) {
    ranks.push_back({"SLURM_PROCID=" + rank, "SLURM_LOCALID=" + rank, "SLURM_STEP_NUM_TASKS=2",
                     "SLURM_STEP_NUM_NODES=1", "SLURM_NODEID=0", "SLURM_STEP_TASKS_PER_NODE=2",
                     "SLURM_STEP_NODELIST=node1", "SLURM_JOB_ID=" + job, "SLURM_STEP_ID=0"});
  }
  expect_meeting("Slurm", ranks);
}

TEST(Launchers, Mpich) {
  std::vector<std::vector<std::string>> ranks;
  for (const std::string rank : {"0", "1"}) {
    ranks.push_back({"PMI_RANK=" + rank, "PMI_SIZE=2", "MPI_LOCALRANKID=" + rank, "MPI_LOCALNRANKS=2",
                     "REIGEN_JOB=" + std::to_string(::getpid())});
  }
  expect_meeting("MPICH", ranks);
}

TEST(Launchers, OpenMpi) {
  const std::string mpirun = MPIRUN_PROGRAM;
  const std::string version = mpirun.empty() ? "" : run({mpirun, "--version"}).out;
  if (version.find("Open MPI") == std::string::npos && version.find("OpenRTE") == std::string::npos) {
    GTEST_SKIP() << "no Open MPI here";
  }
  const Ran ran = run({mpirun, "--allow-run-as-root", "--oversubscribe", "-n", "2", TEST_RANK_PROGRAM, "join"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  for (const char* rank : {"0", "1"})
    EXPECT_THAT(ran.out, HasSubstr(std::string("Open MPI: rank ") + rank + " of 2 met all\n"));
}

TEST(Launchers, ReigenRunUnderAnotherLauncherWarns) {
  const Ran ran =
      run(reigen_run({"-n", "1", "true"}), {"SLURM_PROCID=0", "SLURM_LOCALID=0", "SLURM_STEP_NUM_TASKS=2",
                                            "SLURM_STEP_ID=0", "SLURM_JOB_ID=1", "SLURM_STEP_TASKS_PER_NODE=2"});
  EXPECT_EQ(ran.code, 0);
  EXPECT_THAT(ran.err, HasSubstr("Slurm already started 2 of these"));
}

}  // namespace
}  // namespace reigen::launch
