#include "store/tcp_connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
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

constexpr std::chrono::nanoseconds kFirstPause = 1ms;  // between tries to connect; doubles up to the last
constexpr std::chrono::nanoseconds kLastPause = 50ms;
constexpr std::chrono::nanoseconds kConnectTry = 2s;        // of one address: packets may vanish
constexpr std::chrono::nanoseconds kFirstGreeting = 500ms;  // of one try; doubles, so that a busy server is not flooded
constexpr std::chrono::nanoseconds kLastGreeting = 4s;
constexpr std::chrono::nanoseconds kQuiet = 2s;  // without a word from the server before it is asked for a sign of life
constexpr std::chrono::nanoseconds kPongWait = 8s;  // for that sign
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

using Greeted = std::variant<net::FrameReader, std::string>;  // a reader for what follows, or why not

// Says hello and reads the answer. Throws BackendError when a server of ours refuses us.
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

Deadline sooner(const Deadline& deadline, std::chrono::nanoseconds limit) {
  return Deadline::at(std::min(deadline.when(), Deadline::after(limit).when()));
}

}  // namespace

struct Connection::Round {
  std::optional<Connection> connection = {};
  std::string reason = {};      // why there is none
  bool unknown_host = false;    // the name has no address (yet)
  bool nobody_listens = false;  // every address refused
  bool unanswered = false;      // somebody accepted, but did not shake hands
};

Connection::Round Connection::try_all(const Endpoint& endpoint, const Deadline& deadline,
                                      std::chrono::nanoseconds greeting) {
  std::vector<net::Address> addresses;
  try {
    addresses = net::resolve(endpoint.host, endpoint.port);
  } catch (const BackendError& unknown) {
    return {.reason = unknown.what(), .unknown_host = true};
  }
  Round round{.nobody_listens = true};
  for (const net::Address& address : addresses) {
    net::ConnectAttempt attempt = net::try_connect(address, sooner(deadline, kConnectTry));
    if (!attempt.socket) {
      round.reason = fmt::format("{}: {}", address.to_string(), base::errno_text(attempt.error));
      round.nobody_listens = round.nobody_listens && attempt.error == ECONNREFUSED;
      continue;
    }
    round.nobody_listens = false;
    Greeted greeted = greet(*attempt.socket, endpoint, sooner(deadline, greeting));
    if (auto* reader = std::get_if<net::FrameReader>(&greeted)) {
      round.connection = Connection(*std::move(attempt.socket), std::move(*reader));
      return round;
    }
    round.reason = std::get<std::string>(greeted);
    round.unanswered = true;
  }
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
    // On clusters the name of a machine may appear after its first client; a typing error should show at once.
    if (round.unknown_host && !std::exchange(warned, true)) base::log_warning("{}\n  still trying", round.reason);
    if (deadline.expired() || (absent == Absent::kFail && round.nobody_listens)) {
      const std::chrono::duration<double> tried = Deadline::Clock::now() - since;
      throw Timeout(
          Report{.what = fmt::format("no store answers at {} (tried for {:.1f} s)", endpoint.text(), tried.count()),
                 .got = round.reason,
                 .fix = "check that the launcher or rank 0 runs there, that host and port are right, and that no "
                        "firewall is between"});
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
    net::write_frame(socket_, encode(request), Deadline::after(kSendWait));
  } catch (const Timeout& late) {
    throw net::ConnectionClosed(late.what());
  }
}

std::optional<Reply> Connection::cancel() {
  return call({.operation = Operation::kCancel}, Deadline::after(kCancelWait));
}

// A closed connection is seen at once. A server that is stopped, or a network that lost it, is not: it is asked for a
// sign of life. The time counts from that question, so that it does not matter if this process was stopped itself.
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
    if (pong_due_) throw net::ConnectionClosed(fmt::format("no sign of life for {} s", (kQuiet + kPongWait) / 1s));
    send({.operation = Operation::kPing});
    pong_due_ = Deadline::after(kPongWait);
  }
}

}  // namespace reigen::store
