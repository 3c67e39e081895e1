#include "store/tcp_connection.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "net/address.h"
#include "reigen/base/error.h"

namespace reigen::store {

namespace {

using namespace std::chrono_literals;

constexpr std::chrono::nanoseconds kFirstPause = 1ms;  // between attempts to connect; doubles up to kLastPause
constexpr std::chrono::nanoseconds kLastPause = 50ms;
constexpr std::chrono::nanoseconds kConnectTry = 2s;        // limit for one address, because packets may be lost
constexpr std::chrono::nanoseconds kFirstGreeting = 500ms;  // limit for a handshake; doubles, to spare a busy server
constexpr std::chrono::nanoseconds kLastGreeting = 4s;
constexpr std::chrono::nanoseconds kQuiet = 2s;          // how long the server may be silent before it gets a ping
constexpr std::chrono::nanoseconds kLeastPongWait = 1s;  // the shortest limit for the answer to a ping
constexpr std::chrono::nanoseconds kStoodStill = 2s;     // if a wait ends this much too late, the process was stopped
constexpr std::chrono::nanoseconds kSendWait = 10s;
constexpr std::chrono::nanoseconds kCancelWait = 1s;

std::string fingerprint_text(std::uint32_t fingerprint) { return fmt::format("job #{:08x}", fingerprint); }

[[noreturn]] void throw_refused(const Endpoint& endpoint, const Welcome& welcome) {
  if (welcome.verdict == Verdict::kOtherVersion) {
    throw BackendError(Report{.what = "the store at " + endpoint.text() + " is of another version of Reigen",
                              .got = fmt::format("store protocol {}", welcome.version),
                              .expected = fmt::format("store protocol {}", kProtocolVersion),
                              .fix = "use the same version of Reigen for the launcher and all ranks"},
                       ExitCode::kJobMismatch);
  }
  throw BackendError(
      Report{.what = "the store at " + endpoint.text() + " belongs to another job",
             .got = fingerprint_text(welcome.fingerprint),
             .expected = fingerprint_text(job_fingerprint(endpoint.job)) + " (this process)",
             .fix = "two jobs meet on one port: choose another port, or give all ranks the same REIGEN_JOB"},
      ExitCode::kJobMismatch);
}

using Greeted = std::variant<net::FrameReader, std::string>;  // a reader for the replies, or why the handshake failed

// Sends the hello and reads the answer. Throws BackendError when a server of another job or of another version answers.
Greeted greet(net::Socket& socket, const Endpoint& endpoint, const Deadline& deadline) {
  net::FrameReader reader(kMaxWelcome);
  try {
    net::write_frame(socket, encode(Hello{.job = endpoint.job}), deadline);
    const std::optional<std::string> answer = reader.wait(socket, deadline);
    if (!answer) return "something accepts connections there but does not answer as a store";
    const std::optional<Welcome> welcome = decode_welcome(*answer);
    if (!welcome) return "something answers there that is not a store of Reigen";
    if (welcome->verdict != Verdict::kWelcome) throw_refused(endpoint, *welcome);
    reader.set_limit(kMaxMessage);
    return reader;
  } catch (const DataError&) {
    return "something answers there that is not a store of Reigen";
  } catch (const Timeout&) {
    return "something accepts connections there but does not answer as a store";
  } catch (const net::ConnectionClosed& closed) {
    return fmt::format("the connection was closed during the handshake: {}", closed.what());
  }
}

// The client sends a ping after kQuiet without a message. The server has the rest of the heartbeat timeout to answer.
std::chrono::nanoseconds pong_wait(std::chrono::nanoseconds heartbeat_timeout) {
  return std::max<std::chrono::nanoseconds>(heartbeat_timeout - kQuiet, kLeastPongWait);
}

Deadline sooner(const Deadline& deadline, std::chrono::nanoseconds limit) {
  return Deadline::at(std::min(deadline.when(), Deadline::after(limit).when()));
}

}  // namespace

struct Connection::Round {
  std::optional<Connection> connection = {};
  std::vector<std::string> reasons = {};  // why there is no connection
  std::exception_ptr refusal = nullptr;   // the error when a server of another job or version answered
  bool unknown_host = false;              // a host name has no address (yet)
  bool nobody_listens = true;             // every address refused the connection
  bool unanswered = false;                // a server accepted a connection, but did not shake hands
  bool reached = false;                   // a machine answered, even if it refused the connection
};

void Connection::try_host(const Endpoint& endpoint, const std::string& host, const Deadline& deadline,
                          std::chrono::nanoseconds greeting, Round& round) {
  const bool named = !endpoint.socket.empty();
  const net::Resolution found = named ? net::Resolution{.addresses = {net::machine_address(endpoint.socket)}}
                                      : net::try_resolve(host, endpoint.port);
  if (!found.problem.empty()) {
    round.unknown_host = true;
    round.nobody_listens = false;
    round.reasons.push_back(fmt::format("host '{}' has no address: {}", host, found.problem));
  }
  for (const net::Address& address : found.addresses) {
    net::ConnectAttempt attempt = net::try_connect(address, sooner(deadline, kConnectTry));
    if (!attempt.socket) {
      round.reasons.push_back(fmt::format("{}: {}", address.to_string(), base::errno_text(attempt.error)));
      round.nobody_listens = round.nobody_listens && attempt.error == ECONNREFUSED;
      round.reached = round.reached || attempt.error == ECONNREFUSED;
      continue;
    }
    round.nobody_listens = false;
    round.reached = true;
    if (!net::is_of_this_user(*attempt.socket)) {
      round.reasons.push_back(address.to_string() + ": another user's program has this name");
      continue;
    }
    try {
      Greeted greeted = greet(*attempt.socket, endpoint, sooner(deadline, greeting));
      if (auto* reader = std::get_if<net::FrameReader>(&greeted)) {
        round.connection =
            Connection(*std::move(attempt.socket), std::move(*reader), host, pong_wait(endpoint.heartbeat_timeout));
        return;
      }
      round.reasons.push_back(std::get<std::string>(greeted));
      round.unanswered = true;
    } catch (const BackendError&) {
      if (!round.refusal) round.refusal = std::current_exception();
    }
  }
}

Connection::Round Connection::try_all(const Endpoint& endpoint, const Deadline& deadline,
                                      std::chrono::nanoseconds greeting) {
  Round round;
  for (const std::string& host : endpoint.hosts) {
    try_host(endpoint, host, deadline, greeting, round);
    if (round.connection) return round;
  }
  if (round.refusal) std::rethrow_exception(round.refusal);
  return round;
}

Connection Connection::open(const Endpoint& endpoint, const Deadline& deadline, Absent absent) {
  const auto since = Deadline::Clock::now();
  auto greeting = kFirstGreeting;
  bool warned = false;
  for (auto pause = kFirstPause;; pause = std::min(2 * pause, kLastPause)) {
    Round round = try_all(endpoint, deadline, greeting);
    if (round.connection) return *std::move(round.connection);
    if (round.unanswered) greeting = std::min(2 * greeting, kLastGreeting);
    const std::string reason = fmt::format("{}", fmt::join(round.reasons, "; "));
    // On clusters the name service may learn a machine's name only after the first clients have started, so the client
    // keeps trying. The warning makes a typing error in the name visible at once.
    if (round.unknown_host && !std::exchange(warned, true)) base::log_warning("{}; still trying", reason);
    if (deadline.expired() || (absent == Absent::kFail && round.nobody_listens)) {
      const std::chrono::duration<double> tried = Deadline::Clock::now() - since;
      throw NoAnswer(
          Report{.what = fmt::format("no store answers at {} (tried for {:.1f} s)", endpoint.text(), tried.count()),
                 .got = reason,
                 .fix = "check that the launcher or rank 0 runs there, that host and port are right, and that no "
                        "firewall is between"},
          reason, round.unknown_host && !round.reached);
    }
    std::this_thread::sleep_for(deadline.remaining(round.unknown_host ? kLastPause : pause));
  }
}

std::optional<Reply> Connection::call(const Request& request, const Deadline& deadline) {
  send(request);
  return wait(deadline);
}

void Connection::send(const Request& request) {
  try {
    net::write_frame(socket_, encode(request), Deadline::after(std::max(kSendWait, kQuiet + pong_wait_)));
  } catch (const Timeout& late) {
    throw net::ConnectionClosed(late.what());
  }
}

std::optional<Reply> Connection::cancel() {
  return call({.operation = Operation::kCancel}, Deadline::after(kCancelWait));
}

// The client notices a closed connection at once. It does not notice a stopped server, or a network that drops packets,
// so the client sends a ping after kQuiet without a message. The time limit for the pong starts at the ping. If this
// process was stopped in the meantime, the time limit starts again, because the server may have been stopped as well.
std::optional<Reply> Connection::wait(const Deadline& deadline) {
  for (;;) {
    const Deadline next_look = pong_due_ ? *pong_due_ : Deadline::after(kQuiet);
    const Deadline until = Deadline::at(std::min(deadline.when(), next_look.when()));
    if (const std::optional<std::string> message = reader_.wait(socket_, until)) {
      Reply reply = decode_reply(*message);
      if (reply.status != Status::kPong) return reply;
      pong_due_.reset();
      continue;
    }
    if (deadline.expired()) return std::nullopt;
    if (pong_due_ && Deadline::Clock::now() - until.when() > kStoodStill) {
      pong_due_ = Deadline::after(pong_wait_);
      continue;
    }
    if (pong_due_) throw net::ConnectionClosed(fmt::format("no sign of life for {} s", (kQuiet + pong_wait_) / 1s));
    send({.operation = Operation::kPing});
    pong_due_ = Deadline::after(pong_wait_);
  }
}

}  // namespace reigen::store
