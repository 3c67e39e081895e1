// Requests to stop a training: Ctrl-C, a scheduler's signal or a time limit. The training loop checks for a request
// once a step, saves a checkpoint and ends with exit code 75.
//
//   auto world = reigen::init();
//   reigen::train::install_stop_handlers();
//   for (...) {
//     ...                                                            // a step
//     if (reigen::train::any_stop_requested(world)) return save(), 75;  // all ranks stop after the same step
//   }
//
// train::run and Trainer do this by themselves. Without these handlers the signals end the process as usual.
// Thread rule: call install_stop_handlers() from main(). Any thread may call the other functions.
#pragma once

#include <chrono>
#include <csignal>
#include <string>
#include <vector>

#include "reigen/comm/communicator.h"

namespace reigen::train {

// Ctrl-C sends SIGINT. Schedulers and `kill` send SIGTERM. SIGHUP means that the terminal hung up. Schedulers send
// SIGUSR1 or SIGUSR2 as a warning before the time limit (Slurm's --signal, Grid Engine's -notify, LSF's -wa). The
// kernel sends SIGXCPU at the soft limit of processor time (ulimit -S -t), before it kills the process at the hard
// limit.
inline const std::vector<int> kStopSignals = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU};

struct StopOptions {
  // Signals that end the training after the current step. SIGHUP, SIGUSR1, SIGUSR2 and SIGXCPU stay ignored if they
  // were ignored when the process started (as under nohup).
  std::vector<int> signals = kStopSignals;
  // Requests a stop at this time after the start of the process, without any signal; 0 means never.
  std::chrono::milliseconds after = std::chrono::milliseconds(0);
  // Prints to stderr at once that a request was received. Set it on one rank of a job only; `reigen run` prints it
  // itself.
  bool tells = false;
};

// After this call each of options.signals requests a stop. A second SIGINT more than half a second after the first
// SIGINT ends the process as if no handler had been installed, because the user does not want to wait. The other
// signals may come any number of times, because schedulers send a warning signal and then SIGTERM, and some schedulers
// send them twice. SIGPIPE is ignored, so the process continues when the reader of its output is gone. After a SIGHUP,
// output to the terminal that hung up is discarded. A second call of this function replaces the handlers of the first.
// Throws InvalidArgument for a signal that cannot be caught.
void install_stop_handlers(const StopOptions& options = {});

// Whether a stop was requested from this process. Costs nanoseconds.
bool stop_requested();

// Whether a stop was requested from any rank. All ranks get the same answer, so they stop after the same step.
// Collective: one all_reduce of 4 bytes. Every rank must call the function equally often. Throws the errors of
// Communicator::all_reduce().
bool any_stop_requested(const Communicator& world);

// Parses "int,term,usr1", in upper or lower case, with or without SIG. "none" means no signal. Throws InvalidArgument
// for any other text.
std::vector<int> parse_stop_signals(const std::string& text);

// Parses "90" (seconds), "90s", "45m", "3h50m", "1d2h", and Slurm's "3:50:00". An empty text gives 0. Throws
// InvalidArgument for any other text.
std::chrono::milliseconds parse_stop_time(const std::string& text);

}  // namespace reigen::train
