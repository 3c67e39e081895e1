// What a rank knows about the others over TCP. Signs of life and data use different connections and arrive in any
// order.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <thread>

#include "comm/tcp_groups.h"
#include "reigen/base/error.h"

namespace reigen::testing {
namespace {

using ::testing::HasSubstr;

// A rank ends right after its call. The end of one connection arrives before the data of another.
TEST(TcpGroup, TheEndOfARankDoesNotOvertakeItsData) {
  run_ranks({.ranks = 2}, [](Rank& r) {
    Group group(options_of(r));
    Stream& stream = group.streams(1 - r.rank(), 0).front();
    const Deadline patience = Deadline::after(std::chrono::seconds(20));
    if (r.rank() == 1) {
      ::shutdown(group.control().fd(0), SHUT_RDWR);
      r.store().get("looked", patience);
      const int value = 42;
      stream.send(&value, sizeof(value));
      ASSERT_TRUE(comes_true([&] { return stream.push() || stream.sends_done(); }));
      r.store().get("received", patience);
      for (std::size_t lane = 0; lane < comm::tcp::kLanes; ++lane) {
        ::shutdown(group.streams(0, lane).front().fd(), SHUT_WR);
      }
      ::shutdown(group.messages(0).fd(), SHUT_WR);
      r.store().get("told", patience);
      return;
    }
    int value = 0;
    stream.receive(&value, sizeof(value));
    ASSERT_TRUE(comes_true([&] {
      group.control().look();
      return group.control().peer(1).ended;
    }));
    stream.pull();
    EXPECT_NO_THROW(check(group, 1));
    r.store().set("looked", "");
    ASSERT_TRUE(comes_true([&] { return stream.pull() || stream.receives_done(); }));
    EXPECT_EQ(value, 42);
    EXPECT_NO_THROW(check(group, 1));
    r.store().set("received", "");
    ASSERT_TRUE(comes_true([&] { return stream.silent() && group.messages(1).silent(); }));
    try {
      check(group, 1);
      ADD_FAILURE() << "rank 1 has ended";
    } catch (const PeerLost& error) {
      EXPECT_EQ(error.rank(), 1);
      EXPECT_THAT(error.what(), HasSubstr("died"));
    }
    r.store().set("told", "");
  });
}

// A connection with little room takes the reason of an abort in parts. The signs of life that come after the first part
// must not become a part of the reason.
TEST(TcpControl, AReasonThatDidNotFitArrivesWhole) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
  const int small = 1;  // the kernel makes it its least size
  ASSERT_EQ(::setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof small), 0);
  comm::tcp::Control sender(2);
  comm::tcp::Control receiver(2);
  sender.connect(1, net::Socket(UniqueFd(ends[0])));
  receiver.connect(0, net::Socket(UniqueFd(ends[1])));
  const std::string reason(4000, 'x');
  for (int i = 0; i < 3; ++i) sender.publish_abort({comm::AbortCause::Kind::kAborted, 1, reason}, 7);
  receiver.look();
  for (int i = 0; i < 20; ++i) {
    sender.beat();
    receiver.look();
  }
  const auto cause = receiver.cause_for(7);
  ASSERT_TRUE(cause.has_value());
  EXPECT_EQ(cause->text, reason);
  EXPECT_EQ(cause->rank, 1);
  sender.say_farewell();
  receiver.look();
  EXPECT_TRUE(receiver.peer(0).left);
}

// Data that a rank sent can still be received after the rank has stopped to receive.
TEST(TcpGroup, WhatARankSentIsThereAfterItRefusedSomething) {
  run_ranks({.ranks = 2}, [](Rank& r) {
    Group group(options_of(r));
    Stream& stream = group.streams(1 - r.rank(), 0).front();
    const Deadline patience = Deadline::after(std::chrono::seconds(20));
    int value = r.rank() == 1 ? 42 : 0;
    stream.send(&value, sizeof(value));
    ASSERT_TRUE(comes_true([&] { return stream.push() || stream.sends_done(); }));
    if (r.rank() == 1) {
      r.store().get("sent", patience);
      return;  // with unread data, so its end resets the connection
    }
    r.store().set("sent", "");
    ASSERT_TRUE(comes_true([&] {
      stream.send(&value, sizeof(value));
      stream.push();
      return stream.stuck();
    }));
    int received = 0;
    stream.receive(&received, sizeof(received));
    EXPECT_TRUE(stream.pull());
    EXPECT_EQ(received, 42);
  });
}

// For example a firewall breaks the connection. Both ranks notice it, and neither waits for a timeout of the other.
TEST(TcpGroup, AConnectionThatBreaksBetweenRanksThatLiveIsALoss) {
  run_ranks({.ranks = 2}, [](Rank& r) {
    Group group(options_of(r));
    const int other = 1 - r.rank();
    Stream& stream = group.streams(other, 0).front();
    int value = 0;
    stream.receive(&value, sizeof(value));
    if (r.rank() == 0) ::shutdown(stream.fd(), SHUT_RDWR);
    ASSERT_TRUE(comes_true([&] { return stream.stuck(); }));
    EXPECT_NO_THROW(check(group, other)) << "its end may be told a moment later";
    std::string said;
    EXPECT_TRUE(comes_true([&] {
      try {
        check(group, other);
      } catch (const PeerLost& error) {
        said = error.what();
      }
      return !said.empty();
    }));
    EXPECT_THAT(said, HasSubstr("a connection to it broke while it lives"));
    r.store().add("done", 1);
    comes_true([&] { return r.store().try_get("done") == "2"; });
  });
}

// leave() must not wait for an acknowledgement that will never come.
TEST(TcpGroup, LeavingAfterTheOthersHaveEndedIsQuick) {
  run_ranks({.ranks = 2}, [](Rank& r) {
    auto group = std::make_unique<Group>(options_of(r));
    if (r.rank() == 1) {
      r.store().get("sent", Deadline::after(std::chrono::seconds(20)));
      return;
    }
    Stream& stream = group->streams(1, 0).front();
    std::vector<char> much(1 << 26);
    stream.send(much.data(), much.size());
    while (stream.push()) {
    }
    ASSERT_FALSE(stream.sends_done());
    r.store().set("sent", "");
    ASSERT_TRUE(comes_true([&] {
      stream.push();
      return stream.stuck();
    }));
    const auto begin = std::chrono::steady_clock::now();
    group->leave();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(1900));
  });
}

}  // namespace
}  // namespace reigen::testing
