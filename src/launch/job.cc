#include "reigen/launch/job.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/check.h"
#include "base/environment.h"
#include "base/log.h"
#include "base/machine/cores.h"
#include "launch/console.h"
#include "launch/gpus/shared_gpus.h"
#include "launch/ranks/flight_records.h"
#include "launch/ranks/guardian.h"
#include "launch/ranks/process.h"
#include "launch/ranks/program.h"
#include "launch/ranks/rank_output.h"
#include "launch/ranks/resources.h"
#include "launch/ranks/signals.h"
#include "launch/ranks/supervisor.h"
#include "net/address.h"
#include "net/interfaces.h"
#include "reigen/base/bytes.h"
#include "reigen/base/error.h"
#include "reigen/store/tcp_store.h"

namespace reigen::launch {

namespace {

constexpr int kMaxRanks = 65536;
constexpr std::size_t kDefaultMemory = 64 * kMiB;

void check_options(const JobOptions& options) {
  if (options.command.empty()) throw InvalidArgument("no program given", ExitCode::kUsage);
  if (options.ranks < 1 || options.ranks > kMaxRanks) {
    throw InvalidArgument({.what = "the number of ranks is out of range",
                           .got = fmt::format("{}", options.ranks),
                           .expected = fmt::format("1 to {}", kMaxRanks),
                           .fix = "-n N with N at least 1"});
  }
  if (options.prefix != "auto" && options.prefix != "always" && options.prefix != "none") {
    throw InvalidArgument({.what = "unknown prefix", .got = options.prefix, .expected = "auto, always or none"});
  }
  if (options.threads_per_rank < 0) {
    throw InvalidArgument({.what = "the number of threads per rank is out of range",
                           .got = fmt::format("{}", options.threads_per_rank),
                           .expected = "1 or more, or 0 for cores / ranks"});
  }
  if (options.grace.count() < 0 || options.failure_grace.count() < 0) {
    throw InvalidArgument(
        {.what = "the time of grace is out of range",
         .got =
             fmt::format("{} s", std::chrono::duration<double>(std::min(options.grace, options.failure_grace)).count()),
         .expected = "0 or more seconds"});
  }
}

// 128 random bits: no other job has the same identity, and nobody can guess it.
std::string random_identity() {
  std::array<std::uint8_t, 16> bytes{};
  REIGEN_SYSCALL(::getrandom(bytes.data(), bytes.size(), 0));
  std::string text;
  for (const std::uint8_t byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

// Reserves the port for MASTER_PORT, which the program may bind itself. The port is held until just before the ranks
// start; for some time after its release the kernel gives it to no process that asks for an arbitrary port.
class ReservedPort {
 public:
  explicit ReservedPort(const net::Address& any_port)
      : socket_(REIGEN_SYSCALL(::socket(any_port.family(), SOCK_STREAM | SOCK_CLOEXEC, 0))) {
    REIGEN_SYSCALL(::bind(socket_.get(), any_port.get(), any_port.size()));
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    REIGEN_SYSCALL(::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&address), &size));
    port_ = net::Address(reinterpret_cast<const sockaddr*>(&address), size).port();
  }
  std::uint16_t port() const { return port_; }
  void release() { socket_.reset(); }

 private:
  UniqueFd socket_;
  std::uint16_t port_ = 0;
};

// Descriptors 0, 1 and 2 must be in use; otherwise a pipe of the launcher could get one of these numbers and be mixed
// up with a rank's stdin, stdout or stderr.
void open_standard_descriptors() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0) REIGEN_SYSCALL(::open("/dev/null", O_RDWR));
  }
}

// Processes whose parent, a rank, has ended become children of this process instead of init's, so that the launcher can
// find and reap them.
class SubreaperScope {
 public:
  SubreaperScope() {
    ::prctl(PR_GET_CHILD_SUBREAPER, &previous_);
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  }
  ~SubreaperScope() { ::prctl(PR_SET_CHILD_SUBREAPER, previous_); }
  SubreaperScope(const SubreaperScope&) = delete;  // its destructor must run once
  SubreaperScope& operator=(const SubreaperScope&) = delete;

 private:
  int previous_ = 0;
};

Variables inherited_variables() {
  Variables variables;
  for (const auto& [name, value] : base::all_environment()) variables[name] = value;
  return variables;
}

int threads_of_rank(const JobOptions& options) {
  if (options.threads_per_rank > 0) return options.threads_per_rank;
  const int wanted = base::threads_by_environment();
  return wanted > 0 ? wanted : base::share_cores(options.ranks).threads;
}

// The variables that all ranks have in common.
Variables job_variables(const JobOptions& options, const std::string& job, const store::TcpStoreOptions& store,
                        std::uint16_t master_port, const Console& console) {
  Variables variables = inherited_variables();
  const std::string ranks = std::to_string(options.ranks);
  variables["WORLD_SIZE"] = ranks;
  variables["LOCAL_WORLD_SIZE"] = ranks;
  variables["GROUP_RANK"] = "0";
  variables["GROUP_WORLD_SIZE"] = "1";
  variables["ROLE_NAME"] = "default";
  variables["ROLE_WORLD_SIZE"] = ranks;
  variables["MASTER_ADDR"] = store.host;
  variables["MASTER_PORT"] = std::to_string(master_port);
  variables["TORCHELASTIC_RESTART_COUNT"] = "0";
  variables["TORCHELASTIC_MAX_RESTARTS"] = "0";
  variables["TORCHELASTIC_RUN_ID"] = job;
  variables.erase("TORCHELASTIC_USE_AGENT_STORE");  // the agent of an outer torchrun does not serve this job
  variables["REIGEN_STORE"] = "tcp://" + net::endpoint_text(store.host, store.port);
  variables["REIGEN_JOB"] = job;
  variables.erase("REIGEN_FLIGHT");
  variables.erase("REIGEN_CONSOLE");
  variables.erase("REIGEN_COMMAND");
  if (console.is_terminal()) {  // the width that remains for a rank's text after its prefix
    const int columns = console.columns() - static_cast<int>(prefix_of_rank(options, options.ranks - 1).size());
    variables["REIGEN_CONSOLE"] = std::to_string(std::max(columns, 1));
  }
  if (options.threads_per_rank > 0 || variables["OMP_NUM_THREADS"].empty()) {
    variables["OMP_NUM_THREADS"] = std::to_string(threads_of_rank(options));
  }
  variables.try_emplace("PYTHONUNBUFFERED", "1");
  for (const auto& [name, value] : options.environment) variables[name] = value;
  return variables;
}

std::vector<std::string> rank_variables(Variables variables, int rank, int record) {
  for (const char* name : {"RANK", "LOCAL_RANK", "ROLE_RANK"}) variables[name] = std::to_string(rank);
  if (record >= 0) variables["REIGEN_FLIGHT"] = std::to_string(record);
  return entries_of(variables);
}

// Stores the ranks' process ids, so that ranks that wait for another rank to join can see whether it was stopped.
void tell_processes(const Supervisor& supervisor, int ranks, const store::TcpStoreOptions& address) {
  const auto client = store::connect_tcp_store(address);
  client->set("process/count", std::to_string(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    client->set(fmt::format("process/{}", rank), std::to_string(supervisor.pid_of(rank)));
  }
}

}  // namespace

JobResult run_job(const JobOptions& options) {
  base::check_log_variable();
  check_options(options);
  const std::string program = find_program(options.command.front());
  check_memory(options.ranks, options.memory_per_rank > 0 ? options.memory_per_rank : kDefaultMemory,
               available_memory());
  open_standard_descriptors();
  const rlimit open_files = check_limits(options.ranks);
  if (!options.log_dir.empty()) make_log_dir(options.log_dir);
  const std::string shortage = base::describe_shortage(base::share_cores(options.ranks), threads_of_rank(options));
  if (!shortage.empty()) base::log_warning("{}", shortage);

  // The guardian is forked first, while this process has no threads. Signals are blocked next, before the store's
  // thread starts, so that the store's thread inherits the mask and receives none of these signals.
  const std::string job = random_identity();
  const std::string identity = "REIGEN_JOB=" + job;
  Guardian guardian(identity);
  SignalScope signals;
  Variables of_ranks = inherited_variables();
  for (const auto& [name, value] : options.environment) of_ranks[name] = value;
  SharedGpus gpus(options.share_gpus, options.ranks, of_ranks, identity);
  const SubreaperScope subreaper;
  const std::string here = net::loopback_address();
  const store::TcpStoreServer store({.host = here, .port = 0, .job = job});
  const store::TcpStoreOptions address{.host = here, .port = store.port(), .job = job};
  ReservedPort master(net::resolve(here, 0).front());
  Console console(STDOUT_FILENO, STDERR_FILENO);
  Variables variables = job_variables(options, job, address, master.port(), console);
  for (const auto& [name, value] : gpus.variables()) variables[name] = value;
  const FlightRecords records(options.ranks, job);
  if (!options.flight_file.empty()) records.save(options.flight_file);  // a path that cannot be written is reported now
  Supervisor supervisor(options, {identity, open_files, signals, guardian, console, records});
  master.release();
  for (int rank = 0; rank < options.ranks; ++rank) {
    supervisor.start(program, rank_variables(variables, rank, records.descriptor(rank)));
  }
  supervisor.check_started();
  if (options.ranks > 1) tell_processes(supervisor, options.ranks, address);
  JobResult result = supervisor.watch();
  gpus.end();
  return result;
}

}  // namespace reigen::launch
