#include "comm/tcp/join.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <memory>
#include <random>
#include <sstream>

#include "base/check.h"
#include "base/environment.h"
#include "base/host_name.h"
#include "base/log.h"
#include "base/process_state.h"
#include "comm/rank_reports.h"
#include "comm/tcp/acceptor.h"
#include "comm/tcp/header.h"
#include "comm/tcp/interfaces.h"

namespace reigen::comm::tcp {

namespace {

using std::chrono::duration_cast;
using std::chrono::seconds;

constexpr auto kJoinSlice = seconds(1);    // so often those that wait look who is missing
constexpr auto kConnectTime = seconds(5);  // for one address
constexpr std::size_t kAnswerMax = 256;

struct Announcement {
  std::uint32_t version = kProtocolVersion;
  std::string host;
  pid_t pid = 0;
  std::string machine;
  std::string secret;
  std::string answer;
  std::uint16_t port = 0;
  int connections = 1;
  int size = 0;  // of the group
  std::vector<InterfaceAddress> addresses;
};

// Why an address does not lead to a rank.
struct Refusal {
  std::string why = {};
  bool at_once = false;  // the machine is there, and nobody of ours listens
};

std::string random_word() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", device(), device(), device(), device());
}

std::string to_text(const Announcement& a) {
  std::string text = fmt::format("{} {} {} {} {} {} {} {} {}", a.version, a.host, a.pid, a.machine, a.secret, a.answer,
                                 a.port, a.connections, a.size);
  for (const auto& address : a.addresses) text += fmt::format(" {} {}", address.host, address.loopback ? 1 : 0);
  return text;
}

Announcement parse(int rank, const std::string& text) {
  Announcement a;
  std::istringstream in(text);
  in >> a.version >> a.host >> a.pid >> a.machine >> a.secret >> a.answer >> a.port >> a.connections >> a.size;
  if (!in || a.version != kProtocolVersion) {
    throw BackendError(Report{.what = fmt::format("rank {} runs another version of the TCP protocol", rank),
                              .got = fmt::format("version {}", a.version),
                              .expected = fmt::format("version {}", kProtocolVersion),
                              .fix = "start all ranks from one build"},
                       ExitCode::kJobMismatch);
  }
  InterfaceAddress address;
  while (in >> address.host >> address.loopback) a.addresses.push_back(address);
  return a;
}

// An exit code, the rank that is lost, a text.
std::string verdict_of(const Error& error) {
  const auto* lost = dynamic_cast<const PeerLost*>(&error);
  return fmt::format("{} {} {}", static_cast<int>(error.exit_code()), lost != nullptr ? lost->rank() : -1,
                     error.what());
}

[[noreturn]] void throw_verdict(const std::string& verdict) {
  std::istringstream in(verdict);
  int number = 0;
  int rank = 0;
  in >> number >> rank;
  const auto code = static_cast<ExitCode>(number);
  const std::string text = verdict.substr(static_cast<std::size_t>(in.tellg()) + 1);
  if (code == ExitCode::kPeerLost) throw PeerLost(rank, text);
  if (code == ExitCode::kConfiguration) throw InvalidArgument(text);
  throw BackendError(text, code);
}

class Join {
 public:
  Join(const GroupOptions& options, const CheckComing& check_coming)
      : options_(options),
        check_coming_(check_coming),
        connections_(options.connections + 2),
        store_(store::make_prefix_store(options.store, "group/" + options.name)),
        deadline_(Deadline::after(options.join_timeout)) {}

  std::vector<Neighbour> run();

 private:
  std::string wait_for(const std::string& key, const char* sign);
  [[noreturn]] void end_for_all(const Error& error);
  void throw_if_failed() const;
  void check_fits(int rank, const Announcement& other) const;
  void check_not_stopped(const std::vector<int>& missing) const;
  void call(int rank, const Announcement& own, const Announcement& other, Neighbour& neighbour);
  std::vector<net::Socket> try_address(const net::Address& address, bool local, const Announcement& other,
                                       Refusal& refusal);
  [[noreturn]] void throw_unreachable(int rank, const Announcement& own, const Announcement& other,
                                      const std::vector<Refusal>& refusals) const;
  void wait_for_callers(Acceptor& acceptor);

  const GroupOptions& options_;
  const CheckComing& check_coming_;
  const int connections_;  // to each other rank: control, messages, data
  std::shared_ptr<store::Store> store_;
  const Deadline deadline_;
  const Deadline::Clock::time_point since_ = Deadline::Clock::now();
};

// Waits for `key`, for which ranks that have not set sign/RANK keep the others waiting.
std::string Join::wait_for(const std::string& key, const char* sign) {
  for (;;) {
    try {
      return store_->get(key, Deadline::after(deadline_.remaining(kJoinSlice)));
    } catch (const Timeout&) {
      std::vector<int> missing;
      for (int q = 0; q < options_.size; ++q) {
        if (!store_->try_get(fmt::format("{}/{}", sign, q))) missing.push_back(q);
      }
      throw_if_failed();
      if (missing.empty()) {
        // Who came last died before it could say so; the first call will tell.
        if (key == "complete") store_->compare_and_set(key, std::nullopt, "");
        continue;
      }
      if (check_coming_) check_coming_(missing);
      if (Deadline::Clock::now() - since_ >= options_.heartbeat_timeout) check_not_stopped(missing);
      if (!deadline_.expired()) continue;
      throw Timeout(incomplete_group(options_, missing));
    }
  }
}

// All go on, or nobody does: the first verdict stands, and a failure waits for nobody.
void Join::end_for_all(const Error& error) {
  throw_verdict(store_->compare_and_set("complete", std::nullopt, verdict_of(error)));
}

void Join::throw_if_failed() const {
  if (const auto verdict = store_->try_get("complete"); verdict && !verdict->empty()) throw_verdict(*verdict);
}

void Join::check_fits(int rank, const Announcement& other) const {
  if (other.size != options_.size) {
    throw InvalidArgument(Report{
        .what = fmt::format("ranks {} and {} differ in the size of group \"{}\"", options_.rank, rank, options_.name),
        .got = fmt::format("{} ranks, says rank {}", other.size, rank),
        .expected = fmt::format("{} ranks, says rank {}", options_.size, options_.rank),
        .fix = "start every rank of a job with the same number of ranks (WORLD_SIZE)"});
  }
  REIGEN_CHECK(other.connections == options_.connections,
               "ranks {} and {} of group \"{}\" want different numbers of connections\n  got: {}   expected: {}",
               options_.rank, rank, options_.name, other.connections, options_.connections);
}

// A launcher of ours tells the numbers of its processes; those of other machines are not found here.
void Join::check_not_stopped(const std::vector<int>& missing) const {
  for (const int q : missing) {
    const auto text = options_.store->try_get(fmt::format("process/{}", q));
    const pid_t pid = text ? static_cast<pid_t>(std::stol(*text)) : 0;
    if (pid == 0 || base::find_stopped(pid) == 0) continue;
    throw PeerLost(q, to_string(Report{.what = fmt::format("rank {} (host {}, pid {}) is stopped (SIGSTOP) "
                                                           "and has not joined group \"{}\"",
                                                           q, base::host_name(), pid, options_.name),
                                       .got = fmt::format("no word of it for {} s",
                                                          duration_cast<seconds>(options_.heartbeat_timeout).count()),
                                       .expected = fmt::format("{} ranks", options_.size),
                                       .fix = fmt::format("kill -CONT {} before the others lose patience", pid)}));
  }
}

// All connections through one address; none, and why, when it is not the right process that answers.
std::vector<net::Socket> Join::try_address(const net::Address& address, bool local, const Announcement& other,
                                           Refusal& refusal) {
  std::vector<net::Socket> sockets;
  for (int i = 0; i < connections_; ++i) {
    const Deadline deadline = Deadline::after(deadline_.remaining(kConnectTime));
    net::ConnectAttempt attempt = net::try_connect(address, deadline, local ? kLocalCongestion : "");
    if (!attempt.socket) {
      refusal.why = base::errno_text(attempt.error);
      refusal.at_once = attempt.error == ECONNREFUSED;
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
  std::vector<InterfaceAddress> addresses = other.addresses;
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
  // Refused everywhere, where it listened: it has ended. Ranks that are split off a group have reached each other.
  const bool ended =
      !refusals.empty() && std::all_of(refusals.begin(), refusals.end(), [](const auto& r) { return r.at_once; });
  if (ended) report.fix = "nobody listens there any more: see what that rank printed";
  if (ended || check_coming_) throw PeerLost(rank, to_string(report));
  throw BackendError(report);
}

void Join::wait_for_callers(Acceptor& acceptor) {
  while (!acceptor.wait(Deadline::after(deadline_.remaining(kJoinSlice)))) {
    throw_if_failed();
    const std::vector<int> missing = acceptor.missing();
    if (check_coming_) check_coming_(missing);
    if (Deadline::Clock::now() - since_ >= options_.heartbeat_timeout) check_not_stopped(missing);
    if (!deadline_.expired()) continue;
    throw Timeout(
        Report{.what = fmt::format("rank {} of {}: group \"{}\" is not connected after {} s", options_.rank,
                                   options_.size, options_.name, duration_cast<seconds>(options_.join_timeout).count()),
               .got = {},
               .expected = fmt::format("calls from ranks {}", fmt::join(missing, ", ")),
               .fix = "see what these ranks printed; a firewall that drops packets looks like this too"});
  }
}

std::vector<Neighbour> Join::run() {
  Announcement own{.host = base::host_name(),
                   .pid = ::getpid(),
                   .machine = machine_identity(),
                   .secret = random_word(),
                   .answer = random_word(),
                   .connections = options_.connections,
                   .size = options_.size,
                   .addresses = interface_addresses(base::environment::tcp_interface())};
  if (store_->add(fmt::format("joined/{}", options_.rank), 1) != 1) {
    throw InvalidArgument(joined_twice(options_));
  }
  Acceptor acceptor(own.secret, own.answer, options_.rank + 1, options_.size, connections_);
  own.port = acceptor.port();
  store_->set(fmt::format("rank/{}", options_.rank), to_text(own));
  std::vector<Neighbour> neighbours(static_cast<std::size_t>(options_.size));
  for (int q = 0; q < options_.size; ++q) {
    const std::string text = wait_for(fmt::format("rank/{}", q), "rank");
    Neighbour& neighbour = neighbours[static_cast<std::size_t>(q)];
    try {
      const Announcement other = parse(q, text);
      check_fits(q, other);
      neighbour.host = other.host;
      neighbour.pid = other.pid;
      neighbour.here = other.machine == own.machine;
      if (q < options_.rank) call(q, own, other, neighbour);
    } catch (const Error& error) {
      end_for_all(error);
    }
  }
  wait_for_callers(acceptor);
  store_->set(fmt::format("opened/{}", options_.rank), "");
  if (store_->add("opened", 1) == options_.size) store_->compare_and_set("complete", std::nullopt, "");
  const std::string verdict = wait_for("complete", "opened");
  if (!verdict.empty()) throw_verdict(verdict);
  for (int q = options_.rank + 1; q < options_.size; ++q) {
    neighbours[static_cast<std::size_t>(q)].sockets = acceptor.take(q);
  }
  return neighbours;
}

}  // namespace

std::vector<Neighbour> join(const GroupOptions& options, const CheckComing& check_coming) {
  return Join(options, check_coming).run();
}

}  // namespace reigen::comm::tcp
