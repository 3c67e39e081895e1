#include "reigen/launch/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "reigen/base/error.h"

namespace reigen::launch {
namespace {

using testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

bool belongs_to_a_launcher(const std::string& name) {
  for (const char* prefix :
       {"REIGEN_", "TORCHELASTIC_", "OMPI_", "PMI", "MPI_", "SLURM_", "MASTER_", "GROUP_", "LOCAL_", "ROLE_"}) {
    if (name.starts_with(prefix)) return true;
  }
  return name == "RANK" || name == "WORLD_SIZE";
}

// While it lives, only these variables of launchers are set.
class OnlyVariables {
 public:
  explicit OnlyVariables(const Variables& variables) {
    std::vector<std::string> names;
    for (char** entry = environ; *entry != nullptr; ++entry) {
      const std::string text(*entry);
      names.push_back(text.substr(0, text.find('=')));
    }
    for (const std::string& name : names) {
      if (!belongs_to_a_launcher(name)) continue;
      saved_[name] = ::getenv(name.c_str());
      ::unsetenv(name.c_str());
    }
    for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
    set_ = variables;
  }
  ~OnlyVariables() {
    for (const auto& [name, value] : set_) ::unsetenv(name.c_str());
    for (const auto& [name, value] : saved_) ::setenv(name.c_str(), value.c_str(), 1);
  }
  OnlyVariables(const OnlyVariables&) = delete;
  OnlyVariables& operator=(const OnlyVariables&) = delete;

 private:
  Variables saved_;
  Variables set_;
};

Environment detect(const Variables& variables) {
  const OnlyVariables only(variables);
  return detect_environment();
}

std::string this_host() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

// Two nodes with two ranks each; this is rank 3.
const Variables kTorchrun = {
    {"RANK", "3"},       {"WORLD_SIZE", "4"},      {"LOCAL_RANK", "1"},      {"LOCAL_WORLD_SIZE", "2"},
    {"GROUP_RANK", "1"}, {"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29500"}, {"TORCHELASTIC_RUN_ID", "abc"}};
const Variables kSlurm = {{"SLURM_JOB_ID", "77"},
                          {"SLURM_STEP_ID", "2"},
                          {"SLURM_PROCID", "4"},
                          {"SLURM_STEP_NUM_TASKS", "5"},
                          {"SLURM_NTASKS", "16"},
                          {"SLURM_LOCALID", "1"},
                          {"SLURM_NODEID", "1"},
                          {"SLURM_STEP_NUM_NODES", "2"},
                          {"SLURM_NNODES", "4"},
                          {"SLURM_STEP_TASKS_PER_NODE", "3,2"},
                          {"SLURM_STEP_NODELIST", "gpu[07-08]"},
                          {"SLURM_JOB_NODELIST", "gpu[01-08]"}};
const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "2"},
                            {"OMPI_COMM_WORLD_SIZE", "4"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                            {"PMIX_NAMESPACE", "123"}};
const Variables kHydra = {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};

Variables with(Variables base, const Variables& changes) {
  for (const auto& [name, value] : changes) base[name] = value;
  return base;
}
Variables without(Variables base, const std::vector<std::string>& names) {
  for (const std::string& name : names) base.erase(name);
  return base;
}

struct Expected {
  std::string source;
  int rank, world, local_rank, local_world, node;
};

struct Case {
  std::string name;
  Variables variables;
  Expected expected;
};

TEST(DetectEnvironment, RanksOfEveryLauncher) {
  const std::vector<Case> cases = {
      {"nothing", {}, {"none", 0, 1, 0, 1, 0}},
      {"a lonely WORLD_SIZE=1", {{"WORLD_SIZE", "1"}}, {"none", 0, 1, 0, 1, 0}},
      {"empty counts as not set", {{"RANK", ""}, {"REIGEN_STORE", ""}}, {"none", 0, 1, 0, 1, 0}},
      {"torchrun", kTorchrun, {"torchrun", 3, 4, 1, 2, 1}},
      {"only the env:// variables, two hosts",
       without(kTorchrun, {"LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "TORCHELASTIC_RUN_ID"}),
       {"torchrun", 3, 4, 0, 1, 3}},
      {"only the env:// variables, this host",
       {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "1234"}},
       {"torchrun", 1, 2, 1, 2, 0}},
      {"one rank needs no address", {{"RANK", "0"}, {"WORLD_SIZE", "1"}}, {"torchrun", 0, 1, 0, 1, 0}},
      {"reigen run",
       with(kTorchrun, {{"REIGEN_STORE", "tcp://127.0.0.1:5"},
                        {"REIGEN_JOB", "j"},
                        {"LOCAL_WORLD_SIZE", "4"},
                        {"LOCAL_RANK", "3"},
                        {"GROUP_RANK", "0"}}),
       {"reigen", 3, 4, 3, 4, 0}},
      {"Open MPI", kOpenMpi, {"Open MPI", 2, 4, 2, 4, 0}},
      {"Open MPI inside of a Slurm step", with(kSlurm, kOpenMpi), {"Open MPI", 2, 4, 2, 4, 0}},
      {"MPICH", kHydra, {"MPICH", 1, 2, 1, 2, 0}},
      {"MPICH inside of a Slurm job", with(kSlurm, kHydra), {"MPICH", 1, 2, 1, 2, 0}},
      {"srun's own PMI is Slurm", with(kSlurm, {{"PMI_RANK", "4"}, {"PMI_SIZE", "5"}}), {"Slurm", 4, 5, 1, 2, 1}},
      {"Slurm", kSlurm, {"Slurm", 4, 5, 1, 2, 1}},
      {"a batch script is one process", without(kSlurm, {"SLURM_STEP_ID"}), {"none", 0, 1, 0, 1, 0}},
      {"the batch step is one process", with(kSlurm, {{"SLURM_STEP_ID", "4294967291"}}), {"none", 0, 1, 0, 1, 0}},
      {"torchrun inside of a Slurm step", with(kSlurm, kTorchrun), {"torchrun", 3, 4, 1, 2, 1}},
      {"WORLD_SIZE exported in a batch script", with(kSlurm, {{"WORLD_SIZE", "5"}}), {"Slurm", 4, 5, 1, 2, 1}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const Environment e = detect(c.variables);
    EXPECT_EQ(e.source, c.expected.source);
    EXPECT_EQ(e.rank, c.expected.rank);
    EXPECT_EQ(e.world_size, c.expected.world);
    EXPECT_EQ(e.local_rank, c.expected.local_rank);
    EXPECT_EQ(e.local_world_size, c.expected.local_world);
    EXPECT_EQ(e.node_rank, c.expected.node);
  }
}

TEST(DetectEnvironment, WhereTheStoreIs) {
  const Environment reigen =
      detect({{"REIGEN_STORE", "tcp://127.0.0.1:5"}, {"REIGEN_JOB", "j"}, {"RANK", "0"}, {"WORLD_SIZE", "2"}});
  EXPECT_EQ(reigen.store, "tcp://127.0.0.1:5");
  EXPECT_EQ(reigen.job, "j");

  EXPECT_EQ(detect(kTorchrun).master_address, "node1");
  EXPECT_EQ(detect(kTorchrun).master_port, 29500);
  EXPECT_TRUE(detect(with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}})).agent_store);
  EXPECT_EQ(detect(with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}})).master_port, 29500);
  EXPECT_FALSE(detect(with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "False"}})).agent_store);

  EXPECT_EQ(detect(kSlurm).master_address, "gpu07");
  EXPECT_EQ(detect(with(kSlurm, {{"MASTER_ADDR", "10.0.0.1"}})).master_address, "10.0.0.1");
  EXPECT_EQ(
      detect(with(kSlurm, {{"SLURM_STEP_NUM_NODES", "1"}, {"SLURM_NODEID", "0"}, {"SLURM_STEP_TASKS_PER_NODE", "5"}}))
          .master_address,
      "127.0.0.1");
  EXPECT_EQ(detect(kOpenMpi).master_address, "127.0.0.1");
  EXPECT_EQ(detect(kOpenMpi).master_port, 0);  // all ranks are here: no port is given, and none is needed
  EXPECT_EQ(detect(with(kSlurm, {{"SLURM_STEP_RESV_PORTS", "12000-12001"}})).master_port, 12000);
  EXPECT_EQ(detect(with(kOpenMpi, {{"MASTER_PORT", "4000"}})).master_port, 4000);
  EXPECT_EQ(detect(kHydra).master_address, "127.0.0.1");
}

TEST(DetectEnvironment, AllRanksFindTheSamePortAndJob) {
  const Environment third = detect(kSlurm);
  const Environment first =
      detect(with(kSlurm, {{"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}, {"SLURM_NODEID", "0"}}));
  EXPECT_EQ(first.job, third.job);
  EXPECT_EQ(first.master_port, third.master_port);
  EXPECT_GE(first.master_port, 20000);
  EXPECT_LT(first.master_port, 29000);  // Kubernetes uses ports from 30000 on, the kernel from 32768 on
  EXPECT_NE(detect(with(kSlurm, {{"SLURM_STEP_ID", "3"}})).job, third.job);
  EXPECT_NE(detect(with(kSlurm, {{"SLURM_JOB_ID", "78"}})).master_port, third.master_port);
  EXPECT_NE(detect(with(kOpenMpi, {{"PMIX_NAMESPACE", "124"}})).job, detect(kOpenMpi).job);
  EXPECT_EQ(detect(with(kHydra, {{"PMI_RANK", "0"}, {"MPI_LOCALRANKID", "0"}})).job, detect(kHydra).job);
}

TEST(DetectEnvironment, AUsersJobNameBecomesPartOfTheIdentity) {
  const Environment plain = detect(kSlurm);
  const Environment named = detect(with(kSlurm, {{"REIGEN_JOB", "secret"}}));
  EXPECT_NE(plain.job, named.job);
  EXPECT_EQ(plain.master_port, named.master_port);
}

TEST(DetectEnvironment, ComplaintsNameTheVariableAndItsValue) {
  const std::vector<std::pair<Variables, std::string>> cases = {
      {with(kTorchrun, {{"RANK", "x"}}), "RANK=x"},
      {with(kTorchrun, {{"RANK", "4"}}), "RANK=4"},
      {with(kTorchrun, {{"RANK", "-1"}}), "RANK=-1"},
      {with(kTorchrun, {{"RANK", "1.5"}}), "RANK=1.5"},
      {with(kTorchrun, {{"WORLD_SIZE", "0"}}), "WORLD_SIZE=0"},
      {with(kTorchrun, {{"WORLD_SIZE", "99999999999999"}}), "WORLD_SIZE=99999999999999"},
      {with(kTorchrun, {{"LOCAL_RANK", "2"}}), "LOCAL_RANK=2"},
      {with(kTorchrun, {{"LOCAL_WORLD_SIZE", "5"}}), "LOCAL_WORLD_SIZE=5"},
      {with(kTorchrun, {{"MASTER_PORT", "70000"}}), "MASTER_PORT=70000"},
      {without(kTorchrun, {"MASTER_ADDR"}), "MASTER_ADDR"},
      {without(kTorchrun, {"MASTER_PORT"}), "MASTER_PORT"},
      {without(kTorchrun, {"WORLD_SIZE"}), "WORLD_SIZE"},
      {{{"RANK", "0"}}, "WORLD_SIZE"},
      {{{"WORLD_SIZE", "4"}}, "WORLD_SIZE=4"},
      {{{"REIGEN_STORE", "tcp://127.0.0.1:5"}, {"RANK", "0"}, {"WORLD_SIZE", "1"}}, "REIGEN_JOB"},
      {without(kOpenMpi, {"OMPI_COMM_WORLD_RANK"}), "OMPI_COMM_WORLD_RANK"},
      {without(kOpenMpi, {"OMPI_COMM_WORLD_LOCAL_SIZE"}), "OMPI_COMM_WORLD_LOCAL_SIZE"},
      {with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}}), "MASTER_ADDR"},
      {with(kOpenMpi, {{"RANK", "0"}, {"WORLD_SIZE", "1"}}), "OMPI_COMM_WORLD_SIZE=4"},
      {without(kHydra, {"MPI_LOCALNRANKS"}), "MPI_LOCALNRANKS"},
      {with(kHydra, {{"PMI_SIZE", "one"}}), "PMI_SIZE=one"},
      {with(kSlurm, {{"SLURM_PROCID", "5"}}), "SLURM_PROCID=5"},
      {with(kSlurm, {{"SLURM_STEP_ID", "x"}}), "SLURM_STEP_ID=x"},
      {with(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", "5"}}), "SLURM_STEP_TASKS_PER_NODE=5"},
      {with(kSlurm, {{"SLURM_STEP_NODELIST", "gpu[7"}}), "SLURM_STEP_NODELIST=gpu[7"},
      {without(kSlurm, {"SLURM_LOCALID"}), "SLURM_LOCALID"},
  };
  for (const auto& [variables, text] : cases) {
    try {
      detect(variables);
      ADD_FAILURE() << "accepted, expected a complaint about " << text;
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr(text));
      EXPECT_EQ(error.exit_code(), ExitCode::kConfiguration);
    }
  }
}

// Rank 0 of a job on many machines also gets the name of its own machine. Only a launcher's count can say that all
// ranks are here.
TEST(DetectEnvironment, ThisHostsNameSaysNothingAboutTheOtherRanks) {
  const Variables four = {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", this_host()}, {"MASTER_PORT", "1234"}};
  EXPECT_EQ(detect(four).local_world_size, 1);
  EXPECT_FALSE(detect(four).one_host);
  EXPECT_EQ(detect(with(four, {{"RANK", "1"}, {"LOCAL_RANK", "1"}})).local_rank, 1);
  EXPECT_FALSE(detect(with(four, {{"MASTER_ADDR", "127.0.0.1"}})).one_host);
  EXPECT_EQ(detect(with(four, {{"MASTER_ADDR", "127.0.0.1"}})).local_world_size, 2);
  EXPECT_EQ(detect(with(four, {{"MASTER_ADDR", "localhost"}})).local_world_size, 2);
  ::setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1", 1);  // where operators give localhost to rank 0's pod
  EXPECT_EQ(detect(with(four, {{"MASTER_ADDR", "localhost"}})).local_world_size, 1);
  ::unsetenv("KUBERNETES_SERVICE_HOST");
  EXPECT_TRUE(detect(with(four, {{"LOCAL_WORLD_SIZE", "2"}})).one_host);
}

// Otherwise every rank of a machine would use the machine's first GPU.
TEST(DetectEnvironment, TheRankOnItsMachineIsKnownOnlyWhereItWasSaidOrFollows) {
  const Variables bare = {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "node1"}, {"MASTER_PORT", "1234"}};
  EXPECT_FALSE(detect(bare).knows_local_rank);
  EXPECT_TRUE(detect(with(bare, {{"LOCAL_RANK", "1"}})).knows_local_rank);
  EXPECT_TRUE(detect(with(bare, {{"LOCAL_WORLD_SIZE", "2"}})).knows_local_rank);
  EXPECT_TRUE(detect(with(bare, {{"MASTER_ADDR", "127.0.0.1"}})).knows_local_rank);
  for (const Variables& launcher : {kTorchrun, kOpenMpi, kHydra, kSlurm}) {
    EXPECT_TRUE(detect(launcher).knows_local_rank);
  }
}

TEST(DetectEnvironment, OneNameOfRankZeroIsAsGoodAsAnother) {
  const Variables here = with(kTorchrun, {{"MASTER_ADDR", "localhost"}, {"RANK", "0"}, {"LOCAL_RANK", "0"}});
  EXPECT_EQ(detect(here).job, detect(kTorchrun).job);
}

TEST(DetectEnvironment, SlurmSaysWhetherRankZeroIsOnThisNode) {
  EXPECT_FALSE(detect(with(kSlurm, {{"SLURMD_NODENAME", "gpu08"}})).on_first_node);
  EXPECT_TRUE(detect(with(kSlurm, {{"SLURMD_NODENAME", "gpu07"}})).on_first_node);
  EXPECT_FALSE(detect(with(kSlurm, {{"SLURMD_NODENAME", "gpu07"}, {"MASTER_ADDR", "gpu08"}})).on_first_node);
}

// If a service is called master, every pod gets this variable.
TEST(DetectEnvironment, APortOfKubernetesIsNone) {
  const Variables service = {{"MASTER_PORT", "tcp://10.3.2.1:80"}};
  EXPECT_EQ(detect(with(kSlurm, service)).master_port, detect(kSlurm).master_port);
  EXPECT_EQ(detect(with(kOpenMpi, service)).master_port, 0);
  try {
    detect(with(kTorchrun, service));
    FAIL() << "took a URL for a port";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("MASTER_PORT is not set"));
    EXPECT_THAT(error.what(), HasSubstr("tcp://10.3.2.1:80"));
  }
}

}  // namespace
}  // namespace reigen::launch
