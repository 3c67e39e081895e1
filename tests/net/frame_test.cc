#include "net/frame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <future>
#include <utility>
#include <vector>

#include "net/soon.h"
#include "net/wire.h"

namespace reigen::net {
namespace {

using namespace std::chrono_literals;

std::pair<Socket, Socket> connected() {
  Listener listener("127.0.0.1", 0);
  ConnectAttempt attempt = try_connect(listener.address(), soon());
  wait_ready(listener.fd(), POLLIN, soon());
  return {*std::move(attempt.socket), *std::move(listener.accept().socket)};
}

class Frame : public testing::Test {
 protected:
  std::pair<Socket, Socket> pair_ = connected();
  Socket& left_ = pair_.first;
  Socket& right_ = pair_.second;
};

TEST_F(Frame, PassesAnyLength) {
  FrameReader reader(1 << 22);
  for (const std::size_t size : {0U, 1U, 3U, 4U, 5U, 1000U, 70000U, 1U << 22}) {
    std::string payload(size, 'x');
    for (std::size_t i = 0; i < size; ++i) payload[i] = static_cast<char>(i * 31 % 251);
    auto sent = std::async(std::launch::async, [&] { write_frame(left_, payload, soon()); });
    EXPECT_EQ(reader.wait(right_, soon()), payload);
    sent.get();
  }
}

TEST_F(Frame, ComesTogetherFromSingleBytes) {
  FrameReader reader(100);
  std::string bytes;
  put_bytes(bytes, "hello");
  put_bytes(bytes, "");
  put_bytes(bytes, "world");
  std::vector<std::string> frames;
  for (const char byte : bytes) {
    left_.write_all(std::span(&byte, 1), soon());
    ASSERT_TRUE(wait_ready(right_.fd(), POLLIN, soon()));
    while (reader.read(right_) == FrameReader::State::kFrame) frames.push_back(reader.take());
  }
  EXPECT_THAT(frames, testing::ElementsAre("hello", "", "world"));
}

TEST_F(Frame, DoesNotReadBeyondItsEnd) {
  FrameReader reader(100);
  std::string bytes;
  put_bytes(bytes, "frame");
  left_.write_all(bytes + "rest", soon());
  EXPECT_EQ(reader.wait(right_, soon()), "frame");
  char rest[16] = {};
  ASSERT_TRUE(wait_ready(right_.fd(), POLLIN, soon()));
  EXPECT_EQ(right_.read_some(rest).bytes, 4U);
  EXPECT_STREQ(rest, "rest");
}

TEST_F(Frame, LengthBeyondTheLimitIsRefusedBeforeItsBytesCome) {
  for (const std::uint32_t length : {101U, 0x7fffffffU, 0xffffffffU}) {
    auto [left, right] = connected();
    FrameReader reader(100);
    std::string header;
    put_u32(header, length);
    left.write_all(header, soon());
    EXPECT_THROW(reader.wait(right, soon()), DataError) << length;
  }
  FrameReader reader(100);
  write_frame(left_, std::string(100, 'x'), soon());
  EXPECT_EQ(reader.wait(right_, soon())->size(), 100U);
}

TEST_F(Frame, DeadlineKeepsWhatHasArrived) {
  FrameReader reader(100);
  std::string bytes;
  put_bytes(bytes, "hello");
  left_.write_all(bytes.substr(0, 6), soon());
  EXPECT_EQ(reader.wait(right_, Deadline::after(10ms)), std::nullopt);
  left_.write_all(bytes.substr(6), soon());
  EXPECT_EQ(reader.wait(right_, soon()), "hello");
}

TEST_F(Frame, EndOfTheStreamIsSaid) {
  FrameReader reader(100);
  left_.write_all(std::string("\5\0\0\0he", 6), soon());
  ::shutdown(left_.fd(), SHUT_WR);
  EXPECT_THROW(reader.wait(right_, soon()), ConnectionClosed);
}

TEST_F(Frame, WriterSendsWhenThereIsRoom) {
  FrameWriter writer;
  EXPECT_TRUE(writer.empty());
  const std::string large(8 << 20, 'x');
  writer.add(large);
  writer.add("after");
  ASSERT_TRUE(writer.flush(left_));
  EXPECT_FALSE(writer.empty());  // the kernel did not take everything
  auto received = std::async(std::launch::async, [&] {
    FrameReader reader(8 << 20);
    const std::string first = reader.wait(right_, soon()).value();
    return std::pair(first, reader.wait(right_, soon()).value());
  });
  while (!writer.empty()) {
    ASSERT_TRUE(wait_ready(left_.fd(), POLLOUT, soon()));
    ASSERT_TRUE(writer.flush(left_));
  }
  EXPECT_EQ(received.get(), std::pair(large, std::string("after")));
}

TEST(Wire, GivesBackWhatWasPut) {
  std::string bytes;
  put_u8(bytes, 0xab);
  put_u32(bytes, 0x01020304);
  put_u64(bytes, 0xfedcba9876543210U);
  put_bytes(bytes, std::string("a\0b", 3));
  EXPECT_EQ(bytes.substr(1, 4), "\4\3\2\1");
  WireReader reader(bytes);
  EXPECT_EQ(reader.u8(), 0xab);
  EXPECT_EQ(reader.u32(), 0x01020304U);
  EXPECT_EQ(reader.u64(), 0xfedcba9876543210U);
  EXPECT_THROW(reader.expect_end(), DataError);
  EXPECT_EQ(reader.bytes(), std::string("a\0b", 3));
  reader.expect_end();
  EXPECT_THROW(reader.u8(), DataError);
}

TEST(Wire, LengthBeyondTheEndIsRefused) {
  EXPECT_THROW(WireReader(std::string_view("\xff\xff\xff\xff", 4)).bytes(), DataError);
  EXPECT_THROW(WireReader("abc").u32(), DataError);
}

}  // namespace
}  // namespace reigen::net
