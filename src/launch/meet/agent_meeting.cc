#include "launch/meet/agent_meeting.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "launch/meet/agent_store.h"
#include "launch/meet/listening.h"
#include "launch/meet/served_store.h"
#include "net/interfaces.h"
#include "reigen/base/error.h"
#include "store/tcp_connection.h"

namespace reigen::launch {

namespace {

using namespace std::chrono_literals;

constexpr const char* kAddressKey = "reigen/address";
constexpr auto kFirstPatience = 1s;  // time to connect to rank 0's address, which may be out of date; doubles each time
constexpr auto kLastPatience = 8s;
constexpr auto kLookAgain = 100ms;
constexpr std::size_t kMostNamed = 16;

std::string place_key(int rank) { return fmt::format("reigen/place/{}", rank); }

// The address at which rank 0 listens. Rank 0 writes it to the store of torchrun's agent, as words separated by blanks.
struct Address {
  std::string secret = {};   // new at each start, because after a restart the store may still have the old address
  std::string network = {};  // net::network_identity() of rank 0's machine
  std::uint16_t port = 0;
  std::vector<std::string> hosts = {};
};

std::string to_text(const Address& address) {
  return fmt::format("{} {} {} {}", address.secret, address.network, address.port, fmt::join(address.hosts, " "));
}

std::optional<Address> parse(const std::string& text) {
  Address address;
  std::istringstream in(text);
  in >> address.secret >> address.network >> address.port;
  for (std::string host; in >> host;) address.hosts.push_back(host);
  return address.port != 0 && !address.hosts.empty() ? std::optional(address) : std::nullopt;
}

std::string random_word() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", device(), device(), device(), device());
}

// The identity of the job together with the secret of this start, which differs after a restart by torchrun.
std::string identity(const Environment& environment, const Address& address) {
  return environment.job + ":" + address.secret;
}

std::vector<std::string> place_keys(const Environment& environment) {
  std::vector<std::string> keys;
  for (int rank = 0; rank < environment.world_size; ++rank) keys.push_back(place_key(rank));
  return keys;
}

[[noreturn]] void throw_incomplete(const Environment& environment) {
  std::vector<int> missing;
  std::size_t count = 0;
  AgentStore agent(environment.master_address, environment.master_port, Deadline::after(5s));
  for (int rank = 0; rank < environment.world_size; ++rank) {
    if (agent.has(place_key(rank))) continue;
    if (++count <= kMostNamed) missing.push_back(rank);
  }
  throw Timeout(Report{.what = fmt::format("rank {} of {}: the ranks that torchrun started have not met",
                                           environment.rank, environment.world_size),
                       .got = count == 0 ? "rank 0 did not say where it listens"
                                         : fmt::format("{} ranks", environment.world_size - static_cast<int>(count)),
                       .expected = count == 0
                                       ? ""
                                       : fmt::format("{} ranks; missing: {}{}", environment.world_size,
                                                     fmt::join(missing, ", "), count > kMostNamed ? ", ..." : ""),
                       .fix = "see what these ranks printed; REIGEN_COMM_JOIN_TIMEOUT=seconds waits longer"});
}

std::shared_ptr<store::Store> serve(AgentStore& agent, const Environment& environment, const Deadline& deadline,
                                    std::chrono::milliseconds heartbeat_timeout) {
  const std::vector<std::string> keys = place_keys(environment);
  if (!agent.wait(keys, deadline)) throw_incomplete(environment);
  const std::string network = net::network_identity();
  const bool all_here =
      std::all_of(keys.begin(), keys.end(), [&](const std::string& key) { return agent.get(key) == network; });
  Address address{.secret = random_word(), .network = network, .hosts = {net::loopback_address()}};
  if (!all_here) address.hosts = places_to_listen(environment);
  store::TcpStoreServerOptions options{.host = address.hosts.front(), .job = identity(environment, address)};
  options.also.assign(address.hosts.begin() + 1, address.hosts.end());
  auto served = std::make_shared<ServedStore>(options, deadline, heartbeat_timeout);
  address.port = served->port();
  agent.set(kAddressKey, to_text(address));
  for (const std::string& key : keys) agent.erase(key);  // torchrun may restart the job with the same store
  return served;
}

// The addresses at which this rank looks for rank 0. If both are on one machine, this is the loopback address.
// Otherwise these are the addresses that rank 0 wrote. The first of them are those to which the name of the agent's
// host resolves on rank 0's machine. The last address is the agent's host itself, which this rank has just reached. It
// is tried because rank 0 may be behind a network address translation (NAT) that has this host name.
store::TcpStoreOptions options_of(const Environment& environment, const Address& address) {
  store::TcpStoreOptions options{.port = address.port, .job = identity(environment, address)};
  if (address.network == net::network_identity()) {
    options.host = net::loopback_address();
  } else {
    const auto is_remote = [](const std::string& host) {
      return host != "::1" && host != "::" && host != "0.0.0.0" && !host.starts_with("127.");
    };
    std::copy_if(address.hosts.begin(), address.hosts.end(), std::back_inserter(options.also), is_remote);
    options.also.push_back(environment.master_address);
    options.host = options.also.front();
    options.also.erase(options.also.begin());
  }
  return options;
}

std::shared_ptr<store::Store> find(AgentStore& agent, const Environment& environment, const Deadline& deadline,
                                   std::chrono::milliseconds heartbeat_timeout) {
  std::chrono::nanoseconds patience = kFirstPatience;
  std::string first;  // the address in the agent's store at the first look
  const auto is_last_look = [&] { return deadline.remaining(kLookAgain) < kLookAgain; };
  for (;;) {
    if (!agent.wait({kAddressKey}, deadline)) throw_incomplete(environment);
    const std::string text = agent.get(kAddressKey);
    if (first.empty()) first = text;
    // True if rank 0 of an earlier start of the job wrote the address. Rank 0 of this start erases the place_key() of
    // every rank after it has written its own address. So while this rank's key exists, the address is of an earlier
    // start. The restart count of torchrun's agents does not tell starts apart, because each agent counts only those
    // restarts in which its own ranks failed.
    const auto is_old = [&] { return text == first && agent.has(place_key(environment.rank)); };
    const auto address = parse(text);
    if (!address) {
      throw DataError(Report{.what = "rank 0 of another version of Reigen has told torchrun's agent where it listens",
                             .got = text,
                             .fix = "start all ranks from one build"});
    }
    store::TcpStoreOptions options = options_of(environment, *address);
    options.connect_deadline = Deadline::after(deadline.remaining(patience));
    options.heartbeat_timeout = heartbeat_timeout;
    try {
      return store::connect_tcp_store(options);
    } catch (const store::NoAnswer& error) {
      if (is_last_look()) {
        if (is_old()) throw_incomplete(environment);
        throw Timeout(Report{
            .what =
                fmt::format("rank {} of {} cannot reach the store of rank 0", environment.rank, environment.world_size),
            .got = error.reason,
            .expected = fmt::format("rank 0 at one of {}, port {}", fmt::join(address->hosts, ", "), address->port),
            .fix = "is rank 0 running? open the firewall between the hosts for the ports of the kernel "
                   "(/proc/sys/net/ipv4/ip_local_port_range)"});
      }
    } catch (const BackendError& error) {  // a different job has that port now, so the address is old
      if (error.exit_code() != ExitCode::kJobMismatch) throw;
      if (is_last_look()) {
        if (is_old()) throw_incomplete(environment);
        throw;
      }
    }
    std::this_thread::sleep_for(deadline.remaining(kLookAgain));
    patience = std::min<std::chrono::nanoseconds>(2 * patience, kLastPatience);
  }
}

}  // namespace

std::shared_ptr<store::Store> meet_at_agent(const Environment& environment, const Deadline& deadline,
                                            std::chrono::milliseconds heartbeat_timeout) {
  try {
    AgentStore agent(environment.master_address, environment.master_port, deadline);
    agent.set(place_key(environment.rank), net::network_identity());
    if (environment.rank == 0) return serve(agent, environment, deadline, heartbeat_timeout);
    return find(agent, environment, deadline, heartbeat_timeout);
  } catch (const net::ConnectionClosed& closed) {
    throw Timeout(Report{.what = fmt::format("rank {} of {} has lost torchrun's agent while the ranks meet",
                                             environment.rank, environment.world_size),
                         .got = closed.what(),
                         .fix = "see what torchrun printed on node 0"});
  }
}

}  // namespace reigen::launch
