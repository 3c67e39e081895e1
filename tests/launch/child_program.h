// Runs a program in parallel with the test. Pipes receive its output.
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
  ~ChildProgram();                             // kills the process if it still runs
  ChildProgram(const ChildProgram&) = delete;  // the process has one owner
  ChildProgram& operator=(const ChildProgram&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int signal) const;
  // Reads until stdout or stderr contains the text `times` times. False if the program ended, or a long time passed.
  bool wait_for_text(const std::string& text, int times = 1);
  // The exit code, or 128 + N for a signal. -1 if the program did not end; it is killed then.
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

// For a child of fork() before it runs a program: no signal is ignored, also if the tests run under nohup or in the
// background of a shell. ChildProgram does the same.
void reset_signals();

// Like wait(), for a program that trains: it waits five times as long, because a busy machine is slow.
int wait_for(ChildProgram& program);

struct Ran {
  int code = 0;
  std::string out;
  std::string err;
};

// Runs a program, and waits for its end as wait() does.
Ran run(const std::vector<std::string>& command, const std::vector<std::string>& environment = {});
// The same for a program that trains, with wait_for().
Ran run_training(const std::vector<std::string>& command, const std::vector<std::string>& environment = {});

// The command `reigen run` with these words.
std::vector<std::string> reigen_run(const std::vector<std::string>& words);

// The numbers after `word` in the text: "pid 12" gives 12.
std::vector<pid_t> pids_after(const std::string& word, const std::string& text);

// Waits some seconds until the process is gone, or only waits to be reaped by another process. True if so.
bool disappears(pid_t pid);

}  // namespace reigen::launch
