#include "comm/tcp/join.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <random>
#include <sstream>

#include "base/check.h"
#include "base/environment.h"
#include "base/log.h"
#include "base/machine/host_name.h"
#include "comm/forming/forming.h"
#include "comm/forming/peer_process.h"
#include "comm/forming/rank_reports.h"
#include "comm/tcp/acceptor.h"
#include "comm/tcp/header.h"
#include "net/interfaces.h"

namespace reigen::comm::tcp {

namespace {

using std::chrono::duration_cast;
using std::chrono::seconds;

constexpr auto kJoinSlice = seconds(1);  // a waiting rank checks this often which ranks are missing
constexpr std::chrono::nanoseconds kMeetingSlice = std::chrono::milliseconds(20);  // the same while a group is split
constexpr auto kConnectTime = seconds(5);                                          // for one connection to one address
constexpr std::size_t kAnswerMax = 256;

struct Announcement {
  std::uint32_t version = kProtocolVersion;
  std::string host;
  pid_t pid = 0;
  std::uint64_t space = 0;  // the PID namespace in which `pid` is valid
  std::string machine;
  std::string secret;
  std::string answer;
  std::uint16_t port = 0;
  int connections = 1;
  int size = 0;  // number of ranks of the group
  std::vector<net::InterfaceAddress> addresses;
};

// Why this rank could not reach another rank at an address.
struct Refusal {
  std::string why = {};
  bool at_once = false;  // the machine answers, but no rank of the group listens there
};

std::string random_word() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", device(), device(), device(), device());
}

std::string to_text(const Announcement& a) {
  std::string text = fmt::format("{} {} {} {} {} {} {} {} {} {}", a.version, a.host, a.pid, a.space, a.machine,
                                 a.secret, a.answer, a.port, a.connections, a.size);
  for (const auto& address : a.addresses) text += fmt::format(" {} {}", address.host, address.loopback ? 1 : 0);
  return text;
}

Announcement parse(int rank, const std::string& text) {
  Announcement a;
  std::istringstream in(text);
  in >> a.version;
  check_same_version("TCP", rank, in ? a.version : 0, kProtocolVersion);  // later fields differ between versions
  in >> a.host >> a.pid >> a.space >> a.machine >> a.secret >> a.answer >> a.port >> a.connections >> a.size;
  check_same_version("TCP", rank, in ? a.version : 0, kProtocolVersion);
  net::InterfaceAddress address;
  while (in >> address.host >> address.loopback) a.addresses.push_back(address);
  return a;
}

class Join {
 public:
  explicit Join(const GroupOptions& options)
      : options_(options),
        connections_(static_cast<int>(kLanes) * options.connections + 2),
        forming_(options, "", kJoinSlice, [this](const std::vector<int>& missing) { refuse_other_versions(missing); }) {
  }

  std::vector<Neighbour> run();

 private:
  void check_fits(int rank, const Announcement& other) const;
  void call(int rank, const Announcement& own, const Announcement& other, Neighbour& neighbour);
  std::vector<net::Socket> try_address(const net::Address& address, bool local, const Announcement& other,
                                       Refusal& refusal);
  [[noreturn]] void throw_unreachable(int rank, const Announcement& own, const Announcement& other,
                                      const std::vector<Refusal>& refusals) const;
  void wait_for_callers(Acceptor& acceptor);
  bool all_in_one_network();
  void refuse_other_size();
  void refuse_other_versions(const std::vector<int>& missing);

  const GroupOptions& options_;
  const int connections_;  // number of connections to each other rank: for control, messages and lanes
  Forming forming_;
};

void Join::check_fits(int rank, const Announcement& other) const {
  check_same_size(options_, rank, other.size);
  REIGEN_CHECK(other.connections == options_.connections,
               "ranks {} and {} of group \"{}\" want different numbers of connections\n  got: {}   expected: {}",
               options_.rank, rank, options_.name, other.connections, options_.connections);
}

// Makes all connections to a rank (`other`) through one address. If another program or nobody answers, returns no
// connection and stores the reason in `refusal`.
std::vector<net::Socket> Join::try_address(const net::Address& address, bool local, const Announcement& other,
                                           Refusal& refusal) {
  std::vector<net::Socket> sockets;
  for (int i = 0; i < connections_; ++i) {
    const Deadline deadline = Deadline::after(forming_.deadline().remaining(kConnectTime));
    net::ConnectAttempt attempt = net::try_connect(address, deadline, local ? kLocalCongestion : "");
    if (!attempt.socket) {
      refusal.why = base::errno_text(attempt.error);
      // ECONNRESET means that the rank ended while the connection was made.
      refusal.at_once = attempt.error == ECONNREFUSED || attempt.error == ECONNRESET;
      return {};
    }
    try {
      const Greeting greeting{other.secret, static_cast<std::uint32_t>(options_.rank), static_cast<std::uint32_t>(i)};
      net::write_frame(*attempt.socket, to_bytes(greeting), deadline);
      net::FrameReader reader(kAnswerMax);
      const auto answer = reader.wait(*attempt.socket, deadline);
      if (!answer || *answer != other.answer) {
        refusal.why = answer ? "another program answers there" : "no answer";
        return {};
      }
    } catch (const Error& error) {
      refusal.why = error.what();
      refusal.at_once = dynamic_cast<const net::ConnectionClosed*>(&error) != nullptr;
      return {};
    }
    sockets.push_back(std::move(*attempt.socket));
  }
  return sockets;
}

void Join::call(int rank, const Announcement& own, const Announcement& other, Neighbour& neighbour) {
  std::vector<net::InterfaceAddress> addresses = other.addresses;
  if (own.machine == other.machine) {
    std::stable_partition(addresses.begin(), addresses.end(), [](const auto& a) { return a.loopback; });
  } else {
    std::erase_if(addresses, [](const auto& a) { return a.loopback; });
  }
  std::vector<Refusal> refusals;
  for (const auto& candidate : addresses) {
    for (const net::Address& address : net::resolve(candidate.host, other.port)) {
      Refusal refusal;
      neighbour.sockets = try_address(address, candidate.loopback, other, refusal);
      if (!neighbour.sockets.empty()) {
        base::log_debug("group \"{}\": rank {} reaches rank {} at {}", options_.name, options_.rank, rank,
                        address.to_string());
        return;
      }
      refusal.why = fmt::format("{}: {}", address.to_string(), refusal.why);
      refusals.push_back(std::move(refusal));
    }
  }
  throw_unreachable(rank, own, other, refusals);
}

void Join::throw_unreachable(int rank, const Announcement& own, const Announcement& other,
                             const std::vector<Refusal>& refusals) const {
  std::vector<std::string> reasons;
  for (const Refusal& refusal : refusals) reasons.push_back(refusal.why);
  Report report{
      .what = fmt::format("rank {} (host {}) cannot reach rank {} (host {}, pid {}) of group \"{}\"", options_.rank,
                          own.host, rank, other.host, other.pid, options_.name),
      .got = reasons.empty() ? "no address that other machines can reach" : fmt::format("{}", fmt::join(reasons, "; ")),
      .expected = "a connection to one of its addresses",
      .fix = "open the firewall between the hosts, or name the interface that both share (REIGEN_TCP_INTERFACE=eth0)"};
  // If every address refused the connection immediately, nobody listens there any more: the rank has ended. When a
  // group is split, its ranks have reached each other before, so a rank that cannot be reached is lost too.
  const bool ended =
      !refusals.empty() && std::all_of(refusals.begin(), refusals.end(), [](const auto& r) { return r.at_once; });
  if (ended) report.fix = "nobody listens there any more: see what that rank printed";
  if (ended || options_.meeting != nullptr) throw PeerLost(rank, to_string(report));
  throw BackendError(report);
}

void Join::wait_for_callers(Acceptor& acceptor) {
  for (;;) {
    const Deadline until = Deadline::after(forming_.deadline().remaining(
        options_.meeting != nullptr ? kMeetingSlice : std::chrono::nanoseconds(kJoinSlice)));
    if (acceptor.wait(until)) return;
    forming_.woke(until);
    const std::vector<int> missing = acceptor.missing();
    forming_.look(missing);
    if (!forming_.deadline().expired()) continue;
    forming_.end_for_all(Timeout(
        Report{.what = fmt::format("rank {} of {}: group \"{}\" is not connected after {} s", options_.rank,
                                   options_.size, options_.name, duration_cast<seconds>(options_.join_timeout).count()),
               .got = {},
               .expected = fmt::format("calls from ranks {}", fmt::join(missing, ", ")),
               .fix = "see what these ranks printed; a firewall that drops packets looks like this too"}));
  }
}

// A rank of another Reigen version may never do the exchange for which this rank waits. So during the wait, this rank
// reads the announcements of the missing ranks, which contain the version.
void Join::refuse_other_versions(const std::vector<int>& missing) {
  for (const int q : missing) {
    const auto text = forming_.store().try_get(fmt::format("rank/{}", q));
    if (!text) continue;
    try {
      parse(q, *text);
    } catch (const Error& error) {
      forming_.end_for_all(error);
    }
  }
}

// Throws if another rank has another options_.size. Every later exchange waits for as many ranks as options_.size says,
// so the ranks must first agree on this number.
void Join::refuse_other_size() {
  const std::string first =
      forming_.store().compare_and_set("size", std::nullopt, fmt::format("{} {}", options_.size, options_.rank));
  std::istringstream in(first);
  int size = 0;
  int rank = 0;
  in >> size >> rank;
  try {
    check_same_size(options_, rank, size);
  } catch (const Error& error) {
    forming_.end_for_all(error);
  }
}

// Whether all ranks are in one network namespace. If they are, each rank listens only on loopback, where no other
// machine can connect. Each rank makes only a few requests to the store, however many ranks there are.
bool Join::all_in_one_network() {
  refuse_other_size();
  const std::vector<std::string> networks = forming_.exchange("network", net::network_identity());
  return std::all_of(networks.begin(), networks.end(), [&](const auto& one) { return one == networks.front(); });
}

std::vector<Neighbour> Join::run() {
  Announcement own{.host = base::host_name(),
                   .pid = ::getpid(),
                   .space = process_namespace(),
                   .machine = net::machine_identity(),
                   .secret = random_word(),
                   .answer = random_word(),
                   .connections = options_.connections,
                   .size = options_.size,
                   .addresses = net::interface_addresses(base::environment::tcp_interface())};
  forming_.enter();
  // If the user names an interface, the ranks must connect through it, even inside one machine.
  const bool through_loopback = all_in_one_network() && !base::environment::tcp_interface();
  if (through_loopback) own.addresses = {{.interface = "lo", .host = net::loopback_address(), .loopback = true}};
  Acceptor acceptor(own.secret, own.answer, options_.rank + 1, options_.size, connections_,
                    through_loopback ? own.addresses.front().host : "");
  own.port = acceptor.port();
  const std::vector<std::string> announcements = forming_.exchange("rank", to_text(own));
  std::vector<Neighbour> neighbours(static_cast<std::size_t>(options_.size));
  for (int q = 0; q < options_.size; ++q) {
    Neighbour& neighbour = neighbours[static_cast<std::size_t>(q)];
    try {
      const Announcement other = parse(q, announcements[static_cast<std::size_t>(q)]);
      check_fits(q, other);
      neighbour.host = other.host;
      neighbour.pid = other.pid;
      neighbour.here = other.machine == own.machine;
      neighbour.seen_as = neighbour.here && other.space == own.space ? other.pid : 0;
      if (q < options_.rank) call(q, own, other, neighbour);
    } catch (const Error& error) {
      forming_.end_for_all(error);
    }
  }
  wait_for_callers(acceptor);
  forming_.complete();
  for (int q = options_.rank + 1; q < options_.size; ++q) {
    neighbours[static_cast<std::size_t>(q)].sockets = acceptor.take(q);
  }
  return neighbours;
}

}  // namespace

std::vector<Neighbour> join(const GroupOptions& options) { return Join(options).run(); }

}  // namespace reigen::comm::tcp
