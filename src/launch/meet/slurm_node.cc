#include "launch/meet/slurm_node.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <vector>

#include "launch/ranks/process.h"
#include "net/socket.h"
#include "reigen/base/deadline.h"
#include "reigen/base/unique_fd.h"

namespace reigen::launch {

namespace {

constexpr auto kPatience = std::chrono::seconds(10);  // how long to wait for a controller that does not answer

// The text that a program prints to stdout; empty if the program cannot be run. A program that takes longer than
// kPatience is killed.
std::string output_of(const std::vector<std::string>& words) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return {};
  const UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, writer.get(), STDOUT_FILENO);
  ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  const std::vector<char*> arguments = pointers_to(words);
  pid_t pid = 0;
  const int error = ::posix_spawnp(&pid, arguments.front(), &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  writer.reset();
  if (error != 0) return {};
  const Deadline deadline = Deadline::after(kPatience);
  std::string text;
  std::array<char, 4096> part;
  while (net::wait_ready(reader.get(), POLLIN, deadline)) {
    const ssize_t count = ::read(reader.get(), part.data(), part.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    text.append(part.data(), static_cast<std::size_t>(count));
  }
  ::kill(pid, SIGKILL);  // the program has closed its output, or the time is up
  while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  return text;
}

}  // namespace

std::string parse_node_address(const std::string& text) {
  const std::string key = " NodeAddr=";
  const std::size_t at = text.find(key);
  if (at == std::string::npos) return {};
  const std::size_t begin = at + key.size();
  return text.substr(begin, text.find_first_of(" \n", begin) - begin);
}

std::string slurm_node_address(const std::string& node) {
  const std::string plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
  if (node.empty() || node.front() == '-' || node.find_first_not_of(plain) != std::string::npos) return {};
  const std::string address = parse_node_address(output_of({"scontrol", "--oneliner", "show", "node", node}));
  return address == node ? "" : address;
}

}  // namespace reigen::launch
