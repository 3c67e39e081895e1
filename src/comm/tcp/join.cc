#include "comm/tcp/join.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <random>
#include <sstream>

#include "base/check.h"
#include "base/environment.h"
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
  std::vector<InterfaceAddress> addresses;
};

std::string random_word() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", device(), device(), device(), device());
}

std::string to_text(const Announcement& a) {
  std::string text = fmt::format("{} {} {} {} {} {} {} {}", a.version, a.host, a.pid, a.machine, a.secret, a.answer,
                                 a.port, a.connections);
  for (const auto& address : a.addresses) text += fmt::format(" {} {}", address.host, address.loopback ? 1 : 0);
  return text;
}

Announcement parse(int rank, const std::string& text) {
  Announcement a;
  std::istringstream in(text);
  in >> a.version >> a.host >> a.pid >> a.machine >> a.secret >> a.answer >> a.port >> a.connections;
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
  void check_not_stopped(const std::vector<int>& missing) const;
  void call(int rank, const Announcement& own, const Announcement& other, Neighbour& neighbour);
  std::vector<net::Socket> try_address(const net::Address& address, bool local, const Announcement& other,
                                       std::string& why);
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
      if (check_coming_) check_coming_(missing);
      if (check_coming_) check_coming_(missing);
      if (Deadline::Clock::now() - since_ >= options_.heartbeat_timeout) check_not_stopped(missing);
      if (!deadline_.expired()) continue;
      throw Timeout(incomplete_group(options_, missing));
    }
  }
}

// A launcher of ours tells the numbers of its processes; those of other machines are not found here.
void Join::check_not_stopped(const std::vector<int>& missing) const {
  for (const int q : missing) {
    const auto text = options_.store->try_get(fmt::format("process/{}", q));
    const pid_t pid = text ? static_cast<pid_t>(std::stol(*text)) : 0;
    if (pid == 0 || base::find_stopped(pid) == 0) continue;
    throw PeerLost(q, to_string(Report{.what = fmt::format("rank {} (host {}, pid {}) is stopped (SIGSTOP) "
                                                           "and has not joined group \"{}\"",
                                                           q, host_name(), pid, options_.name),
                                       .got = fmt::format("no word of it for {} s",
                                                          duration_cast<seconds>(options_.heartbeat_timeout).count()),
                                       .expected = fmt::format("{} ranks", options_.size),
                                       .fix = fmt::format("kill -CONT {} before the others lose patience", pid)}));
  }
}

// All connections through one address; none, and why, when it is not the right process that answers.
std::vector<net::Socket> Join::try_address(const net::Address& address, bool local, const Announcement& other,
                                           std::string& why) {
  std::vector<net::Socket> sockets;
  for (int i = 0; i < connections_; ++i) {
    const Deadline deadline = Deadline::after(deadline_.remaining(kConnectTime));
    net::ConnectAttempt attempt = net::try_connect(address, deadline, local ? kLocalCongestion : "");
    if (!attempt.socket) {
      why = base::errno_text(attempt.error);
      return {};
    }
    try {
      const Greeting greeting{other.secret, static_cast<std::uint32_t>(options_.rank), static_cast<std::uint32_t>(i)};
      net::write_frame(*attempt.socket, to_bytes(greeting), deadline);
      net::FrameReader reader(kAnswerMax);
      const auto answer = reader.wait(*attempt.socket, deadline);
      if (!answer || *answer != other.answer) {
        why = answer ? "another program answers there" : "no answer";
        return {};
      }
    } catch (const Error& error) {
      why = error.what();
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
  std::vector<std::string> failures;
  for (const auto& candidate : addresses) {
    for (const net::Address& address : net::resolve(candidate.host, other.port)) {
      std::string why;
      neighbour.sockets = try_address(address, candidate.loopback, other, why);
      if (!neighbour.sockets.empty()) {
        base::log_debug("group \"{}\": rank {} reaches rank {} at {}", options_.name, options_.rank, rank,
                        address.to_string());
        return;
      }
      failures.push_back(fmt::format("{}: {}", address.to_string(), why));
    }
  }
  throw BackendError(Report{
      .what = fmt::format("rank {} (host {}) cannot reach rank {} (host {}, pid {}) of group \"{}\"", options_.rank,
                          own.host, rank, other.host, other.pid, options_.name),
      .got =
          failures.empty() ? "no address that other machines can reach" : fmt::format("{}", fmt::join(failures, "; ")),
      .expected = "a connection to one of its addresses",
      .fix = "open the firewall between the hosts, or name the interface that both share (REIGEN_TCP_INTERFACE=eth0)"});
}

// A rank that failed says so in the store: nobody waits for its call then.
void Join::wait_for_callers(Acceptor& acceptor) {
  while (!acceptor.wait(Deadline::after(deadline_.remaining(kJoinSlice)))) {
    if (store_->try_get("failure")) return;
    const std::vector<int> missing = acceptor.missing();
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
  Announcement own{.host = host_name(),
                   .pid = ::getpid(),
                   .machine = machine_identity(),
                   .secret = random_word(),
                   .answer = random_word(),
                   .connections = options_.connections,
                   .addresses = interface_addresses(base::environment::tcp_interface())};
  if (store_->add(fmt::format("joined/{}", options_.rank), 1) != 1) {
    throw InvalidArgument(joined_twice(options_));
  }
  Acceptor acceptor(own.secret, own.answer, options_.rank + 1, options_.size, connections_);
  own.port = acceptor.port();
  store_->set(fmt::format("rank/{}", options_.rank), to_text(own));
  std::vector<Neighbour> neighbours(static_cast<std::size_t>(options_.size));
  std::string failure;
  for (int q = 0; q < options_.size; ++q) {
    const std::string text = wait_for(fmt::format("rank/{}", q), "rank");
    Neighbour& neighbour = neighbours[static_cast<std::size_t>(q)];
    try {
      const Announcement other = parse(q, text);
      REIGEN_CHECK(other.connections == options_.connections,
                   "ranks {} and {} of group \"{}\" want different numbers of connections\n  got: {}   expected: {}",
                   options_.rank, q, options_.name, other.connections, options_.connections);
      neighbour.host = other.host;
      neighbour.pid = other.pid;
      neighbour.here = other.machine == own.machine;
      if (q < options_.rank) call(q, own, other, neighbour);
    } catch (const Error& error) {
      if (failure.empty()) failure = error.what();
    }
  }
  // All go on, or nobody does.
  if (!failure.empty()) store_->compare_and_set("failure", std::nullopt, failure);
  if (failure.empty()) wait_for_callers(acceptor);
  store_->set(fmt::format("opened/{}", options_.rank), "");
  if (store_->add("opened", 1) == options_.size) store_->set("complete", store_->try_get("failure").value_or(""));
  const std::string verdict = wait_for("complete", "opened");
  if (!verdict.empty()) throw BackendError(verdict);
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
