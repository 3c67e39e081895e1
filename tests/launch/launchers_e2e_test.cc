// The same program under every launcher: it finds its rank and joins the others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "agent_server.h"
#include "child_program.h"
#include "harness/folders.h"
#include "net/interfaces.h"

namespace reigen::launch::launchers_e2e_test {
namespace {

using ::testing::AnyOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// A free port, which the kernel has chosen, for use as MASTER_PORT.
std::string free_port() { return std::to_string(AgentServer().port()); }

std::string this_host() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

using Variables = std::vector<std::string>;

// The variables of each of two ranks: the launcher's `names` with the rank's number, then `common`.
std::vector<Variables> ranks_of(const std::vector<std::string>& names, const Variables& common) {
  std::vector<Variables> ranks(2);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    for (const std::string& name : names) ranks[rank].push_back(name + "=" + std::to_string(rank));
    ranks[rank].insert(ranks[rank].end(), common.begin(), common.end());
  }
  return ranks;
}

// Starts each rank with the variables that a launcher would give it, and checks where the ranks listen. `port`: the
// only port that was given; empty: no port was given; "any": the kernel chooses the port.
void expect_meeting(const std::string& source, const std::vector<Variables>& ranks, const std::string& port) {
  std::vector<std::unique_ptr<ChildProgram>> programs;
  for (const auto& variables : ranks) {
    programs.push_back(std::make_unique<ChildProgram>(
        std::vector<std::string>{built("tests/launch_test_rank"), "join", "list"}, variables));
  }
  for (std::size_t rank = 0; rank < programs.size(); ++rank) {
    EXPECT_EQ(programs[rank]->wait(), 0) << programs[rank]->err();
    EXPECT_THAT(programs[rank]->out(), HasSubstr(source + ": rank " + std::to_string(rank) + " of " +
                                                 std::to_string(ranks.size()) + " met all\n"));
    EXPECT_EQ(programs[rank]->err(), "");
    std::istringstream line(programs[rank]->out().substr(0, programs[rank]->out().find('\n')));
    std::string place;
    line >> place;
    EXPECT_EQ(place, "listens:");
    while (line >> place) {
      EXPECT_EQ(rank, 0u) << place;
      EXPECT_THAT(place, Not(AnyOf(StartsWith("0.0.0.0/"), StartsWith("::/")))) << "rank " << rank;
      if (port != "any") {
        EXPECT_THAT(place, EndsWith("/" + port)) << "rank " << rank;
      }
    }
  }
}

TEST(Launchers, Alone) { EXPECT_EQ(run({built("tests/launch_test_rank"), "join"}).out, "none: rank 0 of 1 met all\n"); }

TEST(Launchers, ReigenRun) {
  const Ran ran = run(reigen_run({"-n", "3", built("tests/launch_test_rank"), "join"}));
  EXPECT_EQ(ran.code, 0) << ran.err;
  for (const char* rank : {"0", "1", "2"}) {
    EXPECT_THAT(ran.out, HasSubstr(std::string("[") + rank + "] reigen: rank " + rank + " of 3 met all\n"));
  }
}

// Two ranks of torchrun on one node need no answer of the agent, whose port MASTER_PORT is.
TEST(Launchers, TorchrunOnOneNode) {
  const AgentServer agent(false);
  for (const std::string& address : {net::loopback_address(), this_host()}) {
    expect_meeting(
        "torchrun",
        ranks_of({"RANK", "LOCAL_RANK"}, {"WORLD_SIZE=2", "LOCAL_WORLD_SIZE=2", "GROUP_RANK=0",
                                          "MASTER_ADDR=" + address, "MASTER_PORT=" + std::to_string(agent.port()),
                                          "TORCHELASTIC_RUN_ID=none", "TORCHELASTIC_USE_AGENT_STORE=True"}),
        "");
  }
}

TEST(Launchers, TorchrunOnTwoNodes) {
  for (const std::string& address : {net::loopback_address(), this_host()}) {
    const AgentServer agent;
    expect_meeting(
        "torchrun",
        ranks_of({"RANK", "GROUP_RANK"}, {"WORLD_SIZE=2", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1",
                                          "MASTER_ADDR=" + address, "MASTER_PORT=" + std::to_string(agent.port()),
                                          "TORCHELASTIC_RUN_ID=none", "TORCHELASTIC_USE_AGENT_STORE=True"}),
        "any");
  }
}

TEST(Launchers, ByHand) {
  for (const std::string& address : {net::loopback_address(), std::string("localhost"), this_host()}) {
    for (const Variables& count : {Variables{"LOCAL_WORLD_SIZE=2"}, Variables{}}) {
      const std::string port = free_port();
      Variables common = {"WORLD_SIZE=2", "MASTER_ADDR=" + address, "MASTER_PORT=" + port};
      common.insert(common.end(), count.begin(), count.end());
      expect_meeting("torchrun", ranks_of({"RANK"}, common), port);
    }
  }
}

// pytorch-operator gives `localhost` to rank 0, and the name of rank 0's pod to the others.
TEST(Launchers, PyTorchJob) {
  const std::string port = free_port();
  auto ranks = ranks_of({"RANK"}, {"WORLD_SIZE=2", "MASTER_PORT=" + port, "KUBERNETES_SERVICE_HOST=10.0.0.1"});
  ranks[0].push_back("MASTER_ADDR=localhost");
  ranks[1].push_back("MASTER_ADDR=" + this_host());
  expect_meeting("torchrun", ranks, port);
}

TEST(Launchers, Slurm) {
  const Variables one_node = {"SLURM_STEP_NUM_TASKS=2",
                              "SLURM_STEP_NUM_NODES=1",
                              "SLURM_NODEID=0",
                              "SLURM_STEP_TASKS_PER_NODE=2",
                              "SLURM_STEP_NODELIST=node1",
                              "SLURM_JOB_ID=" + std::to_string(::getpid()),
                              "SLURM_STEP_ID=0"};
  const auto ranks = ranks_of({"SLURM_PROCID", "SLURM_LOCALID"}, one_node);
  expect_meeting("Slurm", ranks, "");
  const std::string port = free_port();
  Variables with_address = one_node;
  with_address.insert(with_address.end(), {"MASTER_ADDR=" + this_host(), "MASTER_PORT=" + port});
  expect_meeting("Slurm", ranks_of({"SLURM_PROCID", "SLURM_LOCALID"}, with_address), port);
}

// The name of the first node resolves to this machine.
TEST(Launchers, SlurmOnTwoNodes) {
  const std::string port = free_port();
  auto ranks = ranks_of({"SLURM_PROCID", "SLURM_NODEID"},
                        {"SLURM_LOCALID=0", "SLURM_STEP_NUM_TASKS=2", "SLURM_STEP_NUM_NODES=2",
                         "SLURM_STEP_TASKS_PER_NODE=1(x2)", "SLURM_STEP_NODELIST=" + this_host() + ",zz-other",
                         "SLURM_JOB_ID=" + std::to_string(::getpid()), "SLURM_STEP_ID=0", "MASTER_PORT=" + port});
  expect_meeting("Slurm", ranks, port);
}

TEST(Launchers, Mpich) {
  const Variables common = {"PMI_SIZE=2", "MPI_LOCALNRANKS=2", "REIGEN_JOB=" + std::to_string(::getpid())};
  expect_meeting("MPICH", ranks_of({"PMI_RANK", "MPI_LOCALRANKID"}, common), "");
  const std::string port = free_port();
  Variables with_address = common;
  with_address.insert(with_address.end(), {"MASTER_ADDR=" + this_host(), "MASTER_PORT=" + port});
  expect_meeting("MPICH", ranks_of({"PMI_RANK", "MPI_LOCALRANKID"}, with_address), port);
}

TEST(Launchers, OpenMpiBesideAnAddress) {
  const std::string port = free_port();
  expect_meeting(
      "Open MPI",
      ranks_of({"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"},
               {"OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_SIZE=2",
                "PMIX_NAMESPACE=" + std::to_string(::getpid()), "MASTER_ADDR=" + this_host(), "MASTER_PORT=" + port}),
      port);
}

TEST(Launchers, OpenMpi) {
  const std::string mpirun = MPIRUN_PROGRAM;
  const std::string version = mpirun.empty() ? "" : run({mpirun, "--version"}).out;
  if (version.find("Open MPI") == std::string::npos && version.find("OpenRTE") == std::string::npos) {
    GTEST_SKIP() << "no Open MPI here";
  }
  const Ran ran =
      run({mpirun, "--allow-run-as-root", "--oversubscribe", "-n", "2", built("tests/launch_test_rank"), "join"});
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

// Runs all of the above on a machine with another name or other addresses, which namespaces simulate.
void run_in_namespace(const std::string& hosts, const std::string& addresses) {
  if (::geteuid() != 0) GTEST_SKIP() << "namespaces need root";
  if (run({"unshare", "-n", "-u", "-m", "true"}).code != 0) GTEST_SKIP() << "no namespaces here";
  if (run({"sh", "-c", "command -v ip"}).code != 0) GTEST_SKIP() << "no iproute2 here";
  const auto folder = std::filesystem::temp_directory_path() / ("reigen_hosts_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "hosts") << hosts;
  const std::string script = "set -e; hostname meeting-host; mount --bind " + (folder / "hosts").string() +
                             " /etc/hosts; ip link set lo up; " + addresses +
                             "exec \"$0\" --gtest_filter='Launchers.*-*OpenMpi:*Warns' --gtest_brief=1";
  const Ran ran =
      run({"unshare", "-n", "-u", "-m", "sh", "-c", script, std::filesystem::read_symlink("/proc/self/exe").string()});
  std::filesystem::remove_all(folder);
  EXPECT_EQ(ran.code, 0) << ran.out << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("[  PASSED  ]"));
}

constexpr const char* kLocalhost = "127.0.0.1 localhost\n::1 localhost\n";
// Commands that make a network card with an address. If the kernel has no pairs of cards, lo gets the address.
std::string card(const std::string& address) {
  return "ip link add v0 type veth peer name v1 && ip link set v0 up && ip link set v1 up && ip addr add " + address +
         " dev v0 nodad || ip addr add " + address + " dev lo nodad; ";
}

TEST(Namespaces, OwnNameAt127001) { run_in_namespace(kLocalhost + std::string("127.0.0.1 meeting-host\n"), ""); }

TEST(Namespaces, OwnNameAt127011) {
  run_in_namespace(kLocalhost + std::string("127.0.1.1 meeting-host\n"), card("10.9.8.7/24"));
}

TEST(Namespaces, OwnNameAtAnAddressOfTheNetwork) {
  run_in_namespace(kLocalhost + std::string("10.9.8.7 meeting-host\n"), card("10.9.8.7/24"));
}

TEST(Namespaces, IPv6Alone) {
  run_in_namespace("::1 localhost\nfd00:9::7 meeting-host\n",
                   card("fd00:9::7/64") + "ip addr del 127.0.0.1/8 dev lo; ");
}

}  // namespace
}  // namespace reigen::launch::launchers_e2e_test
