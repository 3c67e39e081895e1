// Watches the processes of a job in one loop: their output, their ends, and the launcher's signals.
#pragma once

#include <sys/resource.h>

#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/machine/standstill.h"
#include "launch/console.h"
#include "launch/ranks/ending.h"
#include "launch/ranks/flight_records.h"
#include "launch/ranks/guardian.h"
#include "launch/ranks/process.h"
#include "launch/ranks/rank_output.h"
#include "launch/ranks/signals.h"
#include "reigen/base/unique_fd.h"
#include "reigen/launch/job.h"

namespace reigen::launch {

// Thread rule: all calls from one thread, which must live as long as the ranks, because the kernel kills the ranks when
// this thread ends.
class Supervisor {
 public:
  struct Surroundings {
    std::string identity;  // NAME=value that is in the environment of all processes of the job
    rlimit open_files;     // the limit of open files that ranks get
    SignalScope& signals;
    Guardian& guardian;
    Console& console;
    const FlightRecords& records;
  };
  Supervisor(const JobOptions& options, const Surroundings& surroundings);
  ~Supervisor();                           // kills and reaps the processes that are left, also when start() threw
  Supervisor(const Supervisor&) = delete;  // owns the ranks' processes
  Supervisor& operator=(const Supervisor&) = delete;

  // Starts the next rank, beginning with rank 0. `environment`: the rank's variables, each as NAME=value.
  void start(const std::string& program, const std::vector<std::string>& environment);
  // Call it after the last start: throws when a program could not be executed.
  void check_started();

  JobResult watch();

  pid_t pid_of(int rank) const;

 private:
  using Clock = std::chrono::steady_clock;
  enum class Phase { kRunning, kFailing, kStopping };
  struct Rank {
    Process process;
    UniqueFd streams[2];
    RankOutput output;
    Clock::time_point started;
    bool ended = false;
    bool gone = false;  // reaped with its whole group: the kernel may give its pid to another process
  };

  void wait_round();
  void read_stream(Rank& rank, Stream stream);
  void close_stream(Rank& rank, Stream stream);
  void handle_signals();
  void handle_signal(int signal);
  void pass_on(int signal);
  void pause_with_ranks();
  void collect_endings();
  void react(const std::vector<Ending>& fresh);
  void check_deadlines();
  void note_standstill();
  int poll_timeout() const;
  void begin_ending();
  void kill_all();
  void signal_all(int signal) const;
  void note_stopped_rank();
  void reap_orphans();
  bool end_group(Rank& rank);
  void end_leftovers();
  void drain();
  int flush();  // returns 0 if all output is written, else the signal that ended the wait
  void save_records();
  void print_report(const JobResult& result, const Ending& cause);

  const JobOptions& options_;
  std::string identity_;
  rlimit open_files_;
  SignalScope& signals_;
  Guardian& guardian_;
  Console& console_;
  const FlightRecords& records_;
  UniqueFd null_;
  std::vector<Rank> ranks_;
  std::vector<Ending> endings_;
  std::size_t running_ = 0;
  Phase phase_ = Phase::kRunning;
  int round_ = 0;
  int stop_signal_ = 0;
  bool asked_to_stop_ = false;
  Clock::time_point asked_at_ = {};
  std::set<int> passed_on_;  // forwarded signals that do not ask ranks to end, but may end them
  bool ending_ = false;      // SIGTERM was sent because a rank failed
  bool killed_ = false;
  Stopped stopped_;
  std::optional<Clock::time_point> end_at_;
  std::optional<Clock::time_point> kill_at_;
  Clock::time_point reap_at_;
  base::Standstill standstill_{std::chrono::seconds(4)};  // twice the longest pass (kReapInterval)
};

}  // namespace reigen::launch
