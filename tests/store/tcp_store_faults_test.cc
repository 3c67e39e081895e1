// The TCP store with connections of strangers, and with a server that ends, stops or never existed.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "net/frame.h"
#include "net/socket.h"
#include "net/wire.h"
#include "reigen/base/unique_fd.h"
#include "reigen/store/tcp_store.h"
#include "store/expect.h"
#include "store/tcp_protocol.h"

namespace reigen::store {
namespace {

net::Socket connect_raw(std::uint16_t port) {
  auto attempt = net::try_connect(net::resolve("127.0.0.1", port).front(), soon());
  if (!attempt.socket) throw IoError("no connection to the server under test");
  return *std::move(attempt.socket);
}

// Reads until the other side closes the connection. False if it does not.
bool is_closed_by_peer(net::Socket& socket, const Deadline& deadline) {
  char buffer[256];
  while (net::wait_ready(socket.fd(), POLLIN, deadline)) {
    if (socket.read_some(buffer).closed) return true;
  }
  return false;
}

std::string read_until_closed(net::Socket& socket) {
  net::FrameReader reader(kMaxWelcome);
  return reader.wait(socket, soon()).value_or("");
}

std::string header(std::uint32_t length) {
  std::string out;
  net::put_u32(out, length);
  return out;
}

class TcpStoreFaults : public testing::Test {
 protected:
  std::shared_ptr<Store> connect() { return connect_tcp_store({.port = server_->port(), .job = "ours"}); }
  void expect_alive() {
    const auto store = connect();
    store->set("alive", "yes");
    EXPECT_EQ(store->get("alive", soon()), "yes");
  }

  std::unique_ptr<TcpStoreServer> server_ = std::make_unique<TcpStoreServer>(TcpStoreServerOptions{.job = "ours"});
};

TEST_F(TcpStoreFaults, AnotherJobIsRefusedAndBothAreNamed) {
  try {
    connect_tcp_store({.port = server_->port(), .job = "theirs"});
    FAIL() << "no error";
  } catch (const BackendError& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kJobMismatch);
    const std::string message = error.what();
    EXPECT_THAT(message, testing::HasSubstr(fmt::format("#{:08x}", job_fingerprint("ours"))));
    EXPECT_THAT(message, testing::HasSubstr(fmt::format("#{:08x}", job_fingerprint("theirs"))));
    EXPECT_THAT(message, testing::Not(testing::HasSubstr("ours'")));
  }
  EXPECT_THROW(connect_tcp_store({.port = server_->port(), .job = ""}), BackendError);
  EXPECT_THROW(connect_tcp_store({.port = server_->port(), .job = "ours and more"}), BackendError);
  expect_alive();
}

TEST_F(TcpStoreFaults, TheServerRefusesAnotherVersion) {
  net::Socket socket = connect_raw(server_->port());
  std::string hello = encode(Hello{.version = 99, .job = "ours"}) + "what version 99 adds";
  net::write_frame(socket, hello, soon());
  const auto welcome = decode_welcome(read_until_closed(socket));
  ASSERT_TRUE(welcome.has_value());
  EXPECT_EQ(welcome->verdict, Verdict::kOtherVersion);
  EXPECT_EQ(welcome->version, kProtocolVersion);
  EXPECT_TRUE(is_closed_by_peer(socket, soon()));
}

TEST(TcpStoreClient, RefusesAServerOfAnotherVersion) {
  net::Listener listener("127.0.0.1", 0);
  auto server = std::async(std::launch::async, [&] {
    EXPECT_TRUE(net::wait_ready(listener.fd(), POLLIN, soon()));
    net::Socket socket = *listener.accept().socket;
    net::FrameReader(kMaxHello).wait(socket, soon());
    net::write_frame(socket, encode(Welcome{.version = 7}) + "more", soon());
  });
  try {
    connect_tcp_store({.port = listener.address().port()});
    FAIL() << "no error";
  } catch (const BackendError& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kJobMismatch);
    EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("protocol 7"),
                                             testing::HasSubstr("protocol " + std::to_string(kProtocolVersion))));
  }
  server.get();
}

TEST_F(TcpStoreFaults, GarbageIsDropped) {
  const std::string web = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
  const std::vector<std::string> messages = {
      web,
      std::string(4096, '\0'),
      std::string(4096, '\xff'),
      header(0),
      header(0xffffffff),
      header(kMaxHello + 1),
      header(8) + "ReigenKV",
      header(16) + "ReigenXX" + header(1) + header(0),
      header(16) + "ReigenKV" + header(1) + header(0xffffffff),
      header(20) + "ReigenKV" + header(1) + header(0) + "rest",
  };
  for (const std::string& message : messages) {
    net::Socket socket = connect_raw(server_->port());
    // The server may close the connection in the middle of the message.
    try {
      socket.write_all(message, soon());
    } catch (const net::ConnectionClosed&) {
    }
    EXPECT_TRUE(is_closed_by_peer(socket, soon())) << message.substr(0, 40);
  }
  expect_alive();
}

TEST_F(TcpStoreFaults, GarbageFromAMemberEndsOnlyItsConnection) {
  const std::vector<std::string> messages = {"",
                                             "\1",
                                             std::string(1, '\0'),
                                             "\xff" + std::string(40, '\0'),
                                             encode(Request{.key = "k"}) + "rest",
                                             "\1" + header(0xffffffff) + "short"};
  for (const std::string& message : messages) {
    net::Socket socket = connect_raw(server_->port());
    net::write_frame(socket, encode(Hello{.job = "ours"}), soon());
    ASSERT_EQ(decode_welcome(net::FrameReader(kMaxWelcome).wait(socket, soon()).value())->verdict, Verdict::kWelcome);
    net::write_frame(socket, message, soon());
    EXPECT_TRUE(is_closed_by_peer(socket, soon()));
  }
  net::Socket socket = connect_raw(server_->port());
  net::write_frame(socket, encode(Hello{.job = "ours"}), soon());
  socket.write_all(header(kMaxMessage + 1), soon());
  EXPECT_TRUE(is_closed_by_peer(socket, soon()));
  expect_alive();
}

// A stranger cannot keep its connection by silence or by a byte now and then. Meanwhile the server serves others.
TEST_F(TcpStoreFaults, SlowStrangersAreSentAway) {
  net::Socket silent = connect_raw(server_->port());
  net::Socket slow = connect_raw(server_->port());
  net::Socket half_closed = connect_raw(server_->port());
  ::shutdown(half_closed.fd(), SHUT_WR);
  const std::string hello = header(16) + "ReigenKV" + header(1) + header(0);
  std::size_t sent = 0;
  const Deadline limit = soon();
  while (!is_closed_by_peer(slow, Deadline::after(200ms))) {
    ASSERT_FALSE(limit.expired());
    sent += slow.write_some(std::span(hello).subspan(sent, sent + 1 < hello.size() ? 1 : 0)).bytes;
    expect_alive();
  }
  EXPECT_LT(sent, hello.size());
  EXPECT_TRUE(is_closed_by_peer(silent, soon()));
  EXPECT_TRUE(is_closed_by_peer(half_closed, soon()));
}

TEST_F(TcpStoreFaults, ACrowdOfStrangersKeepsNobodyOut) {
  const auto member = connect();
  std::vector<net::Socket> crowd;
  for (int i = 0; i < 400; ++i) {
    crowd.push_back(connect_raw(server_->port()));
    if (i % 100 == 0) expect_alive();
  }
  expect_alive();
  member->set("still", "here");
  EXPECT_TRUE(is_closed_by_peer(crowd.front(), soon()));
}

TEST_F(TcpStoreFaults, OutOfDescriptorsMeansLater) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = 200;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  UniqueFd client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const net::Address address = net::resolve("127.0.0.1", server_->port()).front();
  std::vector<UniqueFd> all;
  for (int fd = ::dup(client.get()); fd >= 0; fd = ::dup(client.get())) all.emplace_back(fd);
  ASSERT_EQ(::connect(client.get(), address.get(), address.size()), 0);  // the connection waits in the backlog
  std::this_thread::sleep_for(20ms);                                     // gives the server time to fail
  all.clear();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  net::Socket socket{std::move(client)};
  net::write_frame(socket, encode(Hello{.job = "ours"}), soon());
  EXPECT_EQ(decode_welcome(net::FrameReader(kMaxWelcome).wait(socket, soon()).value())->verdict, Verdict::kWelcome);
  expect_alive();
}

// A member asks for much and reads nothing. The server must not collect its replies, and must serve the others.
TEST_F(TcpStoreFaults, AMemberThatDoesNotReadHoldsUpNobody) {
  const auto store = connect();
  store->set("large", std::string(kMiB, 'x'));
  net::Socket socket = connect_raw(server_->port());
  net::write_frame(socket, encode(Hello{.job = "ours"}), soon());
  for (int i = 0; i < 50; ++i) {
    net::write_frame(socket, encode(Request{.operation = Operation::kTryGet, .key = "large"}), soon());
  }
  expect_alive();
  net::FrameReader reader(kMaxMessage);
  ASSERT_TRUE(reader.wait(socket, soon()).has_value());  // this is the welcome
  for (int i = 0; i < 50; ++i) EXPECT_EQ(decode_reply(reader.wait(socket, soon()).value()).value.size(), kMiB);
}

TEST_F(TcpStoreFaults, AWaiterThatLeavesIsForgotten) {
  for (int i = 0; i < 10; ++i) {
    net::Socket socket = connect_raw(server_->port());
    net::write_frame(socket, encode(Hello{.job = "ours"}), soon());
    net::write_frame(socket, encode(Request{.operation = Operation::kGet, .key = "k"}), soon());
  }
  const auto store = connect();
  EXPECT_THROW(store->get("k", Deadline::after(20ms)), Timeout);
  store->set("k", "v");
  EXPECT_EQ(store->get("k", soon()), "v");
}

TEST_F(TcpStoreFaults, TheEndOfTheServerIsPeerLost) {
  const auto store = connect();
  const std::string address = "127.0.0.1:" + std::to_string(server_->port());
  store->set("k", "v");
  server_.reset();
  for (int i = 0; i < 3; ++i) {
    try {
      store->set("k", "w");
      FAIL() << "no error";
    } catch (const PeerLost& error) {
      EXPECT_EQ(error.rank(), 0);
      EXPECT_EQ(error.exit_code(), ExitCode::kPeerLost);
      EXPECT_THAT(error.what(), testing::HasSubstr(address));
    }
  }
}

TEST_F(TcpStoreFaults, TheEndOfTheServerWakesThoseWhoWait) {
  const auto store = connect();
  std::vector<std::future<std::string>> waiting;
  for (int i = 0; i < 3; ++i) {
    waiting.push_back(std::async(std::launch::async, [&] { return store->get("never", Deadline::never()); }));
  }
  std::this_thread::sleep_for(30ms);
  server_.reset();
  for (auto& value : waiting) EXPECT_THROW(value.get(), PeerLost);
}

TEST(TcpStoreClient, NobodyListensUntilTheDeadline) {
  const std::uint16_t port = net::Listener("127.0.0.1", 0).address().port();
  const std::string message =
      message_of([&] { connect_tcp_store({.port = port, .connect_deadline = Deadline::after(50ms)}); });
  EXPECT_THAT(message, testing::AllOf(testing::HasSubstr("127.0.0.1:" + std::to_string(port)),
                                      testing::HasSubstr("Connection refused"), testing::HasSubstr("fix: check")));
  EXPECT_THROW(connect_tcp_store({.port = port, .connect_deadline = now()}), Timeout);
}

TEST(TcpStoreClient, AForeignServiceDoesNotHoldIt) {
  const net::Listener silent("127.0.0.1", 0);  // the kernel accepts connections, but no program answers
  const std::string message = message_of(
      [&] { connect_tcp_store({.port = silent.address().port(), .connect_deadline = Deadline::after(700ms)}); });
  EXPECT_THAT(message, testing::HasSubstr("does not answer as a store"));
}

TEST(TcpStoreClient, AForeignAnswerIsNotTakenForAStore) {
  net::Listener listener("127.0.0.1", 0);
  std::atomic<bool> stop = false;
  auto server = std::async(std::launch::async, [&] {
    while (!stop) {
      if (!net::wait_ready(listener.fd(), POLLIN, Deadline::after(5ms))) continue;
      auto accepted = listener.accept();
      if (accepted.socket) accepted.socket->write_all(std::string_view("SSH-2.0-OpenSSH_9.2\r\n"), soon());
    }
  });
  const std::string message = message_of(
      [&] { connect_tcp_store({.port = listener.address().port(), .connect_deadline = Deadline::after(50ms)}); });
  stop = true;
  EXPECT_THAT(message, testing::HasSubstr("no store answers"));
  server.get();
}

// The first try connects to a service that never answers. Then the right server takes the port.
TEST(TcpStoreClient, TriesAgainAfterAForeignService) {
  auto silent = std::make_unique<net::Listener>("127.0.0.1", 0);
  const std::uint16_t port = silent->address().port();
  auto value = std::async(std::launch::async, [&] {
    return connect_tcp_store({.port = port, .connect_deadline = soon()})->get("k", soon());
  });
  ASSERT_TRUE(net::wait_ready(silent->fd(), POLLIN, soon()));
  silent.reset();
  TcpStoreServer server({.port = port});
  connect_tcp_store({.port = port})->set("k", "v");
  EXPECT_EQ(value.get(), "v");
}

// The server accepted a client and was then stopped. It gives no sign of life, and the client must not wait for ever.
TEST(TcpStoreClient, AServerThatStopsIsLost) {
  net::Listener listener("127.0.0.1", 0);
  auto server = std::async(std::launch::async, [&] {
    EXPECT_TRUE(net::wait_ready(listener.fd(), POLLIN, soon()));
    net::Socket socket = *listener.accept().socket;
    net::FrameReader(kMaxHello).wait(socket, soon());
    net::write_frame(socket, encode(Welcome{}), soon());
    return socket;
  });
  const auto store = connect_tcp_store({.port = listener.address().port()});
  const net::Socket held = server.get();
  EXPECT_THAT(message_of([&] { store->get("k", Deadline::never()); }), testing::HasSubstr("no sign of life"));
  EXPECT_THROW(store->set("k", "v"), PeerLost);
}

// The wait lasts longer than the interval between signs of life.
TEST_F(TcpStoreFaults, ALongWaitIsNotTakenForDeath) {
  const auto store = connect();
  EXPECT_THROW(store->get("late", Deadline::after(4500ms)), Timeout);
  store->set("late", "v");
  EXPECT_EQ(store->get("late", soon()), "v");
}

}  // namespace
}  // namespace reigen::store
