// Connects the ranks of a job to one store.
#include <chrono>
#include <exception>
#include <thread>
#include <vector>

#include "base/check.h"
#include "launch/meet/agent_meeting.h"
#include "launch/meet/listening.h"
#include "launch/meet/served_store.h"
#include "net/address.h"
#include "net/socket.h"
#include "reigen/base/error.h"
#include "reigen/launch/environment.h"
#include "reigen/store/tcp_store.h"
#include "store/tcp_connection.h"

namespace reigen::launch {

namespace {

using std::chrono::milliseconds;

constexpr auto kPause = milliseconds(50);
constexpr auto kHolderWait = milliseconds(1000);

std::string place_text(const Environment& environment) {
  return fmt::format("{}, port {} ({}; {})", environment.master_address, environment.master_port,
                     environment.port_origin, environment.source);
}

std::shared_ptr<store::Store> serve_at_port(const Environment& environment, const Deadline& deadline,
                                            milliseconds heartbeat_timeout) {
  const std::vector<std::string> places = places_to_listen(environment);
  store::TcpStoreServerOptions options{.host = places.front(), .port = environment.master_port, .job = environment.job};
  options.also.assign(places.begin() + 1, places.end());
  try {
    return std::make_shared<ServedStore>(options, deadline, heartbeat_timeout);
  } catch (const BackendError& error) {
    throw BackendError({.what = fmt::format("rank 0 cannot serve the job's store at port {} ({})",
                                            environment.master_port, environment.port_origin),
                        .got = error.what(),
                        .expected = "a port that nobody else uses",
                        .fix = "set MASTER_PORT to a free one, the same on all ranks"},
                       error.exit_code());
  }
}

[[noreturn]] void throw_not_found(const Environment& environment, const store::NoAnswer& error, bool by_name) {
  throw Timeout(
      {.what = fmt::format("rank {} of {} cannot reach the store of rank 0", environment.rank, environment.world_size),
       .got = error.reason,
       .expected = by_name ? fmt::format("rank 0 on this machine ({})", environment.source)
                           : "rank 0 at " + place_text(environment),
       .fix = error.unknown_host
                  ? "is that name right, and does the name service of this machine know it? MASTER_ADDR takes another "
                    "name or a number; REIGEN_COMM_JOIN_TIMEOUT=seconds waits longer"
                  : "is rank 0 running? can this host reach that address? MASTER_ADDR and MASTER_PORT choose others; "
                    "REIGEN_COMM_JOIN_TIMEOUT=seconds waits longer"});
}

// Connects to the store of rank 0. Before rank 0 has started its server, the server of an earlier job may still hold
// the port for a moment. So the answer of another job's server is an error only at the deadline.
std::shared_ptr<store::Store> find_rank_0(const Environment& environment, store::TcpStoreOptions options,
                                          const Deadline& deadline) {
  options.connect_deadline = deadline;
  options.job = environment.job;
  std::exception_ptr other_job = nullptr;
  for (;;) {
    try {
      return store::connect_tcp_store(options);
    } catch (const store::NoAnswer& error) {
      // The deadline cut the last attempt short. If another job answered earlier, the error of that answer is more
      // helpful.
      if (other_job) std::rethrow_exception(other_job);
      throw_not_found(environment, error, !options.socket.empty());
    } catch (const BackendError& error) {
      if (error.exit_code() != ExitCode::kJobMismatch || deadline.expired()) throw;
      other_job = std::current_exception();
    }
    std::this_thread::sleep_for(deadline.remaining(kPause));
  }
}

std::shared_ptr<store::Store> meet_at_port(const Environment& environment, const Deadline& deadline,
                                           milliseconds heartbeat_timeout) {
  if (environment.rank == 0) return serve_at_port(environment, deadline, heartbeat_timeout);
  std::vector<std::string> places = places_to_look(environment);
  return find_rank_0(environment,
                     {.host = places.front(),
                      .port = environment.master_port,
                      .also = {places.begin() + 1, places.end()},
                      .heartbeat_timeout = heartbeat_timeout},
                     deadline);
}

// All ranks are on this machine and know the name of their job, so they meet at a Unix socket whose name follows from
// the name of the job.
std::shared_ptr<store::Store> meet_by_name(const Environment& environment, const Deadline& deadline,
                                           milliseconds heartbeat_timeout) {
  const std::string socket = socket_of_job(environment.job);
  if (environment.rank != 0) {
    return find_rank_0(environment, {.socket = socket, .heartbeat_timeout = heartbeat_timeout}, deadline);
  }
  try {
    return std::make_shared<ServedStore>(store::TcpStoreServerOptions{.job = environment.job, .socket = socket},
                                         deadline, heartbeat_timeout);
  } catch (const BackendError& error) {
    const net::ConnectAttempt holder = net::try_connect(net::machine_address(socket), Deadline::after(kHolderWait));
    if (!holder.socket) throw;  // nobody listens at that name, so something else is wrong
    if (!net::is_of_this_user(*holder.socket)) {
      throw BackendError({.what = "a program of another user of this machine has the name of this job's socket",
                          .got = error.what(),
                          .expected = "a name that nobody else takes",
                          .fix = "set REIGEN_JOB to a word that others do not know, the same on all ranks"},
                         error.exit_code());
    }
    throw BackendError(
        {.what = fmt::format("another program on this machine is rank 0 of the same job ({})", environment.source),
         .got = error.what(),
         .expected = "one rank 0 a job",
         .fix = "end the other one, or give each job a word of its own (REIGEN_JOB) or a port "
                "(MASTER_PORT)"},
        error.exit_code());
  }
}

std::shared_ptr<store::Store> connect_to_launcher(const Environment& environment, const Deadline& deadline,
                                                  milliseconds heartbeat_timeout) {
  const std::string& url = environment.store;
  constexpr std::string_view kScheme = "tcp://";
  std::optional<net::Endpoint> place;
  if (url.starts_with(kScheme)) place = net::parse_endpoint(std::string_view(url).substr(kScheme.size()));
  if (!place) {
    throw InvalidArgument({.what = "REIGEN_STORE cannot be read",
                           .got = "REIGEN_STORE=" + url,
                           .expected = "tcp://host:port",
                           .fix = "start the program with reigen run, which sets it"});
  }
  return store::connect_tcp_store({.host = place->host,
                                   .port = place->port,
                                   .job = environment.job,
                                   .connect_deadline = deadline,
                                   .heartbeat_timeout = heartbeat_timeout});
}

}  // namespace

std::shared_ptr<store::Store> join_job(const Environment& environment, const Deadline& deadline,
                                       milliseconds heartbeat_timeout) {
  if (!environment.store.empty()) return connect_to_launcher(environment, deadline, heartbeat_timeout);
  if (environment.world_size == 1) return store::make_memory_store();
  if (environment.one_host && (environment.master_port == 0 || environment.agent_store)) {
    return meet_by_name(environment, deadline, heartbeat_timeout);
  }
  REIGEN_CHECK(environment.master_port != 0 && !environment.master_address.empty(),
               "rank {} of {} does not know where rank 0 is", environment.rank, environment.world_size);
  if (environment.agent_store) return meet_at_agent(environment, deadline, heartbeat_timeout);
  return meet_at_port(environment, deadline, heartbeat_timeout);
}

}  // namespace reigen::launch
