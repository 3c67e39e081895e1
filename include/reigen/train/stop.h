// A wish to stop: Ctrl-C, a scheduler's signal or a time. The training loop asks once a step, saves and ends with 75.
//
//   auto world = reigen::init();
//   reigen::train::install_stop_handlers();
//   for (...) {
//     ...                                                            // a step
//     if (reigen::train::any_stop_requested(world)) return save(), 75;  // all ranks after the same step
//   }
//
// train::run and Trainer do so by themselves. A process that installs nothing ends at these signals as ever.
// Thread rule: install_stop_handlers() from main(), the rest from any thread.
#pragma once

#include <chrono>
#include <csignal>
#include <string>
#include <vector>

#include "reigen/comm/communicator.h"

namespace reigen::train {

// Ctrl-C; what schedulers and `kill` send; a terminal that is gone; what schedulers send as a warning before the end of
// the time (Slurm's --signal, Grid Engine's -notify, LSF's -wa) or of the processor time (ulimit -t).
inline const std::vector<int> kStopSignals = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU};

struct StopOptions {
  // Those that end the training after its step. SIGHUP, SIGUSR1, SIGUSR2 and SIGXCPU stay ignored where they were when
  // the process started (nohup).
  std::vector<int> signals = kStopSignals;
  // So long after the start of the process a stop is wished for without any signal; 0: never.
  std::chrono::milliseconds after = std::chrono::milliseconds(0);
  // Says on stderr at once that the wish was heard. For one rank of a job; `reigen run` says it itself.
  bool tells = false;
};

// From here on one of these signals is a wish. SIGINT twice, more than half a second apart, ends the process as if
// nothing had been installed: somebody will not wait. The others may come as often as they like: schedulers send a
// warning, then TERM, some of them twice. Output whose reader is gone ends nothing any more (SIGPIPE is ignored), and a
// terminal that hung up takes what is written and drops it. Called again it replaces what was installed before.
// Throws InvalidArgument for a signal that cannot be caught.
void install_stop_handlers(const StopOptions& options = {});

// Whether this process was asked. Costs nanoseconds.
bool stop_requested();

// Whether any rank was asked: the same answer on all, so that they stop after the same step. One all_reduce of 4 bytes:
// every rank must call it as often. Errors are those of an all_reduce.
bool any_stop_requested(const Communicator& world);

// "int,term,usr1", in any case and with or without SIG; "none" is no signal. Throws InvalidArgument.
std::vector<int> parse_stop_signals(const std::string& text);

// "90" (seconds), "90s", "45m", "3h50m", "1d2h", and Slurm's "3:50:00"; empty: 0. Throws InvalidArgument.
std::chrono::milliseconds parse_stop_time(const std::string& text);

}  // namespace reigen::train
