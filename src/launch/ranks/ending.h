// How ranks ended, which of them is to blame, and the words for it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace reigen::launch {

struct Ending {
  int rank = 0;
  pid_t pid = 0;
  int exit_code = 0;
  int signal = 0;            // not 0: ended by this signal
  int round = 0;             // when it was seen; endings of one round came together
  bool consequence = false;  // it came after the launcher had begun to end the ranks
  std::chrono::milliseconds run_time{0};

  bool ok() const { return exit_code == 0 && signal == 0; }
  int code() const { return signal != 0 ? 128 + signal : exit_code; }
};

// Decodes what waitid gives (its code and status).
void set_status(Ending& ending, int code, int status);

// The failure to blame, nullptr if there is none. What the launcher caused comes last; a lost peer (code 79) is a
// consequence of something else; then the earliest, of one round a signal before an exit code.
const Ending* root_cause(const std::vector<Ending>& endings);

// The job's exit code after `signal` was forwarded: 0 or 75 when the ranks agreed to stop that way; 128 + signal when
// they died of it (or had to be killed); else the code of cause_after_stop().
int code_after_stop(const std::vector<Ending>& endings, int signal, bool killed);

// The first that failed otherwise. Who only lost a rank that ended as asked has not failed.
std::optional<Ending> cause_after_stop(const std::vector<Ending>& endings, int signal, bool killed);

struct Stopped {
  int rank = -1;
  pid_t pid = 0;
};

// The report, several lines. `last_lines` empty: not repeated.
std::string failure_report(const Ending& cause, int ranks, const Stopped& stopped, const std::string& last_lines);

}  // namespace reigen::launch
