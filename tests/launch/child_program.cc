#include "child_program.h"
#include "harness/folders.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <thread>

namespace reigen::launch {

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kPatience{40};

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t times = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++times;
  return times;
}

std::vector<std::string> changed_environment(const std::vector<std::string>& changes) {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text(*entry);
    const std::string name = text.substr(0, text.find('='));
    bool kept = name != "OMP_NUM_THREADS";
    for (const std::string& change : changes) kept = kept && change.substr(0, change.find('=')) != name;
    if (kept) entries.push_back(text);
  }
  for (const std::string& change : changes) {
    if (change.find('=') != std::string::npos) entries.push_back(change);
  }
  return entries;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& string : strings) result.push_back(string.data());
  result.push_back(nullptr);
  return result;
}

}  // namespace

void reset_signals() {
  for (int signal = 1; signal < NSIG; ++signal) std::signal(signal, SIG_DFL);
}

ChildProgram::ChildProgram(const std::vector<std::string>& command, const std::vector<std::string>& environment) {
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  UniqueFd writers[2];
  for (int i = 0; i < 2; ++i) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
    streams_[i] = UniqueFd(ends[0]);
    writers[i] = UniqueFd(ends[1]);
    ::posix_spawn_file_actions_adddup2(&actions, ends[1], i + 1);
  }
  std::vector<std::string> words = command;
  std::vector<std::string> variables = changed_environment(environment);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  sigset_t all;
  ::sigfillset(&all);
  ::posix_spawnattr_setsigdefault(&attributes, &all);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  const int error = ::posix_spawnp(&pid_, words.front().c_str(), &actions, &attributes, pointers(words).data(),
                                   pointers(variables).data());
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw std::runtime_error("posix_spawn " + words.front());
}

ChildProgram::~ChildProgram() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void ChildProgram::signal(int signal) const { ::kill(pid_, signal); }

bool ChildProgram::read_some(Clock::time_point until) {
  std::array<pollfd, 2> wanted = {{{streams_[0].get(), POLLIN, 0}, {streams_[1].get(), POLLIN, 0}}};
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
  if ((!streams_[0] && !streams_[1]) || left <= 0) return false;
  ::poll(wanted.data(), wanted.size(), static_cast<int>(left));
  for (std::size_t i = 0; i < 2; ++i) {
    if (wanted[i].revents == 0) continue;
    std::array<char, 65536> buffer;
    const ssize_t got = ::read(wanted[i].fd, buffer.data(), buffer.size());
    if (got > 0) text_[i].append(buffer.data(), static_cast<std::size_t>(got));
    if (got == 0) streams_[i].reset();
  }
  return true;
}

bool ChildProgram::wait_for_text(const std::string& text, int times) {
  const auto until = Clock::now() + kPatience;
  const auto enough = [&] { return count(text_[0], text) + count(text_[1], text) >= static_cast<std::size_t>(times); };
  while (!enough() && read_some(until)) {
  }
  return enough();
}

int ChildProgram::wait() {
  const auto until = Clock::now() + kPatience;
  while (read_some(until)) {
  }
  int status = 0;
  for (;;) {
    const pid_t ended = ::waitpid(pid_, &status, WNOHANG);
    if (ended == pid_) break;
    if (Clock::now() > until) return -1;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  pid_ = -1;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int wait_for(ChildProgram& program) {
  int code = -1;
  for (int attempt = 0; code == -1 && attempt < 5; ++attempt) code = program.wait();
  return code;
}

Ran run(const std::vector<std::string>& command, const std::vector<std::string>& environment) {
  ChildProgram program(command, environment);
  const int code = program.wait();
  return {code, program.out(), program.err()};
}

Ran run_training(const std::vector<std::string>& command, const std::vector<std::string>& environment) {
  ChildProgram program(command, environment);
  const int code = wait_for(program);
  return {code, program.out(), program.err()};
}

std::vector<std::string> reigen_run(const std::vector<std::string>& words) {
  std::vector<std::string> command = {built("bin/reigen"), "run"};
  command.insert(command.end(), words.begin(), words.end());
  return command;
}

std::vector<pid_t> pids_after(const std::string& word, const std::string& text) {
  std::vector<pid_t> pids;
  const std::string mark = word + " ";
  for (std::size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at + 1)) {
    pids.push_back(static_cast<pid_t>(std::stol(text.substr(at + mark.size()))));
  }
  return pids;
}

bool disappears(pid_t pid) {
  const auto until = Clock::now() + std::chrono::seconds(10);
  while (Clock::now() < until) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    const std::size_t end = text.rfind(')');
    if (end == std::string::npos || text.substr(end + 2, 1) == "Z" || text.substr(end + 2, 1) == "X") return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return false;
}

}  // namespace reigen::launch
