// How ranks ended, which of them caused the failure of the job, and the text of the failure report.
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
  int signal = 0;            // if not 0, this signal ended the rank
  int round = 0;             // the number of the pass of the supervisor's loop in which the ending was seen
  bool consequence = false;  // the rank ended after the launcher had begun to end the ranks
  std::chrono::milliseconds run_time{0};

  bool ok() const { return exit_code == 0 && signal == 0; }
  int code() const { return signal != 0 ? 128 + signal : exit_code; }
};

// Decodes si_code and si_status of waitid.
void set_status(Ending& ending, int code, int status);

// The failure that most likely caused the others; nullptr if no rank failed. To find it, failures are sorted by these
// criteria, and the first failure is returned:
//   1. A failure before the launcher began to end the ranks precedes a later failure.
//   2. Exit code 79 (lost a peer) comes last, because it is a consequence of another failure.
//   3. An earlier round precedes a later one. 4. A signal precedes an exit code. 5. A lower rank precedes a higher one.
const Ending* root_cause(const std::vector<Ending>& endings);

// The job's exit code after the launcher forwarded `signal` to the ranks; the first case that applies decides:
//   cause_after_stop() returns a failure                           the exit code of this failure
//   ranks died of the signal, had to be killed (`killed`), or failed
//   only because their peers ended                                 128 + signal
//   a rank ended with exit code 75 (stopped on request)            75
//   else                                                           0
int code_after_stop(const std::vector<Ending>& endings, int signal, bool killed);

// The root_cause() among the ranks that did not end as asked. A rank ends as asked if it ends with exit code 0 or 75,
// by the signal, or, if `killed`, by SIGKILL. Returns nullopt if all ranks ended as asked, or if the root cause is only
// the loss of a peer that ended as asked.
std::optional<Ending> cause_after_stop(const std::vector<Ending>& endings, int signal, bool killed);

struct Stopped {
  int rank = -1;
  pid_t pid = 0;
};

// The failure report, of several lines. `last_lines`: the last lines that the rank of `cause` printed; left out if
// empty. `stopped`: a rank that was stopped by SIGSTOP; its rank is -1 if there is none.
std::string failure_report(const Ending& cause, int ranks, const Stopped& stopped, const std::string& last_lines);

}  // namespace reigen::launch
