// Starts the ranks of a job on this machine, watches them and ends them. `reigen run` uses this library.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace reigen::launch {

// A value of JobOptions::grace for programs that save a checkpoint and end on request. It is long enough for large
// checkpoints.
inline constexpr std::chrono::minutes kGraceToSave{10};

// Whether the launcher runs a daemon of NVIDIA's Multi-Process Service (MPS) for ranks that share GPUs. It makes calls
// between processes on one GPU much faster; a fault of one rank on the GPU then ends the others on it.
enum class ShareGpus {
  kOff,
  kAuto,  // if more ranks start here than GPUs are visible, and the program nvidia-cuda-mps-control is in PATH
  kOn     // always. Throws BackendError (exit code 69) if this is not possible
};

struct JobOptions {
  std::vector<std::string> command = {};  // program (searched in PATH as a shell does) and its arguments
  int ranks = 1;
  std::string log_dir = {};      // if not empty, DIR/rank_N.log gets all output of rank N, without progress lines
  std::string flight_file = {};  // if not empty, gets each rank's last 1,024 calls as JSON lines when the job ends
  std::string prefix = "auto";   // "[N] " before every line of output: auto (with more than one rank), always, none
  // The value of OMP_NUM_THREADS in each rank. 0 means the value that the variable has in this process. If the variable
  // is not set here either, it is each rank's share of the processors (base/machine/cores.h).
  int threads_per_rank = 0;
  // The bytes that a rank is expected to need. run_job() checks whether so much memory is available. 0 means 64 MiB.
  std::size_t memory_per_rank = 0;
  std::chrono::milliseconds grace = std::chrono::seconds(30);  // time from a signal to the launcher until SIGKILL
  // The time from the failure of a rank until the other ranks get SIGKILL.
  std::chrono::milliseconds failure_grace = std::chrono::milliseconds(1000);
  ShareGpus share_gpus = ShareGpus::kOff;
  std::vector<std::pair<std::string, std::string>> environment = {};  // extra variables of every rank
};

struct JobResult {
  int exit_code = 0;      // of the rank that failed first; 128 + N when signal N ended it; 0 when all ranks ended well
  int failed_rank = -1;   // -1 if no rank failed
  int stopped_rank = -1;  // a rank that was stopped (SIGSTOP) when the job failed, the likely cause; -1 if no rank was
  std::string last_lines = {};  // the last lines that the failed rank printed, at most 30
};

// Blocks until every rank has ended. Throws an error before it starts any rank: with exit code 66 when the program does
// not exist, with 77 when it is not executable, with 78 when `ranks` is out of range, and with 71 when the ranks need
// more memory, processes or descriptors than are available.
//
// Every rank gets torchrun's variables (RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, ...). Every rank also gets
// REIGEN_STORE and REIGEN_JOB, the address and identity of the job's store, which this process serves. When stdout is a
// terminal, every rank also gets REIGEN_CONSOLE, the number of columns that are left for a line. MASTER_PORT is not the
// port of this store: it is for programs that run a server of their own. The port was free just before the start. The
// stdin of the ranks is /dev/null.
//
// The launcher prints the ranks' output in whole lines. Text that ends with '\r' is a progress line. On a terminal a
// progress line is redrawn in place. Otherwise only its last state is printed: the text before '\n' or before the end
// of the rank.
//
// Each rank's last calls (docs/flight_recorder.md) are recorded in memory that outlives the rank. The report of a
// failure ends with these calls.
//
// When a rank fails, the launcher ends the other ranks: they get SIGTERM, and SIGKILL after `failure_grace`. One report
// on stderr names the failed rank, the reason, and the rank's last lines. If a rank ends with exit code 79 (a peer was
// lost), the cause is usually the failure of another rank, so the launcher first waits 200 ms for that failure.
//
// The launcher passes SIGINT, SIGTERM, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2 and SIGXCPU on to all ranks. After SIGINT,
// SIGTERM or SIGQUIT the ranks get SIGKILL when `grace` has passed, or at once when SIGINT or SIGQUIT comes a second
// time. The other signals set no time limit. A rank that ends by a signal that was passed on, or with exit code 75
// (stopped, resumable), has not failed: the other ranks then have `grace` to end, and the launcher returns this rank's
// exit code. SIGTSTP (Ctrl-Z) pauses the job and SIGCONT continues it; time during which this process itself was
// stopped does not count towards `grace`.
//
// A daemon for ranks that share GPUs ends with the job. There is none of the job's own if a daemon listens already
// where the ranks look for one: in the folder CUDA_MPS_PIPE_DIRECTORY, or in CUDA's standard place.
//
// No process outlives the job: at the end of the job all processes that ranks started are killed. If this process is
// killed with SIGKILL, a small guardian process kills the ranks and the processes that they started.
//
// Thread rule: one job at a time per process; the calling thread receives the signals above while the job runs.
JobResult run_job(const JobOptions& options);

}  // namespace reigen::launch
