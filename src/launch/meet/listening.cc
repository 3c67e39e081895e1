#include "launch/meet/listening.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>

#include "base/environment.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/machine/host_name.h"
#include "launch/meet/slurm_node.h"
#include "net/address.h"
#include "net/interfaces.h"
#include "net/socket.h"

namespace reigen::launch {

namespace {

constexpr const char* kLoopback4 = "127.0.0.1";
constexpr const char* kLoopback6 = "::1";

// The addresses to which master_address resolves on this machine.
struct Meaning {
  std::vector<net::Address> addresses = {};
  std::string problem = {};   // why there are no addresses; empty if there are some
  bool same_for_all = false;  // whether every rank that resolves the name gets the same addresses
};

Meaning meaning_of(const Environment& environment) {
  const std::string& host = environment.master_address;
  net::Resolution found = net::try_resolve(host, 0);
  if (!found.problem.empty() && environment.source == "Slurm") {
    const std::string known = slurm_node_address(host);
    const net::Resolution by_slurm = known.empty() ? net::Resolution{} : net::try_resolve(known, 0);
    if (!by_slurm.addresses.empty()) return {.addresses = by_slurm.addresses, .same_for_all = true};
  }
  return {.addresses = std::move(found.addresses),
          .problem = std::move(found.problem),
          .same_for_all = means_one_host(host)};
}

void warn_of_strange_address(const Environment& environment, const Meaning& meaning) {
  if (!meaning.problem.empty()) {
    base::log_warning("host '{}' has no address here: {}; rank 0 listens at every address of this machine",
                      environment.master_address, meaning.problem);
    return;
  }
  std::vector<std::string> texts;
  for (const net::Address& address : meaning.addresses) texts.push_back(address.host());
  base::log_warning(
      "host '{}' ({}) is not the machine of rank 0, which listens at every address of its own: the others reach it "
      "only "
      "if that host passes them on",
      environment.master_address, fmt::join(texts, ", "));
}

void add(std::vector<std::string>& places, const std::string& place) {
  if (std::find(places.begin(), places.end(), place) == places.end()) places.push_back(place);
}

}  // namespace

bool means_one_host(const std::string& address) {
  if (address == "localhost") return !base::get_environment("KUBERNETES_SERVICE_HOST");
  return address == kLoopback6 || address == "[::1]" || address.starts_with("127.");
}

std::vector<std::string> addresses_of_this_machine() {
  std::vector<std::string> hosts;
  for (const net::InterfaceAddress& address : net::interface_addresses({})) {
    if (!address.loopback) add(hosts, address.host);
  }
  return hosts;
}

std::vector<std::string> places_to_listen(const Environment& environment) {
  const Meaning meaning = meaning_of(environment);
  std::vector<std::string> own;
  bool on_loopback = true;
  for (const net::Address& address : meaning.addresses) {
    if (address.is_unspecified()) return {address.host()};
    if (!net::is_of_this_machine(address)) continue;
    add(own, address.host());
    on_loopback = on_loopback && address.is_loopback();
  }
  if (environment.one_host) {
    std::vector<std::string> places = {net::loopback_address()};
    for (const std::string& place : own) add(places, place);
    return places;
  }
  if (meaning.same_for_all && on_loopback && !own.empty()) return own;
  // With torchrun's agent, master_address is the agent's host, which may be any machine. So an address of another
  // machine is no reason to warn.
  if (own.empty() && !environment.agent_store) warn_of_strange_address(environment, meaning);
  std::vector<std::string> places = {net::loopback_address()};
  for (const std::string& place : own) add(places, place);
  // Other ranks may have got this machine's own host name as their master_address.
  for (const net::Address& address : net::try_resolve(base::host_name(), 0).addresses) {
    if (!address.is_unspecified() && net::is_of_this_machine(address)) add(places, address.host());
  }
  for (const std::string& place : addresses_of_this_machine()) add(places, place);
  return places;
}

std::vector<std::string> places_to_look(const Environment& environment) {
  std::vector<std::string> places;
  if (environment.one_host || environment.on_first_node) places = {kLoopback4, kLoopback6};
  const std::string& host = environment.master_address;
  if (environment.source == "Slurm" && !environment.one_host && !net::try_resolve(host, 0).problem.empty()) {
    const std::string known = slurm_node_address(host);
    if (!known.empty()) {
      add(places, known);
      return places;
    }
  }
  add(places, host);
  return places;
}

std::string socket_of_job(const std::string& job) {
  return fmt::format("reigen/{}/{:016x}", ::geteuid(), base::fnv1a(job));
}

}  // namespace reigen::launch
