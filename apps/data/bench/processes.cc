#include "data/bench/processes.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "reigen/base/error.h"

namespace reigen::apps::data {

namespace {

constexpr auto kPatience = std::chrono::minutes(5);  // with a process that measures; a cold disk is slow

[[noreturn]] void fail_of_process(const std::string& got) {
  throw IoError(Report{.what = "a process that measures has failed",
                       .got = got,
                       .expected = "a line with samples per second",
                       .fix = "its message is above; --workers 1 starts no processes"});
}

// The next line of a process. It writes a line only when it is asked, so nothing is left behind it.
std::string line_of(int fd) {
  const auto until = std::chrono::steady_clock::now() + kPatience;
  std::string line;
  while (line.empty() || line.back() != '\n') {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    pollfd waits{.fd = fd, .events = POLLIN, .revents = 0};
    const int ready = left.count() > 0 ? ::poll(&waits, 1, static_cast<int>(left.count())) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) fail_of_process("no answer for five minutes");
    std::array<char, 256> part;
    const ssize_t count = REIGEN_SYSCALL(::read(fd, part.data(), part.size()));
    if (count == 0) fail_of_process("its end");
    line.append(part.data(), static_cast<std::size_t>(count));
  }
  line.pop_back();
  return line;
}

}  // namespace

WorkerProcesses::Process WorkerProcesses::start(const std::vector<std::string>& arguments) const {
  // A pipe would end this program by SIGPIPE if the process has ended.
  std::array<int, 2> ends{};
  REIGEN_SYSCALL(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()));
  UniqueFd channel(ends[0]);
  const UniqueFd theirs(ends[1]);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, theirs.get(), STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, theirs.get(), STDOUT_FILENO);
  std::vector<std::string> words = {"reigen-data"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  pid_t pid = -1;
  const int error = ::posix_spawn(&pid, "/proc/self/exe", &actions, nullptr, pointers.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) fail_of_process(fmt::format("posix_spawn: {}", std::strerror(error)));
  return {.pid = pid, .channel = std::move(channel)};
}

WorkerProcesses::WorkerProcesses(const std::vector<std::string>& arguments, int count) {
  for (int i = 0; i < count; ++i) processes_.push_back(start(arguments));
  for (const Process& process : processes_) {
    const std::string line = line_of(process.channel.get());
    if (line != "ready") fail_of_process(line);
  }
}

WorkerProcesses::~WorkerProcesses() {
  for (Process& process : processes_) {
    process.channel.reset();
    ::kill(process.pid, SIGKILL);
    while (::waitpid(process.pid, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
}

double WorkerProcesses::run(std::int64_t begin, std::int64_t count) {
  for (const Process& process : processes_) {
    const std::string line = fmt::format("{} {}\n", begin, count);
    const ssize_t sent = ::send(process.channel.get(), line.data(), line.size(), MSG_NOSIGNAL);
    if (sent != static_cast<ssize_t>(line.size())) fail_of_process(std::strerror(errno));
    begin += count;
  }
  double rate = 0;
  for (const Process& process : processes_) {
    const std::string line = line_of(process.channel.get());
    const auto one = base::parse<double>(line);
    if (!one) fail_of_process(line);
    rate += *one;
  }
  return rate;
}

}  // namespace reigen::apps::data
