// A rank for the tests. Its first word says what it does.
#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "reigen/base/error.h"
#include "reigen/launch/environment.h"

namespace {

volatile std::sig_atomic_t caught = 0;

void catch_signal(int signal) { caught = signal; }

int rank() { return std::atoi(std::getenv("RANK")); }

void say(const std::string& text) { [[maybe_unused]] const auto written = ::write(1, text.data(), text.size()); }

void sleep_long() {
  for (int i = 0; i < 600; ++i) ::usleep(100000);
}

// Prints lines in pieces. The lines of two ranks would mix if the launcher did not join the pieces.
int chatter(int lines) {
  for (int i = 0; i < lines; ++i) {
    const std::string letter(1, static_cast<char>('a' + rank()));
    for (int part = 0; part < 3; ++part) say(std::string(20, letter[0]));
    say("\n");
  }
  return 0;
}

// Exits with `code` after the first signal of this kind.
int wait_for_signal(int signal, int code) {
  std::signal(signal, catch_signal);
  say("ready " + std::to_string(::getpid()) + "\n");
  while (caught == 0) ::usleep(2000);
  say("caught " + std::to_string(caught) + "\n");
  return code;
}

int ignore_signals() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, SIG_IGN);
  say("ready " + std::to_string(::getpid()) + "\n");
  sleep_long();
  return 0;
}

// Starts a child in this process group, and another one that makes its own session.
int grow() {
  for (const bool leave : {false, true}) {
    if (::fork() != 0) continue;
    if (leave) ::setsid();
    std::signal(SIGTERM, SIG_IGN);
    say("pid " + std::to_string(::getpid()) + "\n");
    sleep_long();
    ::_exit(0);
  }
  say("pid " + std::to_string(::getpid()) + "\n");
  return 1;
}

// An address in /proc/net/tcp or tcp6: words of four bytes, each in this machine's byte order.
std::string address_of(const std::string& digits) {
  std::array<std::uint32_t, 4> words{};
  for (std::size_t i = 0; i * 8 < digits.size(); ++i) {
    words[i] = static_cast<std::uint32_t>(std::stoul(digits.substr(i * 8, 8), nullptr, 16));
  }
  std::array<char, INET6_ADDRSTRLEN> text{};
  ::inet_ntop(digits.size() == 8 ? AF_INET : AF_INET6, words.data(), text.data(), text.size());
  return text.data();
}

// Every address and port on which this process accepts connections.
std::vector<std::string> listening() {
  std::set<std::string> own;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    own.insert(std::filesystem::read_symlink(entry.path(), error).string());
  }
  std::vector<std::string> places;
  for (const char* path : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    while (std::getline(file, line)) {
      std::istringstream in(line);
      std::vector<std::string> words;
      for (std::string word; in >> word;) words.push_back(word);
      if (words.size() < 10 || words[3] != "0A" || !own.contains("socket:[" + words[9] + "]")) continue;
      const std::size_t colon = words[1].find(':');
      places.push_back(address_of(words[1].substr(0, colon)) + "/" +
                       std::to_string(std::stoul(words[1].substr(colon + 1), nullptr, 16)));
    }
  }
  return places;
}

// Joins the other ranks in the job's store. Rank 0 waits until all have seen each other.
int join(bool lists) {
  using reigen::Deadline;
  const auto environment = reigen::launch::detect_environment();
  const auto limit = Deadline::after(std::chrono::seconds(30));
  const auto store = reigen::launch::join_job(environment, limit);
  store->set("rank/" + std::to_string(environment.rank), environment.source);
  for (int peer = 0; peer < environment.world_size; ++peer) store->get("rank/" + std::to_string(peer), limit);
  if (lists) say(fmt::format("listens: {}\n", fmt::join(listening(), " ")));
  say(environment.source + ": rank " + std::to_string(environment.rank) + " of " +
      std::to_string(environment.world_size) + " met all\n");
  if (store->add("left", 1) == environment.world_size) store->set("all left", "1");
  if (environment.rank == 0) store->get("all left", limit);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  const int number = argc > 2 ? std::atoi(argv[2]) : 0;
  if (what == "chatter") return chatter(number);
  if (what == "catch-term") return wait_for_signal(SIGTERM, number);
  if (what == "catch-int") return wait_for_signal(SIGINT, number);
  if (what == "catch-usr1") return wait_for_signal(SIGUSR1, number);
  if (what == "join") try {
      return join(argc > 2);
    } catch (const reigen::Error& error) {
      std::fprintf(stderr, "%s\n", error.what());
      return static_cast<int>(error.exit_code());
    }
  if (what == "ignore") return ignore_signals();
  if (what == "grow-and-stay") {
    grow();
    sleep_long();
  }
  if (what == "grow-and-exit") {
    grow();
    ::usleep(300000);
    return number;
  }
  std::fprintf(stderr, "unknown word: %s\n", what.c_str());
  return 2;
}
