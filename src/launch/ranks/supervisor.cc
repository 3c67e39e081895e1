#include "launch/ranks/supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>

#include "base/check.h"
#include "base/machine/process_state.h"
#include "base/text.h"
#include "reigen/base/error.h"

namespace reigen::launch {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kCauseWindow{200};    // how long to wait for the cause if a rank only reports a lost peer
constexpr milliseconds kWithoutPidfd{20};    // how often to look for ended ranks on kernels without pidfd
constexpr milliseconds kReapInterval{2000};  // how often to reap the ranks' orphans, which this process has adopted
constexpr milliseconds kOneWish{250};        // two signals so close count as one: `timeout` sends its signal twice
constexpr milliseconds kDrainLimit{500};     // limit for reading the last output: another process may hold a pipe open

bool asks_to_end(int signal) { return signal == SIGINT || signal == SIGTERM || signal == SIGQUIT; }

// True for endings that may be caused by a lost peer or by a signal to every process. The real cause may become visible
// a moment later.
bool may_be_consequence(const Ending& ending) {
  return ending.code() == static_cast<int>(ExitCode::kPeerLost) || ending.signal == SIGTERM ||
         ending.signal == SIGINT || ending.signal == SIGHUP;
}

std::string log_path(const JobOptions& options, std::size_t rank) {
  return options.log_dir.empty() ? std::string() : fmt::format("{}/rank_{}.log", options.log_dir, rank);
}

[[noreturn]] void throw_exec_error(const std::string& program, int error) {
  const bool format = error == ENOEXEC;
  throw InvalidArgument(
      {.what = fmt::format("cannot run `{}`: {}", program, base::errno_text(error)),
       .fix = error == ENOENT ? "the interpreter that its first line names does not exist"
              : format        ? "it is no program of this machine; a script needs a first line like #!/bin/sh"
                              : "check the program"},
      format ? ExitCode::kBadData : base::exit_code_of_errno(error));
}

}  // namespace

Supervisor::Supervisor(const JobOptions& options, const Surroundings& surroundings)
    : options_(options),
      identity_(surroundings.identity),
      open_files_(surroundings.open_files),
      signals_(surroundings.signals),
      guardian_(surroundings.guardian),
      console_(surroundings.console),
      records_(surroundings.records),
      null_(REIGEN_SYSCALL(::open("/dev/null", O_RDONLY | O_CLOEXEC))),
      reap_at_(Clock::now() + kReapInterval) {
  ranks_.reserve(static_cast<std::size_t>(options.ranks));
}

Supervisor::~Supervisor() {
  kill_all();
  end_leftovers();
}

void Supervisor::start(const std::string& program, const std::vector<std::string>& environment) {
  const std::size_t rank = ranks_.size();
  Rank next{{},
            {},
            RankOutput(console_, prefix_of_rank(options_, static_cast<int>(rank)), log_path(options_, rank),
                       options_.ranks == 1),
            Clock::now()};
  std::array<UniqueFd, 2> ends;
  for (std::size_t i = 0; i < ends.size(); ++i) {
    std::array<int, 2> pipe{};
    REIGEN_SYSCALL(::pipe2(pipe.data(), O_CLOEXEC));
    next.streams[i] = UniqueFd(pipe[0]);
    ends[i] = UniqueFd(pipe[1]);
    REIGEN_SYSCALL(::fcntl(pipe[0], F_SETFL, O_NONBLOCK));
  }
  const std::vector<char*> arguments = pointers_to(options_.command);
  const std::vector<char*> variables = pointers_to(environment);
  next.process = start_process({.program = program.c_str(),
                                .arguments = arguments.data(),
                                .environment = variables.data(),
                                .input = null_.get(),
                                .output = ends[0].get(),
                                .error = ends[1].get(),
                                .signal_mask = &signals_.previous_mask(),
                                .open_files = &open_files_,
                                .inherited = records_.descriptor(static_cast<int>(rank))});
  guardian_.protect(next.process.pid);
  ranks_.push_back(std::move(next));
  ++running_;
}

void Supervisor::check_started() {
  for (Rank& rank : ranks_) {
    const int error = wait_for_exec(rank.process);
    rank.process.exec_status.reset();
    if (error != 0) throw_exec_error(options_.command.front(), error);
  }
}

JobResult Supervisor::watch() {
  while (running_ > 0) {
    wait_round();
    note_standstill();
    handle_signals();
    collect_endings();
    check_deadlines();
  }
  end_leftovers();
  drain();

  JobResult result;
  std::optional<Ending> cause;
  if (phase_ == Phase::kStopping) {
    result.exit_code = code_after_stop(endings_, stop_signal_, killed_);
    cause = cause_after_stop(endings_, stop_signal_, killed_);
  } else if (const Ending* first = root_cause(endings_); phase_ == Phase::kFailing && first != nullptr) {
    result.exit_code = first->code();
    cause = *first;
  }
  if (cause) {
    result.failed_rank = cause->rank;
    result.stopped_rank = stopped_.rank;
    result.last_lines = ranks_[static_cast<std::size_t>(cause->rank)].output.last_lines();
    print_report(result, *cause);
  }
  save_records();
  console_.clear_progress();
  const bool interrupted = flush() != 0;
  if (console_.write_error() != 0) {
    console_.line(Stream::kError, {},
                  fmt::format("reigen: output was lost: {}", base::errno_text(console_.write_error())));
    if (!interrupted) flush();
    if (result.exit_code == 0) result.exit_code = static_cast<int>(ExitCode::kIo);
  }
  return result;
}

// Sleeps until something happens, then reads the ranks' output and writes to the console.
void Supervisor::wait_round() {
  ++round_;
  struct Source {
    Rank* rank;
    Stream stream;
  };
  std::vector<pollfd> wanted = {{signals_.descriptor(), POLLIN, 0}, {console_.waits_for(), POLLOUT, 0}};
  std::vector<Source> sources;
  const std::size_t first = wanted.size();
  for (Rank& rank : ranks_) {
    for (const Stream stream : {Stream::kOutput, Stream::kError}) {
      const UniqueFd& pipe = rank.streams[static_cast<std::size_t>(stream)];
      if (!pipe || console_.is_full()) continue;
      wanted.push_back({pipe.get(), POLLIN, 0});
      sources.push_back({&rank, stream});
    }
  }
  for (const Rank& rank : ranks_) {
    if (!rank.ended) wanted.push_back({rank.process.handle.get(), POLLIN, 0});
  }
  if (::poll(wanted.data(), wanted.size(), poll_timeout()) <= 0) return;
  if (wanted[1].revents != 0) console_.write_some();
  for (std::size_t i = 0; i < sources.size(); ++i) {
    if (wanted[first + i].revents != 0) read_stream(*sources[i].rank, sources[i].stream);
  }
}

void Supervisor::read_stream(Rank& rank, Stream stream) {
  UniqueFd& pipe = rank.streams[static_cast<std::size_t>(stream)];
  if (!pipe) return;
  // If the reader of the launcher's output is gone, the rank's pipe is closed too, unless a log file still takes the
  // rank's output.
  if (console_.is_closed(stream) && !rank.output.has_log()) return close_stream(rank, stream);
  std::array<char, 65536> buffer;
  const ssize_t got = ::read(pipe.get(), buffer.data(), buffer.size());
  if (got > 0) {
    rank.output.feed(stream, {buffer.data(), static_cast<std::size_t>(got)});
    rank.output.save_log();
  } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
    close_stream(rank, stream);
  }
}

void Supervisor::close_stream(Rank& rank, Stream stream) {
  rank.streams[static_cast<std::size_t>(stream)].reset();
  rank.output.finish(stream);
  rank.output.save_log();
}

void Supervisor::handle_signals() {
  while (const int signal = signals_.next()) handle_signal(signal);
}

void Supervisor::handle_signal(int signal) {
  if (signal == SIGTSTP) return pause_with_ranks();
  if (signal == SIGCONT) return signal_all(SIGCONT);  // whoever stopped this process and the ranks expects all to go on
  if (!asks_to_end(signal)) return pass_on(signal);
  // A second Ctrl-C comes from a person who does not want to wait, so it kills the ranks. A second SIGTERM does not
  // kill them, because schedulers send SIGTERM more than once, and SIGKILL when they want the job to end at once.
  if (asked_to_stop_ && (signal == SIGTERM || Clock::now() - asked_at_ < kOneWish)) return;
  if (phase_ == Phase::kFailing || asked_to_stop_) return kill_all();
  asked_to_stop_ = true;
  asked_at_ = Clock::now();
  phase_ = Phase::kStopping;
  stop_signal_ = signal;
  kill_at_ = Clock::now() + options_.grace;
  end_at_.reset();
  signal_all(signal);
  console_.line(
      Stream::kError, {},
      fmt::format("reigen: {} passed on to {}; {:g} s to end, Ctrl-C{} to kill", signal_name(signal),
                  base::counted(static_cast<std::int64_t>(ranks_.size()), "rank"),
                  std::chrono::duration<double>(options_.grace).count(), signal == SIGINT ? " once more" : ""));
}

// Forwards signals whose meaning the program decides (SIGHUP: the terminal is gone; SIGUSR1 and the like: a scheduler's
// warning). They start no deadline: ranks that handle the signal may take as long as they need, and the signal ends the
// others.
void Supervisor::pass_on(int signal) {
  signal_all(signal);
  if (!passed_on_.insert(signal).second) return;
  console_.line(Stream::kError, {},
                fmt::format("reigen: {} passed on to {}", signal_name(signal),
                            base::counted(static_cast<std::int64_t>(ranks_.size()), "rank")));
}

// Ctrl-Z: the terminal's signal does not reach the ranks, which have process groups of their own, so the launcher stops
// them.
void Supervisor::pause_with_ranks() {
  signal_all(SIGSTOP);
  ::raise(SIGSTOP);
  signal_all(SIGCONT);
}

// Moves the deadlines by the time during which this process itself was stopped, because the ranks could not use this
// time to end.
void Supervisor::note_standstill() {
  const auto lost = standstill_.look();
  for (auto* const at : {&end_at_, &kill_at_}) {
    if (*at) **at += lost;
  }
}

void Supervisor::collect_endings() {
  std::vector<Ending> fresh;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    Rank& rank = ranks_[i];
    if (rank.ended) continue;
    // WNOWAIT leaves the process a zombie, so that the kernel does not give its pid, which is also the id of its
    // process group, to another process before the group is ended.
    siginfo_t info{};
    const int rc = ::waitid(P_PID, static_cast<id_t>(rank.process.pid), &info, WEXITED | WNOHANG | WNOWAIT);
    if (rc != 0 || info.si_pid == 0) continue;
    rank.ended = true;
    --running_;
    Ending ending{
        .rank = static_cast<int>(i), .pid = rank.process.pid, .round = round_, .consequence = ending_ || killed_};
    ending.run_time = std::chrono::duration_cast<milliseconds>(Clock::now() - rank.started);
    set_status(ending, info.si_code, info.si_status);
    fresh.push_back(ending);
    endings_.push_back(ending);
  }
  if (!fresh.empty()) react(fresh);
}

void Supervisor::react(const std::vector<Ending>& fresh) {
  if (phase_ == Phase::kStopping) return;
  for (const Ending& ending : fresh) {
    if (ending.ok() || ending.consequence) continue;
    const bool agreed = ending.code() == static_cast<int>(ExitCode::kStopped);
    if (phase_ == Phase::kRunning && (agreed || passed_on_.contains(ending.signal))) {
      // A rank that ended this way was asked to stop, perhaps by a signal that only this rank got (SIGUSR1). The other
      // ranks may still be saving their state.
      phase_ = Phase::kStopping;
      stop_signal_ = agreed ? SIGTERM : ending.signal;
      kill_at_ = Clock::now() + options_.grace;
      return;
    }
    if (phase_ == Phase::kRunning) {
      phase_ = Phase::kFailing;
      note_stopped_rank();
      end_at_ = Clock::now() + kCauseWindow;
    }
    if (!may_be_consequence(ending)) end_at_ = Clock::now();
  }
}

void Supervisor::check_deadlines() {
  const auto now = Clock::now();
  if (end_at_ && now >= *end_at_ && !ending_) begin_ending();
  if (kill_at_ && now >= *kill_at_ && !killed_) kill_all();
  if (now >= reap_at_) reap_orphans();
}

int Supervisor::poll_timeout() const {
  const auto now = Clock::now();
  auto until = reap_at_;
  if (end_at_ && !ending_) until = std::min(until, *end_at_);
  if (kill_at_ && !killed_) until = std::min(until, *kill_at_);
  for (const Rank& rank : ranks_) {
    if (!rank.ended && !rank.process.handle) until = std::min(until, now + kWithoutPidfd);
  }
  const auto left = std::chrono::ceil<milliseconds>(until - now).count();
  return static_cast<int>(std::clamp<long long>(left, 0, 10000));
}

void Supervisor::begin_ending() {
  ending_ = true;
  kill_at_ = Clock::now() + options_.failure_grace;
  signal_all(SIGTERM);
}

void Supervisor::kill_all() {
  killed_ = true;
  signal_all(SIGKILL);
}

// Sends the signal to each rank's whole process group, even if the group's leader has ended, because the leader may be
// a shell whose children still run.
void Supervisor::signal_all(int signal) const {
  for (const Rank& rank : ranks_) {
    if (!rank.gone) ::kill(-rank.process.pid, signal);
  }
}

void Supervisor::note_stopped_rank() {
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (ranks_[i].ended) continue;
    const pid_t pid = base::find_stopped(ranks_[i].process.pid);
    if (pid == 0) continue;
    stopped_ = {static_cast<int>(i), pid};
    return;
  }
}

// Reaps ended children of this process that are in a rank's process group but are no ranks. Only this process can wait
// for them, so the kernel cannot give their pids to other processes between getpgid() and waitpid().
void Supervisor::reap_orphans() {
  reap_at_ = Clock::now() + kReapInterval;
  for (const pid_t child : base::children_of(::getpid())) {
    const auto leads = [&](const Rank& rank) { return rank.process.pid == child; };
    const auto contains = [&](const Rank& rank) { return ::getpgid(child) == rank.process.pid; };
    if (std::any_of(ranks_.begin(), ranks_.end(), leads) || std::none_of(ranks_.begin(), ranks_.end(), contains))
      continue;
    ::waitpid(child, nullptr, WNOHANG);
  }
}

// Reaps the ended processes of the rank's process group and kills the group's other processes. Returns true when no
// process of the group is left.
bool Supervisor::end_group(Rank& rank) {
  if (rank.gone) return true;
  while (::waitpid(-rank.process.pid, nullptr, WNOHANG) > 0) {
  }
  rank.gone = ::kill(-rank.process.pid, SIGKILL) != 0;
  return rank.gone;
}

// Kills the processes that the ranks left behind: those in their process groups, and those that moved to other groups.
// A process that moved has become a child of this process, and has the job's identity in its environment. Afterwards no
// process of the job is left, not even as a zombie, unless kDrainLimit passes first.
void Supervisor::end_leftovers() {
  signal_all(SIGKILL);
  const auto limit = Clock::now() + kDrainLimit;
  std::vector<pid_t> moved;
  for (;;) {
    bool done = true;
    for (Rank& rank : ranks_) done = end_group(rank) && done;
    for (const pid_t child : base::children_of(::getpid())) {
      if (child == guardian_.pid() || !has_variable(child, identity_)) continue;
      ::kill(child, SIGKILL);
      moved.push_back(child);
    }
    std::erase_if(moved, [](pid_t pid) { return ::waitpid(pid, nullptr, WNOHANG) != 0; });
    if ((done && moved.empty()) || Clock::now() >= limit) return;
    ::usleep(200);
  }
}

// Reads the last bytes from the ranks' pipes.
void Supervisor::drain() {
  const auto is_open = [](const Rank& rank) { return rank.streams[0] || rank.streams[1]; };
  auto limit = Clock::now() + kDrainLimit;
  while (std::any_of(ranks_.begin(), ranks_.end(), is_open) && Clock::now() < limit) {
    if (console_.is_full()) {
      if (const int signal = flush()) handle_signal(signal);
      limit = Clock::now() + kDrainLimit;
    }
    reap_at_ = Clock::now() + milliseconds(10);
    wait_round();
    handle_signals();
  }
  for (Rank& rank : ranks_) {
    close_stream(rank, Stream::kOutput);
    close_stream(rank, Stream::kError);
  }
}

pid_t Supervisor::pid_of(int rank) const { return ranks_[static_cast<std::size_t>(rank)].process.pid; }

// Writes all queued output, and waits for its reader as any program does. During the wait Ctrl-Z stops this process. A
// request to end, or SIGHUP from the terminal, ends the wait. Other signals are dropped, because they are for the
// ranks, and no rank is left.
int Supervisor::flush() {
  while (!console_.is_empty()) {
    std::array<pollfd, 2> wanted = {{{signals_.descriptor(), POLLIN, 0}, {console_.waits_for(), POLLOUT, 0}}};
    if (::poll(wanted.data(), wanted.size(), -1) < 0) continue;
    while (const int signal = signals_.next()) {
      if (asks_to_end(signal) || signal == SIGHUP) return signal;
      if (signal == SIGTSTP) pause_with_ranks();
    }
    if (wanted[1].revents != 0) console_.write_some();
  }
  return 0;
}

// A failure to write the file is only reported, because the job is over.
void Supervisor::save_records() {
  if (options_.flight_file.empty()) return;
  try {
    records_.save(options_.flight_file);
  } catch (const Error& error) {
    console_.line(Stream::kError, {}, fmt::format("reigen: the flight record is lost: {}", error.what()));
  }
}

void Supervisor::print_report(const JobResult& result, const Ending& cause) {
  const bool just_shown = ranks_[static_cast<std::size_t>(cause.rank)].output.last_lines_stand_last();
  const std::string lines = options_.ranks > 1 && !just_shown ? result.last_lines : std::string();
  std::string text = failure_report(cause, options_.ranks, stopped_, lines);
  // The report needs the flight records if no rank's own error says what happened (a signal, a stopped rank), or if the
  // ranks have not all completed the same calls.
  if (cause.signal != 0 || stopped_.rank >= 0 || !records_.all_agree()) text += records_.report();
  text.pop_back();
  console_.line(Stream::kError, {}, text);
}

}  // namespace reigen::launch
