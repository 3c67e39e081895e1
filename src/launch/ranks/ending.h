// How ranks ended, which of them is to blame, and the text of the report.
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
  int round = 0;             // the round of the supervisor's loop that saw it; endings of one round came together
  bool consequence = false;  // it came after the launcher had begun to end the ranks
  std::chrono::milliseconds run_time{0};

  bool ok() const { return exit_code == 0 && signal == 0; }
  int code() const { return signal != 0 ? 128 + signal : exit_code; }
};

// Decodes si_code and si_status of waitid.
void set_status(Ending& ending, int code, int status);

// The failure to blame, or nullptr if no rank failed. Failures before the launcher began to end the ranks come before
// failures after that. Among each of these, exit code 79 (lost a peer) comes last, because it is a consequence of
// another failure. Then the earliest round comes first. Within a round a signal comes before an exit code, and then the
// lowest rank comes first.
const Ending* root_cause(const std::vector<Ending>& endings);

// The job's exit code after `signal` was forwarded: the code of cause_after_stop() if it names a failure; 128 + signal
// when ranks died of the signal or had to be killed, or failed only because their peers ended; 75 when a rank ended
// with it; else 0.
int code_after_stop(const std::vector<Ending>& endings, int signal, bool killed);

// The root cause among the ranks that did not end as asked. To end as asked is to end with exit code 0 or 75, by the
// signal, or by SIGKILL if `killed`. nullopt if there is none, or if it is only the loss of a peer that ended as asked.
std::optional<Ending> cause_after_stop(const std::vector<Ending>& endings, int signal, bool killed);

struct Stopped {
  int rank = -1;
  pid_t pid = 0;
};

// The report, of several lines. If `last_lines` is empty, the rank's last lines are left out.
std::string failure_report(const Ending& cause, int ranks, const Stopped& stopped, const std::string& last_lines);

}  // namespace reigen::launch
