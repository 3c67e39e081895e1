#include "net/socket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <string>
#include <utility>
#include "net/soon.h"

namespace reigen::net {
namespace {

using namespace std::chrono_literals;

TEST(Address, IsWrittenAsPeopleDo) {
  EXPECT_EQ(resolve("127.0.0.1", 80).front().to_string(), "127.0.0.1:80");
  EXPECT_EQ(resolve("::1", 80).front().to_string(), "[::1]:80");
  EXPECT_EQ(resolve("[::1]", 80).front().to_string(), "[::1]:80");
  EXPECT_EQ(resolve("::1", 65535).front().port(), 65535);
  EXPECT_EQ(endpoint_text("host", 1), "host:1");
  EXPECT_EQ(endpoint_text("fe80::1", 1), "[fe80::1]:1");
}

TEST(Endpoint, IsReadAsItIsWritten) {
  for (const char* host : {"host", "fe80::1", "10.0.0.1"}) {
    const auto read = parse_endpoint(endpoint_text(host, 29500));
    ASSERT_TRUE(read) << host;
    EXPECT_THAT(read->host, ::testing::AnyOf(std::string(host), "[" + std::string(host) + "]"));
    EXPECT_EQ(read->port, 29500);
  }
  for (const char* text : {"", "host", ":1", "host:", "host:0", "host:65536", "host:1x", "host:-1"}) {
    EXPECT_FALSE(parse_endpoint(text)) << text;
  }
}

TEST(Address, LocalhostHasOne) { EXPECT_FALSE(resolve("localhost", 1).empty()); }

TEST(Address, UnknownNamesAreRefused) {
  EXPECT_THROW(resolve("", 1), InvalidArgument);
  EXPECT_THROW(resolve("no-such-host.invalid", 1), BackendError);
  EXPECT_THROW(resolve("300.1.1.1", 1), BackendError);
}

TEST(Listener, TakesAFreePort) {
  Listener first("127.0.0.1", 0);
  Listener second("127.0.0.1", 0);
  EXPECT_NE(first.address().port(), 0);
  EXPECT_NE(first.address().port(), second.address().port());
  EXPECT_FALSE(first.accept().socket.has_value());
}

TEST(Listener, SaysWhyItCannotListen) {
  const Listener first("127.0.0.1", 0);
  try {
    const Listener second("127.0.0.1", first.address().port());
    FAIL() << "no error";
  } catch (const BackendError& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kUnavailable);
    EXPECT_THAT(error.what(), testing::HasSubstr(first.address().to_string()));
  }
  EXPECT_THROW(Listener("192.0.2.1", 0), BackendError);
}

TEST(Connect, IsRefusedWhereNobodyListens) {
  const Address gone = Listener("127.0.0.1", 0).address();
  const ConnectAttempt attempt = try_connect(gone, soon());
  EXPECT_FALSE(attempt.socket.has_value());
  EXPECT_EQ(attempt.error, ECONNREFUSED);
}

TEST(Connect, BothEndsKnowEachOther) {
  Listener listener("127.0.0.1", 0);
  const ConnectAttempt attempt = try_connect(listener.address(), soon());
  ASSERT_TRUE(attempt.socket.has_value());
  ASSERT_TRUE(wait_ready(listener.fd(), POLLIN, soon()));
  const Accepted accepted = listener.accept();
  ASSERT_TRUE(accepted.socket.has_value());
  EXPECT_EQ(attempt.socket->peer_address(), listener.address());
  EXPECT_EQ(attempt.socket->local_address(), accepted.socket->peer_address());
}

class Connected : public testing::Test {
 protected:
  void SetUp() override {
    ConnectAttempt attempt = try_connect(listener_.address(), soon());
    ASSERT_TRUE(attempt.socket.has_value());
    left_ = std::move(attempt.socket);
    ASSERT_TRUE(wait_ready(listener_.fd(), POLLIN, soon()));
    right_ = std::move(listener_.accept().socket);
    ASSERT_TRUE(right_.has_value());
  }

  Listener listener_{"127.0.0.1", 0};
  std::optional<Socket> left_;
  std::optional<Socket> right_;
};

TEST_F(Connected, NothingThereIsNotTheEnd) {
  std::array<char, 8> buffer{};
  const Transfer nothing = right_->read_some(buffer);
  EXPECT_EQ(nothing.bytes, 0U);
  EXPECT_FALSE(nothing.closed);
  EXPECT_FALSE(wait_ready(right_->fd(), POLLIN, Deadline::after(5ms)));
}

TEST_F(Connected, OrderlyEndHasNoError) {
  left_.reset();
  ASSERT_TRUE(wait_ready(right_->fd(), POLLIN, soon()));
  std::array<char, 8> buffer{};
  const Transfer end = right_->read_some(buffer);
  EXPECT_TRUE(end.closed);
  EXPECT_EQ(to_string(end), "it closed the connection");
}

TEST_F(Connected, WritingToNobodyIsAnErrorAndNoSignal) {
  left_.reset();
  const std::string data(1 << 16, 'x');
  EXPECT_THROW(
      {
        for (int i = 0; i < 1000; ++i) right_->write_all(data, soon());
      },
      ConnectionClosed);
}

TEST_F(Connected, WritingToSomebodyWhoDoesNotReadKeepsItsDeadline) {
  const std::string data(64 << 20, 'x');
  EXPECT_THROW(left_->write_all(data, Deadline::after(20ms)), Timeout);
}

}  // namespace
}  // namespace reigen::net
