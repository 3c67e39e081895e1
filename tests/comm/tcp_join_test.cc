// How ranks find each other over TCP: addresses, and connections from programs that are not of the group.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/tcp/acceptor.h"
#include "comm/tcp/header.h"
#include "harness/ranks.h"
#include "net/interfaces.h"
#include "reigen/base/error.h"

namespace reigen::testing {
namespace {

using comm::tcp::Acceptor;
using comm::tcp::Greeting;
using ::testing::HasSubstr;

net::Socket call(std::uint16_t port) {
  auto attempt = net::try_connect(net::resolve("127.0.0.1", port).front(), Deadline::after(std::chrono::seconds(5)));
  if (!attempt.socket) throw BackendError("nobody listens");
  return std::move(*attempt.socket);
}

std::optional<std::string> answer_to(net::Socket& socket, const Greeting& greeting) {
  const Deadline deadline = Deadline::after(std::chrono::seconds(10));
  net::write_frame(socket, to_bytes(greeting), deadline);
  net::FrameReader reader(100);
  try {
    return reader.wait(socket, deadline);
  } catch (const net::ConnectionClosed&) {
    return std::nullopt;
  }
}

TEST(TcpJoin, StrangersAreRefusedAndHoldNobodyUp) {
  Acceptor acceptor("sesame", "welcome", 1, 3, 1);
  net::Socket silent = call(acceptor.port());
  net::Socket noisy = call(acceptor.port());
  noisy.write_all(std::string("GET / HTTP/1.1\r\n\r\n"), Deadline::after(std::chrono::seconds(1)));
  net::Socket guesser = call(acceptor.port());
  EXPECT_EQ(answer_to(guesser, {.secret = "abracadabra", .rank = 1}), std::nullopt);
  net::Socket beyond = call(acceptor.port());
  EXPECT_EQ(answer_to(beyond, {.secret = "sesame", .rank = 7}), std::nullopt);
  EXPECT_EQ(acceptor.missing(), (std::vector<int>{1, 2}));
  net::Socket first = call(acceptor.port());
  EXPECT_EQ(answer_to(first, {.secret = "sesame", .rank = 2}), "welcome");
  EXPECT_EQ(acceptor.missing(), (std::vector<int>{1}));
  net::Socket second = call(acceptor.port());
  EXPECT_EQ(answer_to(second, {.secret = "sesame", .rank = 1}), "welcome");
  EXPECT_TRUE(acceptor.wait(Deadline::after(std::chrono::seconds(5))));
  EXPECT_EQ(acceptor.take(2).size(), 1U);
}

TEST(TcpJoin, AnInterfaceIsChosenByItsName) {
  const auto addresses = net::interface_addresses("lo");
  ASSERT_FALSE(addresses.empty());
  for (const auto& address : addresses) EXPECT_TRUE(address.loopback) << address.host;
  try {
    net::interface_addresses("eth99");
    FAIL() << "there is no eth99";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("eth99"));
    EXPECT_THAT(error.what(), HasSubstr("lo (127.0.0.1)"));
  }
}

TEST(TcpJoin, AGroupThatNeverCompletesNamesWhoIsMissing) {
  comm::GroupOptions options{.rank = 1, .size = 4, .store = store::make_memory_store(), .backend = "tcp"};
  options.join_timeout = std::chrono::milliseconds(50);
  try {
    Communicator group(options);
    FAIL() << "a group of four with one rank";
  } catch (const Timeout& error) {
    EXPECT_THAT(error.what(), HasSubstr("missing: 0, 2, 3"));
  }
}

TEST(TcpJoin, DifferentNumbersOfConnectionsAreRefused) {
  const auto store = store::make_memory_store();
  run_ranks({.ranks = 2}, [&](Rank& r) {
    comm::GroupOptions group{
        .rank = r.rank(), .size = 2, .store = store, .backend = "tcp", .connections = r.rank() + 1};
    EXPECT_THROW(Communicator{group}, Error);
  });
}

// No rank waits for a rank that only some ranks count in the group.
TEST(TcpJoin, DifferentSizesAreRefusedAtOnce) {
  const auto store = store::make_memory_store();
  run_ranks({.ranks = 3}, [&](Rank& r) {
    comm::GroupOptions group{.rank = r.rank(), .size = r.rank() == 1 ? 4 : 3, .store = store, .backend = "tcp"};
    try {
      Communicator world(group);
      ADD_FAILURE() << "not noticed";
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr("4 ranks, says rank 1"));
    }
  });
}

TEST(TcpJoin, AnotherVersionIsRefusedAtOnce) {
  const auto store = store::make_memory_store();
  store->set("group/world/rank/0", "999999 host 1 1 1 1 1 1 1");
  run_ranks({.ranks = 2}, [&](Rank& r) {
    try {
      Communicator world({.rank = r.rank() + 1, .size = 3, .store = store, .backend = "tcp"});
      ADD_FAILURE() << "not noticed";
    } catch (const BackendError& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::kJobMismatch);
      EXPECT_THAT(error.what(), HasSubstr("version 999999"));
    }
  });
}

TEST(TcpJoin, ARankThatHasEndedIsALostOne) {
  const auto store = store::make_memory_store();
  store->set("group/world/rank/0",
             fmt::format("{} host 1 1 machine secret answer 1 1 2 127.0.0.1 0", comm::tcp::kProtocolVersion));
  store->set("group/world/network/0", "");
  store->add("group/world/networks", 1);
  try {
    Communicator world({.rank = 1, .size = 2, .store = store, .backend = "tcp"});
    FAIL() << "nobody listens on port 1";
  } catch (const PeerLost& error) {
    EXPECT_EQ(error.rank(), 0);
    EXPECT_THAT(error.what(), HasSubstr("refused"));
  }
}

TEST(TcpJoin, ManyGroupsComeAndGo) {
  run_ranks({.ranks = 3, .backend = "tcp"}, [](Rank& r) {
    for (int round = 0; round < 100; ++round) {
      Communicator group = r.make_group("group " + std::to_string(round));
      float x = 1.0f;
      group.all_reduce(&x, &x, 1, DataType::kFloat32, ReduceOp::kSum);
      ASSERT_EQ(x, 3.0f);
    }
  });
}

}  // namespace
}  // namespace reigen::testing
