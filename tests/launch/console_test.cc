#include "launch/console.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <string>

#include "reigen/base/unique_fd.h"

namespace reigen::launch {
namespace {

struct Pipe {
  Pipe() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) throw std::runtime_error("pipe2");
    reader = UniqueFd(ends[0]);
    writer = UniqueFd(ends[1]);
  }
  std::string text() const {
    std::string all;
    std::array<char, 4096> buffer;
    for (ssize_t got = 0; (got = ::read(reader.get(), buffer.data(), buffer.size())) > 0;) {
      all.append(buffer.data(), static_cast<std::size_t>(got));
    }
    return all;
  }
  UniqueFd reader;
  UniqueFd writer;
};

void write_all(Console& console) {
  while (console.waits_for() >= 0) console.write_some();
}

TEST(Console, LinesGoToTheirStream) {
  Pipe out;
  Pipe err;
  Console console(out.writer.get(), err.writer.get());
  console.line(Stream::kOutput, "[0] ", "hello");
  console.line(Stream::kError, "[1] ", "oh");
  console.line(Stream::kOutput, "", "bye");
  write_all(console);
  EXPECT_EQ(out.text(), "[0] hello\nbye\n");
  EXPECT_EQ(err.text(), "[1] oh\n");
}

TEST(Console, NoProgressWithoutATerminal) {
  Pipe out;
  Console console(out.writer.get(), out.writer.get());
  console.progress("[0] ", "50 %");
  console.clear_progress();
  write_all(console);
  EXPECT_EQ(out.text(), "");
}

TEST(Console, AFullPipeOrASlowReaderBlocksNobody) {
  Pipe out;
  Console console(out.writer.get(), out.writer.get());
  const std::string line(1000, 'x');
  std::size_t lines = 0;
  while (!console.is_full()) {
    console.line(Stream::kOutput, "", line);
    ++lines;
    console.write_some();
  }
  std::string all;
  while (!console.is_empty()) {
    console.write_some();
    all += out.text();
  }
  EXPECT_EQ(all.size(), lines * 1001);
}

TEST(Console, AGoneReaderClosesOneStream) {
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  struct sigaction before {};
  ASSERT_EQ(::sigaction(SIGPIPE, &ignore, &before), 0);
  Pipe out;
  Pipe err;
  out.reader.reset();
  Console console(out.writer.get(), err.writer.get());
  console.line(Stream::kOutput, "", "lost");
  console.line(Stream::kError, "", "kept");
  write_all(console);
  EXPECT_TRUE(console.is_closed(Stream::kOutput));
  EXPECT_FALSE(console.is_closed(Stream::kError));
  EXPECT_EQ(err.text(), "kept\n");
  ASSERT_EQ(::sigaction(SIGPIPE, &before, nullptr), 0);
}

TEST(Console, OnATerminalProgressIsRedrawnAndClearedBeforeLines) {
  int master = -1;
  int slave = -1;
  const winsize size{24, 100, 0, 0};
  ASSERT_EQ(::openpty(&master, &slave, nullptr, nullptr, &size), 0);
  const UniqueFd terminal(master);
  const UniqueFd side(slave);
  termios raw{};
  ASSERT_EQ(::tcgetattr(slave, &raw), 0);
  ::cfmakeraw(&raw);
  ASSERT_EQ(::tcsetattr(slave, TCSANOW, &raw), 0);

  Console console(slave, slave);
  EXPECT_TRUE(console.is_terminal());
  EXPECT_EQ(console.columns(), 100);
  console.progress("", "50 %");
  console.line(Stream::kError, "", "a warning");
  console.line(Stream::kOutput, "", "a line");
  write_all(console);
  const std::string expected = "\r\033[K\033[?7l50 %\033[?7h\r\033[Ka warning\na line\n";
  std::string text;
  std::array<char, 4096> buffer{};
  while (text.size() < expected.size()) {  // a terminal delivers its bytes in parts
    const ssize_t got = ::read(master, buffer.data(), buffer.size());
    ASSERT_GT(got, 0);
    text.append(buffer.data(), static_cast<std::size_t>(got));
  }
  EXPECT_EQ(text, expected);
}

}  // namespace
}  // namespace reigen::launch
