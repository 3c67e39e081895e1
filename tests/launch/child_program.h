// Runs a program beside the test, with its output in pipes.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "reigen/base/unique_fd.h"

namespace reigen::launch {

class ChildProgram {
 public:
  // `environment`: NAME=value to add, NAME to remove.
  explicit ChildProgram(const std::vector<std::string>& command, const std::vector<std::string>& environment = {});
  ~ChildProgram();                             // kills it if it still runs
  ChildProgram(const ChildProgram&) = delete;  // one process
  ChildProgram& operator=(const ChildProgram&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int signal) const;
  // Reads until stdout or stderr holds the text `times` times; false: it ended or a long time passed.
  bool wait_for_text(const std::string& text, int times = 1);
  // The exit code, or 128 + N for a signal; -1 when it did not end (it is killed then).
  int wait();
  void close_output() { streams_[0].reset(); }

  const std::string& out() const { return text_[0]; }
  const std::string& err() const { return text_[1]; }

 private:
  bool read_some(std::chrono::steady_clock::time_point until);

  pid_t pid_ = -1;
  UniqueFd streams_[2];
  std::string text_[2];
};

// As wait(), of a program that trains: a busy machine takes its time, and the limit of the test itself ends what hangs.
int wait_for(ChildProgram& program);

struct Ran {
  int code = 0;
  std::string out;
  std::string err;
};

Ran run(const std::vector<std::string>& command, const std::vector<std::string>& environment = {});

// `reigen run` with these words.
std::vector<std::string> reigen_run(const std::vector<std::string>& words);

// Numbers behind `word` in the text: "pid 12" -> 12.
std::vector<pid_t> pids_after(const std::string& word, const std::string& text);

// True once the process is gone (or waits only to be reaped by a stranger); waits some seconds for it.
bool disappears(pid_t pid);

}  // namespace reigen::launch
