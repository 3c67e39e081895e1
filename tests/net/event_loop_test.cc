#include "net/event_loop.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>
#include "net/soon.h"

namespace reigen::net {
namespace {

using namespace std::chrono_literals;

struct Pipe {
  Pipe() {
    int fds[2] = {-1, -1};
    if (::pipe2(fds, O_CLOEXEC | O_NONBLOCK) != 0) std::abort();
    read = UniqueFd(fds[0]);
    write = UniqueFd(fds[1]);
  }
  void put() const { EXPECT_EQ(::write(write.get(), "x", 1), 1); }
  void take() const {
    char byte = 0;
    EXPECT_EQ(::read(read.get(), &byte, 1), 1);
  }
  UniqueFd read;
  UniqueFd write;
};

TEST(EventLoop, RunsTheHandlersOfWhatIsReady) {
  EventLoop loop;
  const Pipe first;
  const Pipe second;
  int first_ran = 0;
  int second_ran = 0;
  loop.watch(first.read.get(), POLLIN, [&](short) { ++first_ran, first.take(); });
  loop.watch(second.read.get(), POLLIN, [&](short) { ++second_ran, second.take(); });
  second.put();
  loop.run_once(soon());
  EXPECT_EQ(first_ran, 0);
  EXPECT_EQ(second_ran, 1);
  first.put();
  second.put();
  loop.run_once(soon());
  EXPECT_EQ(first_ran, 1);
  EXPECT_EQ(second_ran, 2);
  loop.run_once(Deadline::after(1ms));
  EXPECT_EQ(first_ran + second_ran, 3);
}

TEST(EventLoop, ChangeStopsAndResumes) {
  EventLoop loop;
  const Pipe pipe;
  int ran = 0;
  loop.watch(pipe.read.get(), POLLIN, [&](short) { ++ran; });
  pipe.put();
  loop.change(pipe.read.get(), 0);
  loop.run_once(Deadline::after(1ms));
  EXPECT_EQ(ran, 0);
  loop.change(pipe.read.get(), POLLIN);
  loop.run_once(soon());
  EXPECT_EQ(ran, 1);
}

TEST(EventLoop, HandlersMayForgetThemselvesAndOthers) {
  EventLoop loop;
  const Pipe first;
  const Pipe second;
  int ran = 0;
  const auto forget_both = [&](short) {
    ++ran;
    loop.forget(first.read.get());
    loop.forget(second.read.get());
  };
  loop.watch(first.read.get(), POLLIN, forget_both);
  loop.watch(second.read.get(), POLLIN, forget_both);
  first.put();
  second.put();
  loop.run_once(soon());
  loop.run_once(Deadline::after(1ms));
  EXPECT_EQ(ran, 1);
}

// An event that poll reported for a closed descriptor must not reach a new descriptor with the same number.
TEST(EventLoop, NewDescriptorDoesNotInheritAnOldEvent) {
  EventLoop loop;
  Pipe first;
  Pipe second;
  const Pipe idle;
  int old_ran = 0;
  int new_ran = 0;
  const auto replace_other = [&](Pipe& other) {
    ++old_ran;
    const int number = other.read.get();
    loop.forget(number);
    ASSERT_EQ(::dup3(idle.read.get(), number, O_CLOEXEC), number);
    loop.watch(number, POLLIN, [&](short) { ++new_ran; });
  };
  loop.watch(first.read.get(), POLLIN, [&](short) { replace_other(second); });
  loop.watch(second.read.get(), POLLIN, [&](short) { replace_other(first); });
  first.put();
  second.put();
  loop.run_once(soon());
  EXPECT_EQ(old_ran, 1);
  EXPECT_EQ(new_ran, 0);
}

TEST(EventLoop, IsWokenFromAnotherThread) {
  EventLoop loop;
  std::atomic<bool> stop = false;
  std::thread thread([&] {
    while (!stop) loop.run_once(Deadline::never());
  });
  for (int i = 0; i < 100; ++i) loop.wake();
  stop = true;
  loop.wake();
  thread.join();
}

TEST(EventLoop, EndOfAStreamIsAnEvent) {
  EventLoop loop;
  Pipe pipe;
  short got = 0;
  loop.watch(pipe.read.get(), 0, [&](short events) { got = events; });
  pipe.write.reset();
  loop.run_once(soon());
  EXPECT_NE(got & POLLHUP, 0);
}

}  // namespace
}  // namespace reigen::net
