// Starts the ranks of a job on this machine, watches them and ends them: the library behind `reigen run`.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace reigen::launch {

// `grace` for ranks that are known to save and end when they are asked to, however large what they save.
inline constexpr std::chrono::minutes kGraceToSave{10};

struct JobOptions {
  std::vector<std::string> command = {};  // program (searched in PATH as a shell does) and its arguments
  int ranks = 1;
  std::string log_dir = {};         // not empty: DIR/rank_N.log holds all that rank N prints, without progress lines
  std::string flight_file = {};     // not empty: gets the ranks' last 1,024 operations when the job ends, as JSON lines
  std::string prefix = "auto";      // "[N] " before every line: auto (with more than one rank), always, none
  int threads_per_rank = 0;         // OMP_NUM_THREADS; 0: what the environment says, else a rank's share (base/cores.h)
  std::size_t memory_per_rank = 0;  // bytes that a rank is expected to need, for the check below; 0: 64 MiB
  std::chrono::milliseconds grace = std::chrono::seconds(30);  // after a signal to the launcher, before SIGKILL
  std::chrono::milliseconds failure_grace = std::chrono::milliseconds(1000);  // after a rank failed, before SIGKILL
  std::vector<std::pair<std::string, std::string>> environment = {};          // extra variables of every rank
};

struct JobResult {
  int exit_code = 0;            // of the rank that failed first; 128 + N when signal N ended it; 0 when all ended well
  int failed_rank = -1;         // -1: none
  int stopped_rank = -1;        // a rank that was found stopped (SIGSTOP) when the job failed: the likely culprit
  std::string last_lines = {};  // of the failed rank, at most 30
};

// Blocks until every rank has ended. Starts nothing and throws when the program does not exist (66) or is not
// executable (77), when `ranks` is out of range (78) or needs more memory, processes or descriptors than there are
// (71).
//
// Every rank gets torchrun's variables (RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, ...), REIGEN_STORE and REIGEN_JOB
// (the job's store, served from here) and, when stdout is a terminal, REIGEN_CONSOLE. MASTER_PORT is a port of its own
// that was free just before the start, for programs that serve something themselves. stdin is /dev/null.
//
// Output is passed on in whole lines. A piece that ends with '\r' is a progress line: redrawn in place on a terminal,
// else dropped until its last state, which ends with '\n' or with the rank.
//
// What the ranks last called of each other (docs/flight_recorder.md) is recorded in memory that outlives them: the
// report of a failure ends with it.
//
// A failing rank ends the others: SIGTERM, then SIGKILL after `failure_grace`; stderr says once which rank, why, and
// its last lines. A failure with code 79 (a peer was lost) is a consequence: for 200 ms a better cause is waited for.
//
// SIGINT, SIGTERM, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2 and SIGXCPU go to all ranks. After the first three SIGKILL follows
// after `grace`, or at once when SIGINT or SIGQUIT comes again; the others hurry nobody. A rank that ends by a signal
// that was passed on, or with exit code 75 (stopped, resumable), is no failure: the other ranks have `grace` to end
// too, and the code is passed on. SIGTSTP (Ctrl-Z) pauses the job, SIGCONT lets it go on; time in which this process
// itself was stopped is no part of `grace`.
//
// Nothing outlives the job: what ranks started is killed at its end, and also when this process is killed with -9 (a
// small guardian process sees to it).
//
// Thread rule: one job at a time a process; the calling thread receives the signals above while it runs.
JobResult run_job(const JobOptions& options);

}  // namespace reigen::launch
