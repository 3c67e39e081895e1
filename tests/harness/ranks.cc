#include "harness/ranks.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <thread>

#include "reigen/base/unique_fd.h"
#include "reigen/store/tcp_store.h"

namespace reigen::testing {

namespace {

constexpr const char* kRankVariable = "REIGEN_TEST_RANK";
constexpr const char* kCallVariable = "REIGEN_TEST_CALL";
constexpr const char* kPortVariable = "REIGEN_TEST_PORT";
constexpr const char* kBackendVariable = "REIGEN_TEST_BACKEND";  // the backend to use for "auto"
constexpr const char* kJob = "reigen-test";

// The number of this call of run_ranks within the running test.
int next_call() {
  static std::string test;
  static int calls = 0;
  const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
  const std::string name = std::string(info->test_suite_name()) + "." + info->name();
  if (name != test) {
    test = name;
    calls = 0;
  }
  return calls++;
}

std::string current_filter() {
  const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
  return std::string("--gtest_filter=") + info->test_suite_name() + "." + info->name();
}

struct Process {
  pid_t pid = -1;
  UniqueFd output;
  RankEnd end;
  bool running = true;
};

// mpirun's ranks find their number in a variable of the launcher.
int rank_from_environment() {
  for (const char* name : {kRankVariable, "OMPI_COMM_WORLD_RANK", "PMI_RANK"}) {
    if (const char* text = std::getenv(name)) return std::atoi(text);
  }
  return 0;
}

// Starts this program with a filter for the running test, by `launcher` (empty: directly).
Process start_process(const std::vector<std::string>& launcher, int rank, int call, int port) {
  int pipe_fds[2];
  if (::pipe2(pipe_fds, O_CLOEXEC) != 0) std::abort();
  UniqueFd reader(pipe_fds[0]);
  UniqueFd writer(pipe_fds[1]);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, writer.get(), STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, writer.get(), STDERR_FILENO);
  std::vector<std::string> variables;
  for (char** v = environ; *v != nullptr; ++v) variables.emplace_back(*v);
  if (rank >= 0) variables.push_back(std::string(kRankVariable) + "=" + std::to_string(rank));
  variables.push_back(std::string(kCallVariable) + "=" + std::to_string(call));
  variables.push_back(std::string(kPortVariable) + "=" + std::to_string(port));
  std::vector<char*> environment;
  for (auto& v : variables) environment.push_back(v.data());
  environment.push_back(nullptr);
  std::vector<std::string> command = launcher;
  command.push_back(std::filesystem::read_symlink("/proc/self/exe").string());
  command.push_back(current_filter());
  std::vector<char*> arguments;
  for (auto& word : command) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  Process process;
  if (::posix_spawn(&process.pid, arguments[0], &actions, nullptr, arguments.data(), environment.data()) != 0) {
    std::abort();
  }
  ::posix_spawn_file_actions_destroy(&actions);
  ::fcntl(reader.get(), F_SETFL, O_NONBLOCK);
  process.output = std::move(reader);
  return process;
}

void read_output(Process& process) {
  char buffer[4096];
  for (ssize_t n; (n = ::read(process.output.get(), buffer, sizeof(buffer))) > 0;)
    process.end.output.append(buffer, static_cast<std::size_t>(n));
}

void reap(Process& process) {
  int status = 0;
  if (!process.running || ::waitpid(process.pid, &status, WNOHANG) != process.pid) return;
  process.running = false;
  read_output(process);
  process.end.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
  process.end.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

void kill_all(std::vector<Process>& processes) {
  for (auto& process : processes) {
    if (!process.running) continue;
    ::kill(process.pid, SIGKILL);
    ::waitpid(process.pid, nullptr, 0);
    process.running = false;
    process.end.signal = SIGKILL;
    read_output(process);
  }
}

// Waits for all processes. A rank whose fault is to stop is killed when the others are done.
bool wait_for_all(std::vector<Process>& processes, const RankOptions& options) {
  const Deadline deadline = Deadline::after(options.limit);
  for (;;) {
    bool others_running = false;
    for (std::size_t i = 0; i < processes.size(); ++i) {
      read_output(processes[i]);
      reap(processes[i]);
      const bool stopped = options.fault.kind == Fault::Kind::kStop && options.fault.rank == static_cast<int>(i);
      if (processes[i].running && !stopped) others_running = true;
    }
    if (!others_running || deadline.expired()) {
      kill_all(processes);
      return !others_running;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

[[noreturn]] void run_here(const RankOptions& options, const RankBody& body) {
  const int rank = rank_from_environment();
  const int port = std::atoi(std::getenv(kPortVariable));
  int code = 0;
  try {
    auto store = store::connect_tcp_store({.port = static_cast<std::uint16_t>(port), .job = kJob});
    Rank self(rank, options, std::move(store));
    body(self);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    code = 1;
  }
  if (::testing::Test::HasFailure()) code = 1;
  std::fflush(nullptr);
  if (options.kind == RankKind::kMpi) std::exit(code);  // MPI must be finalized
  ::_exit(code);                                        // skips the test program's exit handlers
}

// Waits for mpirun, and ends it after the limit. mpirun then ends its ranks.
RankEnd wait_for_mpirun(Process& process, const RankOptions& options) {
  Deadline deadline = Deadline::after(options.limit);
  for (bool told = false; process.running; std::this_thread::sleep_for(std::chrono::milliseconds(2))) {
    read_output(process);
    reap(process);
    if (!process.running || !deadline.expired()) continue;
    ADD_FAILURE() << "mpirun did not end within " << options.limit.count() << " s";
    ::kill(process.pid, told ? SIGKILL : SIGTERM);
    told = true;
    deadline = Deadline::after(std::chrono::seconds(5));
  }
  return process.end;
}

std::vector<RankEnd> run_under_mpi(const RankOptions& options, int call) {
  store::TcpStoreServer server({.job = kJob});
  std::vector<std::string> launcher;
  std::istringstream words(REIGEN_TEST_MPIRUN);
  for (std::string word; std::getline(words, word, '|');) launcher.push_back(word);
  launcher.insert(launcher.end(), {"-n", std::to_string(options.ranks)});
  Process mpirun = start_process(launcher, -1, call, server.port());
  const RankEnd end = wait_for_mpirun(mpirun, options);
  if (options.fault.kind == Fault::Kind::kNone && (end.exit_code != 0 || end.signal != 0)) {
    ADD_FAILURE() << "mpirun ended with exit code " << end.exit_code << ", signal " << end.signal << "\n" << end.output;
  }
  return {end};
}

std::vector<RankEnd> run_processes(const RankOptions& options, const RankBody& body) {
  const int call = next_call();
  if (const char* wanted = std::getenv(kCallVariable)) {
    if (std::atoi(wanted) == call) run_here(options, body);
    return std::vector<RankEnd>(static_cast<std::size_t>(options.ranks));
  }
  if (options.kind == RankKind::kMpi) return run_under_mpi(options, call);
  store::TcpStoreServer server({.job = kJob});
  std::vector<Process> processes;
  for (int r = 0; r < options.ranks; ++r) processes.push_back(start_process({}, r, call, server.port()));
  const bool in_time = wait_for_all(processes, options);
  std::vector<RankEnd> ends;
  for (std::size_t i = 0; i < processes.size(); ++i) {
    const auto& end = processes[i].end;
    const bool faulty = options.fault.kind != Fault::Kind::kNone && options.fault.kind != Fault::Kind::kSleep &&
                        options.fault.rank == static_cast<int>(i);
    if (!faulty && (end.exit_code != 0 || end.signal != 0)) {
      ADD_FAILURE() << "rank " << i << " ended with exit code " << end.exit_code << ", signal " << end.signal << "\n"
                    << end.output;
    }
    ends.push_back(end);
  }
  if (!in_time) ADD_FAILURE() << "the ranks did not end within " << options.limit.count() << " s";
  return ends;
}

std::vector<RankEnd> run_as_threads(const RankOptions& options, const RankBody& body) {
  const auto store = store::make_memory_store();
  std::vector<RankEnd> ends(static_cast<std::size_t>(options.ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < options.ranks; ++r) {
    threads.emplace_back([&, r] {
      try {
        Rank self(r, options, store);
        body(self);
      } catch (const std::exception& error) {
        ends[static_cast<std::size_t>(r)] = {1, 0, error.what()};
        if (options.fault.rank != r) ADD_FAILURE() << "rank " << r << " threw: " << error.what();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return ends;
}

}  // namespace

Rank::Rank(int rank, const RankOptions& options, std::shared_ptr<store::Store> store)
    : rank_(rank), options_(options), store_(std::move(store)) {
  if (options_.prepare != nullptr) options_.prepare(rank);
}

Communicator& Rank::world() {
  if (!world_) world_ = std::make_unique<Communicator>(make_group("world"));
  return *world_;
}

Communicator Rank::make_group(const std::string& name) {
  const char* usual = std::getenv(kBackendVariable);
  comm::GroupOptions group{.rank = rank_,
                           .size = options_.ranks,
                           .store = store_,
                           .name = name,
                           .backend = usual != nullptr && options_.backend == "auto" ? usual : options_.backend};
  if (options_.machines > 0) group.machine_id = std::to_string(rank_ % options_.machines);
  if (options_.ranks_a_machine > 0) group.machine_id = std::to_string(rank_ / options_.ranks_a_machine);
  if (group.backend == "hierarchical" && group.machine_id.empty()) group.machine_id = std::to_string(rank_ / 2);
  group.device = options_.device;
  group.engine = options_.engine;
  group.network = options_.network;
  group.algorithms = options_.algorithms;
  group.segments = options_.segments;
  group.connections = options_.connections;
  group.timeout = options_.timeout;
  group.heartbeat_timeout = options_.heartbeat_timeout;
  group.report_after = options_.report_after;
  return Communicator(group);
}

void meet(Rank& r, const std::string& where) {
  r.store().add(where, 1);
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  while (r.store().try_get(where) != std::to_string(r.size())) {
    if (deadline.expired()) throw std::runtime_error("not all ranks came to \"" + where + "\" within 20 s");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void Rank::step(int number) const {
  const Fault& fault = options_.fault;
  if (fault.rank != rank_ || fault.step != number) return;
  switch (fault.kind) {
    case Fault::Kind::kKill: ::raise(SIGKILL); break;
    case Fault::Kind::kStop: ::raise(SIGSTOP); break;
    case Fault::Kind::kExit: ::_exit(fault.code);
    case Fault::Kind::kThrow: throw std::runtime_error("planned failure");
    case Fault::Kind::kSleep: std::this_thread::sleep_for(fault.pause); break;
    case Fault::Kind::kNone: break;
  }
}

std::vector<RankEnd> run_ranks(const RankOptions& options, const RankBody& body) {
  return options.kind == RankKind::kThreads ? run_as_threads(options, body) : run_processes(options, body);
}

}  // namespace reigen::testing
