#include "reigen/launch/environment.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <limits>
#include <optional>

#include "base/check.h"
#include "base/environment.h"
#include "base/hash.h"
#include "base/machine/host_name.h"
#include "base/machine/slurm.h"
#include "base/text.h"
#include "base/variables.h"
#include "launch/meet/listening.h"
#include "launch/meet/node_list.h"
#include "reigen/base/error.h"

namespace reigen::launch {

namespace {

using base::get_environment;

constexpr int kMaxWorld = 1 << 24;

[[noreturn]] void refuse(const std::string& source, const std::string& what, const std::string& got,
                         const std::string& expected, const std::string& fix = {}) {
  throw InvalidArgument({.what = fmt::format("[{}] {}", source, what), .got = got, .expected = expected, .fix = fix});
}

// Reads numbers from the environment. Every error names the launcher, the variable and its value.
class Reader {
 public:
  explicit Reader(std::string source) : source_(std::move(source)) {}

  std::optional<int> number(const char* name, int low, int high) const {
    const auto text = get_environment(name);
    if (!text) return std::nullopt;
    const auto value = base::parse<int>(*text);
    if (!value) {
      refuse(source_, fmt::format("{} is not a number", name), fmt::format("{}={}", name, *text), "a whole number");
    }
    if (*value < low || *value > high) {
      refuse(source_, fmt::format("{} is out of range", name), fmt::format("{}={}", name, *text),
             fmt::format("{} to {}", low, high));
    }
    return value;
  }

  int needed(const char* name, int low, int high) const {
    const auto value = number(name, low, high);
    if (!value) {
      refuse(source_, fmt::format("{} is not set", name), "nothing", fmt::format("a number from {} to {}", low, high),
             "start the program with reigen run, torchrun, mpirun or srun, which set all variables of a job");
    }
    return *value;
  }

  std::string needed_text(const char* name, const std::string& fix) const {
    const auto text = get_environment(name);
    if (!text) refuse(source_, fmt::format("{} is not set", name), "nothing", "a value", fix);
    return *text;
  }

 private:
  std::string source_;
};

// Returns the same port on every node of a job, and usually a different port for a different job or user.
std::uint16_t port_of_job(const std::string& job) {
  const std::uint64_t hash = base::fnv1a(fmt::format("{}/{}", job, ::geteuid()));
  return static_cast<std::uint16_t>(20000 + hash % 9000);
}

// The port that the user gave. If a service is called master, Kubernetes sets MASTER_PORT=tcp://10.0.0.1:80 in every
// pod; such a value is no port of the user.
std::optional<std::uint16_t> given_port(const Reader& reader) {
  const auto text = get_environment("MASTER_PORT");
  if (text && base::is_kubernetes_service("MASTER_PORT", *text)) return std::nullopt;
  const auto port = reader.number("MASTER_PORT", 1, 65535);
  return port ? std::optional(static_cast<std::uint16_t>(*port)) : std::nullopt;
}

// Slurm may reserve ports for this step (srun --resv-ports), written as "12000-12001". Returns the first of these
// ports.
std::optional<std::uint16_t> reserved_port() {
  const auto text = get_environment("SLURM_STEP_RESV_PORTS");
  std::uint16_t port = 0;
  if (!text || std::from_chars(text->data(), text->data() + text->size(), port).ec != std::errc() || port == 0) {
    return std::nullopt;
  }
  return port;
}

void set_ranks(Environment& e, const Reader& reader, const char* rank, const char* size) {
  e.world_size = reader.needed(size, 1, kMaxWorld);
  e.rank = reader.needed(rank, 0, e.world_size - 1);
}

// The node's index, for launchers that do not give it. Assumes that each node has consecutive ranks.
int node_of(const Environment& e) { return e.rank / e.local_world_size; }

void set_torch_ranks(Environment& e, const Reader& reader) {
  set_ranks(e, reader, "RANK", "WORLD_SIZE");
  // LOCAL_RANK and LOCAL_WORLD_SIZE may be missing, because a user who sets RANK and WORLD_SIZE by hand often leaves
  // them out. A MASTER_ADDR that names this machine does not mean that all ranks are here: on rank 0 of a job on many
  // machines, MASTER_ADDR names this machine too.
  const auto local_size = reader.number("LOCAL_WORLD_SIZE", 1, e.world_size);
  const bool one_host = e.world_size == 1 || means_one_host(get_environment("MASTER_ADDR").value_or(""));
  e.local_world_size = local_size.value_or(one_host ? e.world_size : 1);
  const auto local_rank = reader.number("LOCAL_RANK", 0, (local_size ? e.local_world_size : e.world_size) - 1);
  e.local_world_size = std::max(e.local_world_size, local_rank.value_or(0) + 1);
  e.local_rank = local_rank.value_or(e.rank % e.local_world_size);
  e.knows_local_rank = local_rank || local_size || one_host;
  e.node_rank = reader.number("GROUP_RANK", 0, e.world_size - 1).value_or(node_of(e));
  e.one_host = local_size && e.local_world_size == e.world_size;
}

Environment from_reigen() {
  Environment e;
  e.source = "reigen";
  const Reader reader(e.source);
  set_torch_ranks(e, reader);
  e.store = *base::environment::store();
  e.job = reader.needed_text("REIGEN_JOB", "start the program with reigen run, which sets it");
  e.master_address = get_environment("MASTER_ADDR").value_or("127.0.0.1");
  e.one_host = e.local_world_size == e.world_size;
  return e;
}

// If the user sets RANK and WORLD_SIZE inside of mpirun, they must agree with mpirun's own variables.
void check_against_mpi(const Environment& e) {
  for (const auto& [rank, size] :
       {std::pair{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, std::pair{"PMI_RANK", "PMI_SIZE"}}) {
    const Reader reader(e.source);
    const auto other_size = reader.number(size, 1, kMaxWorld);
    const auto other_rank = reader.number(rank, 0, kMaxWorld);
    if (!other_size || !other_rank || (*other_size == e.world_size && *other_rank == e.rank)) continue;
    refuse(e.source, "two launchers disagree", fmt::format("RANK={} WORLD_SIZE={}", e.rank, e.world_size),
           fmt::format("{}={} {}={}", rank, *other_rank, size, *other_size),
           "unset RANK and WORLD_SIZE, mpirun says it all");
  }
}

Environment from_torchrun() {
  Environment e;
  e.source = "torchrun";
  const Reader reader(e.source);
  set_torch_ranks(e, reader);
  const auto run = get_environment("TORCHELASTIC_RUN_ID");
  if (!run) check_against_mpi(e);
  if (e.world_size == 1) return e;
  e.master_address = reader.needed_text("MASTER_ADDR", "the host of rank 0; torchrun sets it");
  const auto port = given_port(reader);
  if (!port) {
    refuse(
        e.source, "MASTER_PORT is not set", get_environment("MASTER_PORT").value_or("nothing"),
        "a number from 1 to 65535",
        "the port at which rank 0 serves the store, the same on all ranks; reigen run, torchrun, mpirun and srun need "
        "none");
  }
  // The address is no part of the identity, because the launcher may give the ranks different names of the same
  // machine.
  e.job = fmt::format("torchrun:{}:{}", run.value_or(""), *port);
  e.master_port = *port;
  e.port_origin = "MASTER_PORT";
  e.agent_store = get_environment("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True";
  return e;
}

// Sets address, port and identity of a job whose launcher gives no address.
void set_meeting_point(Environment& e, const Reader& reader, const std::string& job, const std::string& first_host,
                       bool one_host) {
  e.job = job;
  e.one_host = one_host;
  if (e.world_size == 1) return;
  e.on_first_node =
      !first_host.empty() && get_environment("SLURMD_NODENAME") == first_host && !get_environment("MASTER_ADDR");
  if (const auto address = get_environment("MASTER_ADDR")) {
    e.master_address = *address;
  } else if (one_host) {
    e.master_address = "127.0.0.1";
  } else if (!first_host.empty()) {
    e.master_address = first_host;
  } else {
    e.master_address = reader.needed_text(
        "MASTER_ADDR", "set it to the host of rank 0 (mpirun -x MASTER_ADDR=host, mpiexec -genv MASTER_ADDR host)");
  }
  if (const auto port = given_port(reader)) {
    e.master_port = *port;
    e.port_origin = "MASTER_PORT";
  } else if (!one_host) {
    const auto reserved = reserved_port();
    e.master_port = reserved.value_or(port_of_job(job));
    e.port_origin = reserved ? "SLURM_STEP_RESV_PORTS" : "which follows from the job's number";
  }
}

std::string first_slurm_host() {
  for (const char* name : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"}) {
    if (const auto list = get_environment(name)) return expand_node_list(name, *list).front();
  }
  return {};
}

Environment from_open_mpi() {
  Environment e;
  e.source = "Open MPI";
  const Reader reader(e.source);
  set_ranks(e, reader, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
  e.local_world_size = reader.needed("OMPI_COMM_WORLD_LOCAL_SIZE", 1, e.world_size);
  e.local_rank = reader.needed("OMPI_COMM_WORLD_LOCAL_RANK", 0, e.local_world_size - 1);
  e.knows_local_rank = true;
  e.node_rank = node_of(e);
  std::string job;
  for (const char* name : {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_hnp_uri"}) {
    if (const auto value = get_environment(name)) job += ":" + *value;
  }
  const bool one_host = e.local_world_size == e.world_size;
  if (job.empty() && one_host) job = fmt::format(":parent {}", ::getppid());  // the daemon that started all ranks
  set_meeting_point(e, reader, "openmpi" + job, first_slurm_host(), one_host);
  return e;
}

// A text that identifies the job on this host. Hydra, MPICH's launcher, gives the processes of a job no common name.
// But on one host all of them have the same Hydra proxy process as an ancestor. With other PMI launchers the parent
// process identifies the job.
std::string hydra_proxy() {
  const std::string parent_pid = fmt::format("parent {}", ::getppid());
  pid_t pid = ::getpid();
  while (pid > 1) {
    std::ifstream file(fmt::format("/proc/{}/stat", pid));
    std::string text;
    std::getline(file, text, '\0');
    const std::size_t open = text.find('(');
    const std::size_t close = text.rfind(')');
    if (open == std::string::npos || close == std::string::npos || close + 4 > text.size()) return parent_pid;
    if (text.substr(open + 1, close - open - 1).starts_with("hydra_pmi")) return fmt::format("{}", pid);
    const char* parent = text.data() + close + 4;  // the text from `close` on is ") S 123"
    if (std::from_chars(parent, text.data() + text.size(), pid).ec != std::errc()) return parent_pid;
  }
  return parent_pid;
}

Environment from_mpich() {
  Environment e;
  e.source = "MPICH";
  const Reader reader(e.source);
  set_ranks(e, reader, "PMI_RANK", "PMI_SIZE");
  if (e.world_size > 1) {
    e.local_world_size = reader.needed("MPI_LOCALNRANKS", 1, e.world_size);
    e.local_rank = reader.needed("MPI_LOCALRANKID", 0, e.local_world_size - 1);
  }
  e.knows_local_rank = true;
  e.node_rank = node_of(e);
  const bool one_host = e.local_world_size == e.world_size;
  const std::string job = one_host ? fmt::format("mpich:{}:{}", base::host_name(), hydra_proxy())
                                   : fmt::format("mpich:{}:{}:{}", get_environment("SLURM_JOB_ID").value_or(""),
                                                 get_environment("MASTER_ADDR").value_or(first_slurm_host()),
                                                 get_environment("MASTER_PORT").value_or(""));
  set_meeting_point(e, reader, job, first_slurm_host(), one_host);
  return e;
}

// True inside a step that srun started.
bool in_slurm_step() {
  const auto step = get_environment("SLURM_STEP_ID");
  if (!step || !get_environment("SLURM_PROCID")) return false;
  if (!base::parse<std::uint64_t>(*step)) {
    refuse("Slurm", "SLURM_STEP_ID is not a number", "SLURM_STEP_ID=" + *step, "a whole number");
  }
  return base::in_slurm_step();
}

Environment from_slurm() {
  Environment e;
  e.source = "Slurm";
  const Reader reader(e.source);
  const bool step_size = get_environment("SLURM_STEP_NUM_TASKS").has_value();
  set_ranks(e, reader, "SLURM_PROCID", step_size ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS");
  const char* nodes_name = get_environment("SLURM_STEP_NUM_NODES") ? "SLURM_STEP_NUM_NODES" : "SLURM_NNODES";
  const int nodes = reader.number(nodes_name, 1, kMaxWorld).value_or(1);
  e.node_rank = reader.number("SLURM_NODEID", 0, nodes - 1).value_or(0);
  e.local_world_size = e.world_size / nodes;
  for (const char* name : {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}) {
    const auto text = get_environment(name);
    if (!text) continue;
    const std::vector<int> tasks = expand_tasks_per_node(name, *text);
    if (static_cast<std::size_t>(e.node_rank) >= tasks.size()) {
      refuse("Slurm", fmt::format("{} has no entry for node {}", name, e.node_rank), fmt::format("{}={}", name, *text),
             fmt::format("{} nodes", nodes));
    }
    e.local_world_size = tasks[static_cast<std::size_t>(e.node_rank)];
    break;
  }
  if (e.local_world_size < 1 || e.local_world_size > e.world_size) {
    refuse("Slurm", "the tasks of this node do not fit the step",
           fmt::format("{} of {}", e.local_world_size, e.world_size), "1 to all");
  }
  e.local_rank = reader.needed("SLURM_LOCALID", 0, e.local_world_size - 1);
  e.knows_local_rank = true;
  const std::string job =
      fmt::format("slurm:{}.{}", get_environment("SLURM_JOB_ID").value_or("0"), *get_environment("SLURM_STEP_ID"));
  set_meeting_point(e, reader, job, first_slurm_host(), nodes == 1);
  return e;
}

Environment detect_launcher() {
  const bool rank = get_environment("RANK").has_value();
  const bool size = get_environment("WORLD_SIZE").has_value();
  if (base::environment::store()) return from_reigen();
  if (get_environment("TORCHELASTIC_RUN_ID") || (rank && size)) return from_torchrun();
  if (get_environment("OMPI_COMM_WORLD_RANK") || get_environment("OMPI_COMM_WORLD_SIZE")) return from_open_mpi();
  // srun's own PMI sets PMI_RANK too; only MPICH's launcher Hydra also sets the local rank.
  const bool pmi = get_environment("PMI_RANK") || get_environment("PMI_SIZE");
  if (pmi && (get_environment("MPI_LOCALRANKID") || !in_slurm_step())) return from_mpich();
  if (in_slurm_step()) return from_slurm();
  if (rank)
    refuse("environment", "RANK is set but WORLD_SIZE is not", fmt::format("RANK={}", *get_environment("RANK")),
           "both or none");
  if (size && *get_environment("WORLD_SIZE") != "1") {
    refuse("environment", "WORLD_SIZE is set but RANK is not",
           fmt::format("WORLD_SIZE={}", *get_environment("WORLD_SIZE")), "both or none",
           "unset it, or start the program with reigen run, torchrun, mpirun or srun");
  }
  return {};
}

}  // namespace

Environment detect_environment() {
  Environment e = detect_launcher();
  if (e.source == "reigen" || e.source == "none") return e;
  // The user may add a secret word (REIGEN_JOB), so that other people's jobs cannot guess the identity.
  if (const auto secret = base::environment::job()) e.job += ":" + *secret;
  return e;
}

}  // namespace reigen::launch
