#include "reigen/train/stop.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include <csignal>
#include <string>

#include "reigen/base/error.h"
#include "reigen/base/unique_fd.h"
#include "reigen/runtime/init.h"
#include "reigen/train/config.h"

namespace reigen::train::stop_test {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "no error";
}

// Removes the handlers that a test has installed.
class StopTest : public ::testing::Test {
 protected:
  ~StopTest() override { install_stop_handlers({.signals = {}}); }
};
using StopDeathTest = StopTest;  // GoogleTest runs suites of such names first: they fork, so there must be no threads

TEST_F(StopTest, EverySpellingOfTheWishIsHeard) {
  for (const int signal : kStopSignals) {
    install_stop_handlers();
    EXPECT_FALSE(stop_requested());
    std::raise(signal);
    EXPECT_TRUE(stop_requested()) << signal;
    std::raise(signal);  // schedulers send some signals twice, and then wait
    if (signal != SIGINT) std::raise(SIGTERM);
  }
}

TEST_F(StopDeathTest, SignalsThatAreNotPickedEndTheProcessAsEver) {
  EXPECT_EXIT(
      {
        install_stop_handlers({.signals = {SIGTERM}});
        std::raise(SIGUSR1);
      },
      ::testing::KilledBySignal(SIGUSR1), "");
}

TEST_F(StopDeathTest, CtrlCTwiceEndsAtOnceAndTheFirstSaysSo) {
  EXPECT_EXIT(
      {
        install_stop_handlers({.tells = true});
        std::raise(SIGTERM);  // a signal from another sender is not the first Ctrl-C
        std::raise(SIGINT);
        std::raise(SIGINT);  // one from the terminal, one from the launcher
        ::usleep(700000);
        if (stop_requested()) std::raise(SIGINT);
      },
      ::testing::KilledBySignal(SIGINT),
      "SIGTERM: saving after this step\nreigen: SIGINT: .*Ctrl-C once more ends at once");
}

TEST_F(StopTest, NohupIsHonoured) {
  std::signal(SIGHUP, SIG_IGN);
  std::signal(SIGINT, SIG_IGN);  // like in background jobs of a shell
  install_stop_handlers();
  std::raise(SIGHUP);
  EXPECT_FALSE(stop_requested());
  std::raise(SIGINT);
  EXPECT_TRUE(stop_requested());
  std::signal(SIGHUP, SIG_DFL);
}

TEST_F(StopTest, ATimeIsAWishToo) {
  install_stop_handlers({.after = std::chrono::hours(1)});
  EXPECT_FALSE(stop_requested());
  install_stop_handlers({.after = milliseconds(1)});  // this process has run for longer
  EXPECT_TRUE(stop_requested());
}

TEST_F(StopDeathTest, WhatIsWrittenToATerminalThatHungUpIsDropped) {
  EXPECT_EXIT(
      {
        int master = -1;
        int slave = -1;
        if (::openpty(&master, &slave, nullptr, nullptr, nullptr) != 0) ::_exit(1);
        ::dup2(slave, STDOUT_FILENO);
        install_stop_handlers();
        ::close(master);
        if (::write(STDOUT_FILENO, "x", 1) >= 0) ::_exit(2);
        std::raise(SIGHUP);
        ::_exit(stop_requested() && ::write(STDOUT_FILENO, "x", 1) == 1 ? 0 : 3);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(StopTest, OneRankThatWasAskedStopsAll) {
  install_stop_handlers();
  run_threads(3, [](Communicator& world) { EXPECT_FALSE(any_stop_requested(world)); });
  std::raise(SIGUSR2);
  run_threads(3, [](Communicator& world) { EXPECT_TRUE(any_stop_requested(world)); });
}

TEST_F(StopTest, WhatCannotBeCaughtIsRefused) {
  EXPECT_THAT(refusal([] { install_stop_handlers({.signals = {SIGKILL}}); }), HasSubstr("cannot be a wish to stop"));
}

TEST(StopOptions, SignalsByName) {
  EXPECT_THAT(parse_stop_signals("int,term"), ElementsAre(SIGINT, SIGTERM));
  EXPECT_THAT(parse_stop_signals("SIGUSR1, Hup,usr1"), ElementsAre(SIGUSR1, SIGHUP));
  EXPECT_THAT(parse_stop_signals("none"), IsEmpty());
  EXPECT_THAT(refusal([] { parse_stop_signals("int,usr3"); }),
              testing::AllOf(HasSubstr("usr3"), HasSubstr("did you mean usr"), HasSubstr("int, term, hup")));
  EXPECT_THAT(refusal([] { parse_stop_signals("kill"); }), HasSubstr("kill"));
  EXPECT_THAT(refusal([] { parse_stop_signals(""); }), HasSubstr("or none"));
  EXPECT_THAT(refusal([] { parse_stop_signals("int,,term"); }), HasSubstr("an empty name"));
}

TEST(StopOptions, TimesInWordsAndAsClocksShowThem) {
  EXPECT_EQ(parse_stop_time(""), milliseconds(0));
  EXPECT_EQ(parse_stop_time("90"), milliseconds(90000));
  EXPECT_EQ(parse_stop_time("0.5"), milliseconds(500));
  EXPECT_EQ(parse_stop_time("45m"), milliseconds(45 * 60000));
  EXPECT_EQ(parse_stop_time("3h50m"), milliseconds((3 * 60 + 50) * 60000));
  EXPECT_EQ(parse_stop_time("1d2h"), milliseconds(26 * 3600000));
  EXPECT_EQ(parse_stop_time("3:50:00"), milliseconds((3 * 60 + 50) * 60000));
  EXPECT_EQ(parse_stop_time("1-02:00:00"), milliseconds(26 * 3600000));
  for (const char* wrong :
       {"x", "0", "-5", "3x", "m", "5m3h", "1e400", "3:5x", "1:2:3:4", ":", "1-", "nan", "inf", "3 h"}) {
    EXPECT_THAT(refusal([wrong] { parse_stop_time(wrong); }), HasSubstr("3h50m")) << wrong;
  }
}

TEST(StopOptions, OfACommandLineAreLookedAtWhenTheyAreRead) {
  const auto read = [](const char* flag, const char* value) { read_options(Config{}, {flag, value}, {}); };
  EXPECT_THAT(refusal([&] { read("--run.stop_signals", "int,usr3"); }),
              HasSubstr("run.stop_signals = int,usr3: usr3 can be no wish to stop"));
  EXPECT_THAT(refusal([&] { read("--run.stop_after", "soon"); }), HasSubstr("run.stop_after = soon: this is no time"));
}

}  // namespace
}  // namespace reigen::train::stop_test
