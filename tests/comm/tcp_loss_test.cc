// Connections that break or lose packets while both ranks live: the error at each end, and how soon it comes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/tcp.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <cstddef>
#include <iterator>

#include "comm/tcp/message.h"
#include "comm/tcp_groups.h"
#include "reigen/base/error.h"

namespace reigen::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

// The text of the PeerLost that `call` throws; empty if it throws none.
template <typename Call>
std::string loss(const Call& call) {
  try {
    call();
  } catch (const PeerLost& error) {
    return error.what();
  }
  return "";
}

// From now on every packet that arrives on this connection is dropped, and no packet is acknowledged.
void lose_what_comes(int fd) {
  sock_filter nothing[] = {BPF_STMT(BPF_RET | BPF_K, 0)};
  const sock_fprog filter{1, nothing};
  ASSERT_EQ(::setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof(filter)), 0);
}

// From now on the kernel refuses this system call of this thread.
void refuse(long call, unsigned error) {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(call), 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{static_cast<unsigned short>(std::size(program)), program};
  ASSERT_EQ(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  ASSERT_EQ(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter), 0);
}

// In a collective (also those of a split) and in a message, both ends get an error soon, and none reports a death.
TEST(TcpLoss, OnlyTheControlConnectionBreaks) {
  run_ranks({.ranks = 2}, [](Rank& r) {
    Group group(options_of(r));
    const int other = 1 - r.rank();
    meet(r, "made");
    if (r.rank() == 0) ::shutdown(group.control().fd(other), SHUT_RDWR);
    const auto begin = Clock::now();
    std::string said;
    std::string of_message;
    comes_true([&] {
      if (said.empty()) said = loss([&] { check(group, other); });
      if (of_message.empty()) of_message = loss([&] { group.check_message(other, true, "[test]", seconds(0)); });
      return !said.empty() && !of_message.empty();
    });
    EXPECT_GT(Clock::now() - begin, milliseconds(1900)) << "its death may be told a moment later";
    EXPECT_LT(Clock::now() - begin, seconds(6));
    for (const std::string& text : {said, of_message}) {
      EXPECT_THAT(text, HasSubstr("is out of reach: a connection to it broke while it lives"));
    }
    meet(r, "done");
  });
}

TEST(TcpLoss, ABrokenConnectionSaysWhatTheSystemSays) {
  run_ranks({.ranks = 2}, [](Rank& r) {
    Group group(options_of(r));
    Stream& stream = group.streams(1 - r.rank(), 0).front();
    meet(r, "made");
    if (r.rank() == 0) {
      // Closing without lingering resets the connection.
      const linger at_once{.l_onoff = 1, .l_linger = 0};
      ::setsockopt(stream.fd(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
      sockaddr nobody{.sa_family = AF_UNSPEC, .sa_data = {}};
      ASSERT_EQ(::connect(stream.fd(), &nobody, sizeof(nobody)), 0);
    } else {
      int value = 0;
      stream.receive(&value, sizeof(value));
      std::string said;
      comes_true([&] { return !(said = loss([&] { check(group, 0); })).empty(); });
      EXPECT_THAT(said, HasSubstr("broke while it lives (Connection reset by peer (104))"));
    }
    meet(r, "done");
  });
}

// Data that the rank sent before may still arrive. Its abort ends this call only when the connection has ended, or no
// data has arrived for long.
TEST(TcpLoss, OfARankThatAbortedAfterThisCall) {
  for (const bool breaks : {true, false}) {
    run_ranks({.ranks = 2}, [breaks](Rank& r) {
      comm::GroupOptions options = options_of(r);
      if (!breaks) options.heartbeat_timeout = seconds(2);
      Group group(options);
      Stream& stream = group.streams(1 - r.rank(), 0).front();
      const auto begin = Clock::now();
      if (r.rank() == 1) {
        ASSERT_TRUE(group.in_flight().try_begin({}, 0));
        group.in_flight().complete_first();
        group.publish_abort({.text = "because"});
        meet(r, "aborted");
        meet(r, "looked");
        if (breaks) ::shutdown(stream.fd(), SHUT_RDWR);
      } else {
        int value = 0;
        stream.receive(&value, sizeof(value));
        meet(r, "aborted");
        ASSERT_TRUE(comes_true([&] {
          group.control().look();
          return group.control().peer(1).cause.has_value();
        }));
        EXPECT_NO_THROW(check(group, 1));
        meet(r, "looked");
        std::string said;
        comes_true([&] {
          try {
            check(group, 1, Clock::now() - begin);
          } catch (const Aborted& error) {
            said = error.what();
          }
          return !said.empty();
        });
        EXPECT_EQ(said, "because");
        EXPECT_LT(Clock::now() - begin, seconds(6));
      }
      comes_true([&] {
        group.control().beat();
        return r.rank() == 0 || r.store().try_get("done").has_value();
      });
      meet(r, "done");
    });
  }
}

TEST(TcpLoss, OfWhatARankSentBeforeItLeft) {
  run_ranks({.ranks = 2}, [](Rank& r) {
    comm::GroupOptions options = options_of(r);
    options.heartbeat_timeout = seconds(1);
    Group group(options);
    meet(r, "made");
    const auto begin = Clock::now();
    if (r.rank() == 1) {
      group.control().say_farewell();
    } else {
      std::string said;
      comes_true([&] { return !(said = loss([&] { check(group, 1, Clock::now() - begin); })).empty(); });
      EXPECT_THAT(said, HasSubstr("left the group, and what it sent before does not come"));
    }
    meet(r, "done");
  });
}

// A device between two ranks has forgotten one connection. Packets of the connection vanish, but signs of life arrive
// as before. Rank 0 has sent data to rank 1 and waits for another rank.
TEST(TcpLoss, OfPacketsOfOneConnection) {
  for (const bool of_messages : {false, true}) {
    run_ranks({.ranks = 3}, [of_messages](Rank& r) {
      comm::GroupOptions options = options_of(r);
      options.heartbeat_timeout = seconds(2);
      Group group(options);
      const int other = r.rank() == 0 ? 1 : 0;
      Stream& stream = of_messages ? group.messages(other) : group.streams(other, 0).front();
      if (r.rank() == 1) lose_what_comes(stream.fd());
      meet(r, "made");
      const auto begin = Clock::now();
      const int value = 42;
      if (r.rank() == 0) stream.send(&value, sizeof(value));
      std::string said;
      comes_true([&] {
        group.control().beat();
        if (r.rank() > 0) return r.store().try_get("told").has_value();
        stream.push();
        said = loss([&] { check(group, 2, Clock::now() - begin); });
        return !said.empty();
      });
      if (r.rank() == 0) {
        EXPECT_THAT(said, HasSubstr("rank 1"));
        EXPECT_THAT(said, HasSubstr("a connection to it broke while it lives (nothing came back for "));
        EXPECT_LT(Clock::now() - begin, seconds(6));
        r.store().set("told", "");
      }
      meet(r, "done");
    });
  }
}

// The rank computes for longer than the limit for signs of life. Its kernel reports that its buffers are full.
TEST(TcpLoss, ARankThatIsLateToReadIsNone) {
  run_ranks({.ranks = 2}, [](Rank& r) {
    comm::GroupOptions options = options_of(r);
    options.heartbeat_timeout = seconds(1);
    Group group(options);
    const int other = 1 - r.rank();
    Stream& stream = group.streams(other, 0).front();
    std::vector<char> much(std::size_t{64} << 20, static_cast<char>(1 - r.rank()));
    meet(r, "made");
    const auto begin = Clock::now();
    const auto late = [&] { return Clock::now() - begin < seconds(6); };
    if (r.rank() == 0) {
      stream.send(much.data(), much.size());
    } else {
      while (late()) {
        group.control().beat();
        std::this_thread::sleep_for(milliseconds(100));
      }
      stream.receive(much.data(), much.size());
    }
    ASSERT_TRUE(comes_true([&] {
      while (stream.push() || stream.pull()) {
      }
      group.control().beat();
      if (r.rank() == 0) check(group, other, Clock::now() - begin);
      return stream.sends_done() && stream.receives_done();
    }));
    EXPECT_FALSE(late());
    EXPECT_EQ(much.back(), 1);
    meet(r, "done");
  });
}

// After a rest the last answer is old, but the next one may come in a moment. This is no loss.
TEST(TcpLoss, ARestIsNone) {
  run_ranks({.ranks = 2}, [](Rank& r) {
    Group group(options_of(r));
    Stream& stream = group.messages(1 - r.rank());
    const int value = 42;
    int received = 0;
    stream.receive(&received, sizeof(received));
    for (int i = 0; i < 2; ++i) {
      std::this_thread::sleep_for(seconds(1));
      if (r.rank() == 1) lose_what_comes(stream.fd());
      meet(r, "rested " + std::to_string(i));
      if (r.rank() == 0) {
        EXPECT_EQ(stream.unanswered(), seconds(0));
        stream.send(&value, sizeof(value));
        ASSERT_TRUE(stream.push());
        EXPECT_LT(stream.unanswered(), milliseconds(900));
        ASSERT_TRUE(comes_true([&] { return stream.unanswered() > milliseconds(10); }));
      }
      meet(r, "sent " + std::to_string(i));
      const int ignored = 0;
      if (r.rank() == 1) ::setsockopt(stream.fd(), SOL_SOCKET, SO_DETACH_FILTER, &ignored, sizeof(ignored));
      EXPECT_TRUE(comes_true([&] { return stream.unanswered() == seconds(0); }));
      meet(r, "came " + std::to_string(i));
    }
  });
}

// No rank is blamed for the lack of memory, and it passes.
TEST(TcpLoss, AKernelWithoutMemoryIsNone) {
  run_ranks({.ranks = 2}, [](Rank& r) {
    Group group(options_of(r));
    Stream& stream = group.streams(1 - r.rank(), 0).front();
    int value = r.rank();
    if (r.rank() == 0) {
      stream.send(&value, sizeof(value));
      std::thread([&] {
        refuse(SYS_sendmsg, ENOBUFS);
        EXPECT_FALSE(stream.push());
      }).join();
      EXPECT_FALSE(stream.stuck());
      EXPECT_TRUE(stream.push());
    } else {
      value = 7;
      stream.receive(&value, sizeof(value));
      std::thread([&] {
        refuse(SYS_recvmsg, ENOMEM);
        EXPECT_FALSE(stream.pull());
      }).join();
      EXPECT_FALSE(stream.stuck());
      ASSERT_TRUE(comes_true([&] { return stream.pull() || stream.receives_done(); }));
      EXPECT_EQ(value, 0);
    }
    meet(r, "done");
  });
}

// Devices between the ranks forget connections that rest.
TEST(TcpLoss, TheKernelKeepsAConnectionThatRestsAlive) {
  run_ranks({.ranks = 2}, [](Rank& r) {
    Group group(options_of(r));
    for (const int fd : {group.messages(1 - r.rank()).fd(), group.streams(1 - r.rank(), 0).front().fd()}) {
      int idle = 0;
      socklen_t size = sizeof(idle);
      ASSERT_EQ(::getsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, &size), 0);
      EXPECT_EQ(idle, 60);
    }
    meet(r, "done");
  });
}

// The two ranks keep each other busy and never wait for long.
TEST(TcpMessages, TwoThatExchangeThemSeeTheAbortOfAThird) {
  run_ranks({.ranks = 3, .backend = "tcp"}, [](Rank& r) {
    auto& world = r.world();
    world.barrier();
    meet(r, "left the barrier");
    if (r.rank() == 2) {
      std::this_thread::sleep_for(milliseconds(100));
      world.abort("because");
      meet(r, "done");
      return;
    }
    const auto begin = Clock::now();
    int x = 0;
    const auto exchange = [&] {
      if (r.rank() == 0) world.send(&x, 1, DataType::kInt32, 1);
      world.recv(&x, 1, DataType::kInt32, 1 - r.rank());
      if (r.rank() == 1) world.send(&x, 1, DataType::kInt32, 0);
    };
    try {
      while (Clock::now() - begin < seconds(5)) exchange();
      ADD_FAILURE() << "rank " << r.rank() << " never noticed";
    } catch (const Aborted& error) {
      EXPECT_THAT(error.what(), HasSubstr("because"));
    }
    meet(r, "done");
  });
}

// The same test without an engine, because an engine may check the other ranks between the messages.
TEST(TcpMessages, TheirOwnStepsSeeTheAbortOfAThird) {
  run_ranks({.ranks = 3}, [](Rank& r) {
    Group group(options_of(r));
    int x = 0;
    comm::tcp::Pair pair;
    const bool sends = r.rank() == 0;
    const comm::Call call{.kind = sends ? comm::OperationKind::kSend : comm::OperationKind::kRecv,
                          .input = sends ? &x : nullptr,
                          .output = sends ? nullptr : &x,
                          .count = 1,
                          .type = DataType::kInt32,
                          .root = 1 - r.rank()};
    meet(r, "made");
    const Deadline deadline = Deadline::after(seconds(10));
    const auto exchange = [&]() -> std::unique_ptr<comm::Operation> {
      if (sends) return std::make_unique<comm::tcp::Send>(group, pair, call);
      return std::make_unique<comm::tcp::Recv>(group, pair, call);
    };
    const auto repeat = [&] {
      while (!deadline.expired()) {
        const auto operation = exchange();
        while (operation->advance() != comm::Step::kDone && !deadline.expired()) {
        }
      }
    };
    if (r.rank() == 2) {
      group.publish_abort({.text = "because"});
    } else {
      EXPECT_THROW(repeat(), Aborted);
    }
    EXPECT_FALSE(deadline.expired());
    meet(r, "done");
  });
}

}  // namespace
}  // namespace reigen::testing
