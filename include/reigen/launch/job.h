// Starts the ranks of a job on this machine, watches them and ends them: the library behind `reigen run`.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace reigen::launch {

// `grace` for programs that are known to save and end when they are asked to, however much they have to save.
inline constexpr std::chrono::minutes kGraceToSave{10};

struct JobOptions {
  std::vector<std::string> command = {};  // program (searched in PATH as a shell does) and its arguments
  int ranks = 1;
  std::string log_dir = {};         // not empty: DIR/rank_N.log holds all that rank N prints, without progress lines
  std::string flight_file = {};     // not empty: gets the ranks' last 1,024 operations when the job ends, as JSON lines
  std::string prefix = "auto";      // "[N] " before every line: auto (with more than one rank), always, none
  int threads_per_rank = 0;         // OMP_NUM_THREADS; 0: the environment's value, else a rank's share (base/cores.h)
  std::size_t memory_per_rank = 0;  // bytes that a rank is expected to need, for the memory check below; 0: 64 MiB
  std::chrono::milliseconds grace = std::chrono::seconds(30);  // between a signal to the launcher and SIGKILL
  std::chrono::milliseconds failure_grace = std::chrono::milliseconds(1000);  // between a rank's failure and SIGKILL
  std::vector<std::pair<std::string, std::string>> environment = {};          // extra variables of every rank
};

struct JobResult {
  int exit_code = 0;      // of the rank that failed first; 128 + N when signal N ended it; 0 when all ranks ended well
  int failed_rank = -1;   // -1: no rank failed
  int stopped_rank = -1;  // a rank that was found stopped (SIGSTOP) when the job failed: the likely culprit; -1: none
  std::string last_lines = {};  // the last lines that the failed rank printed, at most 30
};

// Blocks until every rank has ended. Throws before any rank is started when the program does not exist (66) or is not
// executable (77), when `ranks` is out of range (78), or when the ranks need more memory, processes or descriptors than
// are available (71). The numbers are exit codes.
//
// Every rank gets torchrun's variables (RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, ...), REIGEN_STORE and REIGEN_JOB
// (the address and identity of the job's store, which this process serves) and, when stdout is a terminal,
// REIGEN_CONSOLE (the columns left for a line). MASTER_PORT is another port, which was free just before the start, for
// programs that serve something themselves. stdin is /dev/null.
//
// Output is passed on in whole lines. Text that ends with '\r' is a progress line: on a terminal it is redrawn in
// place; otherwise only its last state, which ends with '\n' or with the rank, is printed.
//
// Each rank's last calls (docs/flight_recorder.md) are recorded in memory that outlives the rank; the report of a
// failure ends with them.
//
// A failing rank ends the other ranks: they get SIGTERM, then SIGKILL after `failure_grace`. stderr says once which
// rank failed, why, and its last lines. An exit code of 79 (a peer was lost) is usually a consequence of another
// failure, so the launcher first waits 200 ms for a better cause.
//
// SIGINT, SIGTERM, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2 and SIGXCPU are passed on to all ranks. After SIGINT, SIGTERM or
// SIGQUIT, SIGKILL follows after `grace`, or at once when SIGINT or SIGQUIT comes a second time; the other signals
// start no such clock. A rank that ends by a signal that was passed on, or with exit code 75 (stopped, resumable), has
// not failed: the other ranks have `grace` to end too, and the code is passed on. SIGTSTP (Ctrl-Z) pauses the job and
// SIGCONT lets it go on; time during which this process itself was stopped does not count towards `grace`.
//
// No process outlives the job: everything that ranks started is killed at its end, and also when this process is killed
// with SIGKILL (a small guardian process does that).
//
// Thread rule: one job at a time per process; the calling thread receives the signals above while the job runs.
JobResult run_job(const JobOptions& options);

}  // namespace reigen::launch
