// Where rank 0 listens and where the others connect, according to their variables, and the requests to torchrun's
// agent.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>
#include <future>
#include <string>
#include <vector>

#include "agent_server.h"
#include "launch/meet/agent_store.h"
#include "launch/meet/listening.h"
#include "launch/meet/slurm_node.h"
#include "net/interfaces.h"
#include "net/socket.h"
#include "reigen/base/error.h"
#include "reigen/launch/environment.h"
#include "reigen/store/tcp_store.h"

namespace reigen::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AnyOf;
using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

Environment told(const std::string& address, bool one_host = false) {
  Environment e;
  e.world_size = 2;
  e.local_world_size = one_host ? 2 : 1;
  e.one_host = one_host;
  e.source = "torchrun";
  e.master_address = address;
  e.master_port = 29500;
  e.port_origin = "MASTER_PORT";
  e.job = "job";
  return e;
}

TEST(PlacesToListen, AreOfTheLoopbackAloneWhereTheAddressMeansTheLoopbackForAll) {
  const std::string loopback = net::loopback_address();
  EXPECT_THAT(places_to_listen(told(loopback)), ElementsAre(loopback));
  if (loopback == "127.0.0.1") {  // a network namespace may have only IPv6
    EXPECT_THAT(places_to_listen(told("127.0.1.1")), ElementsAre("127.0.1.1"));
  }
  EXPECT_THAT(places_to_listen(told("localhost")), Each(AnyOf("127.0.0.1", "::1")));
}

TEST(PlacesToListen, AreWhereTheAddressPointsAndTheLoopbackWhereAllAreHere) {
  const std::string loopback = net::loopback_address();
  if (loopback == "127.0.0.1") {
    EXPECT_THAT(places_to_listen(told("127.0.1.1", true)), ElementsAre(loopback, "127.0.1.1"));
  }
  EXPECT_THAT(places_to_listen(told("no-such-host.invalid", true)), ElementsAre(loopback));
}

TEST(PlacesToListen, AreAllOfThisMachineWhereTheOthersMayBeElsewhere) {
  const std::vector<std::string> own = addresses_of_this_machine();
  for (const char* name : {"no-such-host.invalid", "192.0.2.1"}) {
    const std::vector<std::string> places = places_to_listen(told(name));
    EXPECT_THAT(places, Contains(net::loopback_address()));
    for (const std::string& address : own) EXPECT_THAT(places, Contains(address));
    EXPECT_THAT(places, Each(Not(AnyOf("0.0.0.0", "::"))));
  }
}

// pytorch-operator gives `localhost` to the pod of rank 0, and the name of this pod to the others.
TEST(PlacesToListen, InKubernetesLocalhostIsNotTheLoopbackForAll) {
  EXPECT_TRUE(means_one_host("localhost"));
  ::setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1", 1);
  EXPECT_FALSE(means_one_host("localhost"));
  const std::vector<std::string> places = places_to_listen(told("localhost"));
  ::unsetenv("KUBERNETES_SERVICE_HOST");
  EXPECT_THAT(places, Contains(net::loopback_address()));
  for (const std::string& address : addresses_of_this_machine()) EXPECT_THAT(places, Contains(address));
}

// With an agent, MASTER_ADDR is the agent's address, and the agent tells the others rank 0's address.
TEST(PlacesToListen, AnAddressElsewhereIsNoSurpriseWhereAnAgentTellsRankZerosOwn) {
  const auto warnings = [](bool agent_store) {
    Environment e = told("192.0.2.1");
    e.agent_store = agent_store;
    testing::internal::CaptureStderr();
    places_to_listen(e);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(warnings(false), HasSubstr("192.0.2.1"));
  EXPECT_EQ(warnings(true), "");
}

TEST(PlacesToListen, AreEverywhereOnlyWhereThatWasGiven) {
  EXPECT_THAT(places_to_listen(told("0.0.0.0")), ElementsAre("0.0.0.0"));
}

TEST(PlacesToLook, BeginWithTheLoopbackWhereRankZeroIsHere) {
  EXPECT_THAT(places_to_look(told("node1")), ElementsAre("node1"));
  EXPECT_THAT(places_to_look(told("node1", true)), ElementsAre("127.0.0.1", "::1", "node1"));
  Environment e = told("node1");
  e.source = "srun in an allocation without names";
  e.on_first_node = true;
  EXPECT_THAT(places_to_look(e), ElementsAre("127.0.0.1", "::1", "node1"));
}

TEST(SlurmNode, ItsAddressIsReadFromWhatScontrolPrints) {
  EXPECT_EQ(
      parse_node_address("NodeName=n1 Arch=x86_64 CoresPerSocket=4 NodeAddr=10.0.0.7 NodeHostName=vm Port=17001\n"),
      "10.0.0.7");
  EXPECT_EQ(parse_node_address("NodeName=n1 NodeAddr=vm"), "vm");
  EXPECT_EQ(parse_node_address("Node n9 not found\n"), "");
  EXPECT_EQ(slurm_node_address("n1; touch /tmp/x"), "");
  EXPECT_EQ(slurm_node_address("--help"), "");
}

TEST(SocketOfJob, IsAnotherOneForOtherJobs) {
  EXPECT_EQ(socket_of_job("a"), socket_of_job("a"));
  EXPECT_NE(socket_of_job("a"), socket_of_job("b"));
  EXPECT_LE(socket_of_job(std::string(1000, 'x')).size(), 100u);
}

TEST(AgentStore, KeepsValues) {
  AgentServer server;
  AgentStore agent("127.0.0.1", server.port(), Deadline::after(seconds(10)));
  EXPECT_FALSE(agent.has("a"));
  agent.set("a", "first");
  agent.set("a", std::string("b\0c", 3));
  EXPECT_TRUE(agent.has("a"));
  EXPECT_EQ(agent.get("a"), std::string("b\0c", 3));
  EXPECT_TRUE(agent.wait({"a"}, Deadline::after(seconds(10))));
  agent.erase("a");
  EXPECT_FALSE(agent.has("a"));
  EXPECT_FALSE(agent.wait({"a", "b"}, Deadline::after(milliseconds(50))));
}

TEST(AgentStore, SaysWhatListensThereInstead) {
  const AgentServer silent(false);
  try {
    AgentStore("127.0.0.1", silent.port(), Deadline::after(milliseconds(200)));
    FAIL() << "took it for an agent";
  } catch (const Timeout& error) {
    EXPECT_THAT(error.what(), HasSubstr("no store of PyTorch 2.1 or newer"));
    EXPECT_THAT(error.what(), HasSubstr("TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"));
  }
}

// Joins ranks that seem to be alone on their nodes, although all nodes are this machine.
std::vector<std::shared_ptr<store::Store>> meet_at(const AgentServer& agent, int ranks, const Deadline& deadline) {
  std::vector<std::future<std::shared_ptr<store::Store>>> waits;
  for (int rank = 0; rank < ranks; ++rank) {
    Environment e = told("127.0.0.1");
    e.rank = e.node_rank = rank;
    e.world_size = ranks;
    e.master_port = agent.port();
    e.agent_store = true;
    waits.push_back(std::async(std::launch::async, [e, deadline] { return join_job(e, deadline); }));
  }
  std::vector<std::shared_ptr<store::Store>> stores;
  for (auto& wait : waits) stores.push_back(wait.get());
  return stores;
}

TEST(AgentMeeting, RankZeroTellsWhereItListens) {
  AgentServer agent;
  const auto stores = meet_at(agent, 3, Deadline::after(seconds(30)));
  stores[1]->set("x", "1");
  EXPECT_EQ(stores[2]->get("x", Deadline::after(seconds(10))), "1");
  const auto table = agent.table();
  EXPECT_THAT(table.at("reigen/address"), testing::EndsWith(" " + net::loopback_address()));  // all ranks are here
  EXPECT_EQ(table.size(), 1u);                                                                // no other key is left
}

TEST(AgentMeeting, AnAddressOfAnEarlierAttemptIsPassedOver) {
  AgentServer agent;
  const AgentServer other;  // another program now has the port of the earlier attempt
  agent.set("reigen/address", "0123 net:[1] " + std::to_string(other.port()) + " 127.0.0.1");
  const auto stores = meet_at(agent, 2, Deadline::after(seconds(30)));
  stores[0]->set("x", "1");
  EXPECT_EQ(stores[1]->get("x", Deadline::after(seconds(10))), "1");
}

// One of three ranks never comes, and the error names it.
void expect_missing(int rank, const Environment& environment) {
  try {
    join_job(environment, Deadline::after(milliseconds(300)));
    FAIL() << "met nobody";
  } catch (const Timeout& error) {
    EXPECT_THAT(error.what(), HasSubstr("got: 2 ranks"));
    EXPECT_THAT(error.what(), HasSubstr("missing: " + std::to_string(rank)));
  }
}

// Rank 0 of the earlier attempt is gone. Nobody answers at its address, or another job does. The error must say that a
// rank is missing, and not blame a firewall.
TEST(AgentMeeting, WithAnEarlierAttemptsAddressAloneItNamesWhoIsMissing) {
  const store::TcpStoreServer other_job({.job = "other"});
  for (const std::uint16_t port : {net::Listener("127.0.0.1", 0).address().port(), other_job.port()}) {
    AgentServer agent;
    agent.set("reigen/address", "0123 net:[1] " + std::to_string(port) + " 127.0.0.1");
    Environment e = told("127.0.0.1");
    e.rank = e.node_rank = 1;
    e.world_size = 3;
    e.master_port = agent.port();
    e.agent_store = true;
    agent.set("reigen/place/2", "here");
    expect_missing(0, e);
  }
}

// Rank 0 erases the places of all ranks after it has announced its address.
TEST(AgentMeeting, WhoIsToldThisAttemptsAddressAndCannotGetThereHearsOfTheFirewall) {
  AgentServer agent;
  Environment e = told("127.0.0.1");
  e.rank = e.node_rank = 1;
  e.master_port = agent.port();
  e.agent_store = true;
  auto rank = std::async(std::launch::async, [e]() -> std::string {
    try {
      join_job(e, Deadline::after(seconds(2)));
    } catch (const Timeout& error) {
      return error.what();
    }
    return "";
  });
  AgentStore zero("127.0.0.1", agent.port(), Deadline::after(seconds(10)));
  ASSERT_TRUE(zero.wait({"reigen/place/1"}, Deadline::after(seconds(10))));
  const std::uint16_t nobody = net::Listener("127.0.0.1", 0).address().port();
  zero.set("reigen/address", "0123 net:[1] " + std::to_string(nobody) + " 127.0.0.1");
  zero.erase("reigen/place/1");
  EXPECT_THAT(rank.get(), HasSubstr("firewall"));
}

TEST(AgentMeeting, NamesWhoIsMissing) {
  AgentServer agent;
  Environment e = told("127.0.0.1");
  e.world_size = 3;
  e.master_port = agent.port();
  e.agent_store = true;
  agent.set("reigen/place/2", "here");
  expect_missing(1, e);
}

}  // namespace
}  // namespace reigen::launch
