// The TCP store's server: one thread, one event loop, one table.
//
// A connection is a stranger until it has sent a correct hello. Strangers have a deadline and a small limit on what
// they may send, and only kMaxStrangers of them are kept. After its hello a connection is a member. The server works on
// one request of a member at a time: while a reply waits to be sent, nothing more is read from that member, so that no
// client can make the server collect replies.
#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <exception>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "net/event_loop.h"
#include "net/frame.h"
#include "net/socket.h"
#include "reigen/store/tcp_store.h"
#include "store/table.h"
#include "store/tcp_protocol.h"

namespace reigen::store {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t kValueOverhead = 16;  // bytes that a reply of several values adds to each value, at most
constexpr auto kHelloLimit = 3s;            // time for the hello, from the moment of the connection
constexpr auto kExhaustedPause = 100ms;     // before accepting again after descriptors ran out
constexpr std::size_t kMaxStrangers = 256;  // if there are more, the oldest is dropped; a client tries again

struct Peer {
  explicit Peer(net::Socket connected) : socket(std::move(connected)) {}

  net::Socket socket;
  net::FrameReader reader{kMaxHello};
  net::FrameWriter writer;
  Deadline hello_deadline = Deadline::after(kHelloLimit);
  bool member = false;
  bool refused = false;                     // is dropped as soon as the refusal is sent
  bool doomed = false;                      // is dropped at the end of this pass of the event loop
  std::optional<std::string> awaited = {};  // key that this member's get waits for
};

// Compares in a time that does not depend on where the texts differ, because the job's identity is a secret.
bool same_secret(const std::string& left, const std::string& right) {
  unsigned difference = left.size() == right.size() ? 0 : 1;
  for (std::size_t i = 0; i < left.size() && !right.empty(); ++i) {
    difference |= static_cast<unsigned>(left[i] ^ right[i % right.size()]);
  }
  return difference == 0;
}

// Listens on `host` too, at the port of the first listener. Returns false if this port is taken and `may_pick_again`.
bool listen_also(std::vector<net::Listener>& listeners, const std::string& host, bool may_pick_again) {
  const std::uint16_t port = listeners.front().address().port();
  net::ListenAttempt attempt = net::try_listen(host, port);
  if (attempt.listener) {
    listeners.push_back(*std::move(attempt.listener));
    return true;
  }
  // EADDRNOTAVAIL comes from an IPv6 address that the kernel is still checking for duplicates, or that is a duplicate.
  if (attempt.error == EADDRNOTAVAIL) {
    base::log_info("the store does not listen on {}: {}", host, base::errno_text(attempt.error));
    return true;
  }
  if (attempt.error == EADDRINUSE && may_pick_again) return false;
  net::throw_cannot_listen(net::endpoint_text(host, port), attempt.error);
}

// Listens on all addresses at one port. A port that the kernel picked for the first address may be taken at one of the
// other addresses. In this case the kernel picks a new port for all addresses.
std::vector<net::Listener> listen_on(const TcpStoreServerOptions& options) {
  std::vector<net::Listener> listeners;
  if (!options.socket.empty()) {
    listeners.emplace_back(net::machine_address(options.socket));
    return listeners;
  }
  constexpr int kPicks = 16;
  for (int pick = 1;; ++pick) {
    listeners.clear();
    listeners.emplace_back(options.host, options.port);
    const bool may_pick_again = options.port == 0 && pick < kPicks;
    const auto listens = [&](const std::string& host) { return listen_also(listeners, host, may_pick_again); };
    if (std::all_of(options.also.begin(), options.also.end(), listens)) return listeners;
  }
}

class Server {
 public:
  explicit Server(const TcpStoreServerOptions& options) : job_(options.job), listeners_(listen_on(options)) {
    for (net::Listener& listener : listeners_) {
      loop_.watch(listener.fd(), POLLIN, [this, &listener](short) { accept_all(listener); });
    }
  }

  std::uint16_t port() const { return listeners_.front().address().port(); }
  void stop() {
    stop_ = true;
    loop_.wake();
  }

  void run() try {
    while (!stop_) {
      loop_.run_once(next_deadline());
      drop_late_strangers();
      drop_doomed();
      resume_accepting();
    }
  } catch (const std::exception& error) {
    base::log_line(base::LogLevel::kError, fmt::format("the job's store ends: {}", error.what()));
    peers_.clear();  // closes the connections, which the clients notice
  }

 private:
  Deadline next_deadline() const;
  void accept_all(net::Listener& listener);
  void resume_accepting();
  void drop_late_strangers();
  void drop_doomed();
  void doom(Peer& peer);

  void on_peer(int fd, short events);
  void read_from(Peer& peer);
  void greet(Peer& peer, const std::string& message);
  void serve(Peer& peer, const Request& request);
  void answer_get(Peer& peer, const std::string& key);
  void answer_all(Peer& peer, const std::vector<std::string>& keys);
  void cancel_wait(Peer& peer);
  void put(const std::string& key, const std::string& value);
  void reply(Peer& peer, const Reply& reply);
  void send(Peer& peer);

  const std::string job_;
  std::atomic<bool> stop_ = false;
  net::EventLoop loop_;
  std::vector<net::Listener> listeners_;  // does not change after the constructor
  std::optional<Deadline> accept_again_;  // set while accepting is paused
  bool warned_ = false;                   // the warning about the pause was printed
  std::unordered_map<int, Peer> peers_;
  std::vector<int> strangers_;  // oldest first
  std::vector<int> doomed_;
  std::unordered_map<std::string, std::vector<int>> waiters_;
  Table table_;
};

Deadline Server::next_deadline() const {
  Deadline next = accept_again_.value_or(Deadline::never());
  if (!strangers_.empty()) {
    next = Deadline::at(std::min(next.when(), peers_.at(strangers_.front()).hello_deadline.when()));
  }
  return next;
}

void Server::accept_all(net::Listener& listener) {
  for (;;) {
    net::Accepted accepted = listener.accept();
    if (accepted.exhausted) {
      if (!std::exchange(warned_, true)) {
        base::log_warning(
            "the store cannot accept all connections at once: out of descriptors or memory (see ulimit -n)");
      }
      for (const net::Listener& each : listeners_) loop_.change(each.fd(), 0);
      accept_again_ = Deadline::after(kExhaustedPause);
      return;
    }
    if (!accepted.socket) return;
    if (!net::is_of_this_user(*accepted.socket)) continue;
    const int fd = accepted.socket->fd();
    peers_.emplace(fd, Peer(*std::move(accepted.socket)));
    strangers_.push_back(fd);
    loop_.watch(fd, POLLIN, [this, fd](short events) { on_peer(fd, events); });
    if (strangers_.size() > kMaxStrangers) {
      doom(peers_.at(strangers_.front()));
      drop_doomed();
    }
  }
}

void Server::resume_accepting() {
  if (!accept_again_ || !accept_again_->expired()) return;
  accept_again_.reset();
  for (const net::Listener& listener : listeners_) loop_.change(listener.fd(), POLLIN);
}

void Server::drop_late_strangers() {
  for (const int fd : strangers_) {
    Peer& peer = peers_.at(fd);
    if (!peer.hello_deadline.expired()) break;  // the strangers after this one came later
    doom(peer);
  }
}

void Server::doom(Peer& peer) {
  if (peer.doomed) return;
  peer.doomed = true;
  doomed_.push_back(peer.socket.fd());
}

void Server::drop_doomed() {
  for (const int fd : std::exchange(doomed_, {})) {
    Peer& peer = peers_.at(fd);
    cancel_wait(peer);
    if (!peer.member) std::erase(strangers_, fd);
    loop_.forget(fd);
    peers_.erase(fd);
  }
}

// No input from one connection, not even an attack, may end the server, because other connections need it.
void Server::on_peer(int fd, short events) {
  Peer& peer = peers_.at(fd);
  try {
    if ((events & POLLERR) != 0) return doom(peer);
    if ((events & POLLOUT) != 0) send(peer);
    if (!peer.doomed && (events & (POLLIN | POLLHUP)) != 0) read_from(peer);
  } catch (const std::exception& error) {
    base::log_debug("the store drops a connection: {}", error.what());
    doom(peer);
  }
}

void Server::read_from(Peer& peer) {
  while (!peer.doomed && !peer.refused && peer.writer.empty()) {
    switch (peer.reader.read(peer.socket)) {
      case net::FrameReader::State::kWouldBlock: return;
      case net::FrameReader::State::kClosed: doom(peer); return;
      case net::FrameReader::State::kFrame: break;
    }
    const std::string message = peer.reader.take();
    if (peer.member) {
      serve(peer, decode_request(message));
    } else {
      greet(peer, message);
    }
  }
}

void Server::greet(Peer& peer, const std::string& message) {
  const std::optional<Hello> hello = decode_hello(message);
  if (!hello) {
    doom(peer);
    return;
  }
  Welcome welcome;
  if (hello->version != kProtocolVersion) {
    welcome.verdict = Verdict::kOtherVersion;
  } else if (!same_secret(hello->job, job_)) {
    welcome.verdict = Verdict::kOtherJob;
    welcome.fingerprint = job_fingerprint(job_);
  } else {
    peer.member = true;
    peer.reader.set_limit(kMaxMessage);
    std::erase(strangers_, peer.socket.fd());
  }
  peer.refused = !peer.member;
  peer.writer.add(encode(welcome));
  send(peer);
}

void Server::serve(Peer& peer, const Request& request) {
  const std::string& key = request.key;
  if (peer.awaited && request.operation != Operation::kPing && request.operation != Operation::kCancel) {
    throw DataError("a request while another one waits");
  }
  try {
    switch (request.operation) {
      case Operation::kSet: put(key, request.value); return reply(peer, {});
      case Operation::kGet: return answer_get(peer, key);
      case Operation::kTryGet:
        if (const std::string* value = table_.find(key)) return reply(peer, {.value = *value});
        return reply(peer, {.status = Status::kMissing});
      case Operation::kTryGetAll: return answer_all(peer, decode_keys(request.value));
      case Operation::kAdd: {
        const std::string sum = std::to_string(table_.sum(key, request.delta));
        put(key, sum);
        return reply(peer, {.value = sum});
      }
      case Operation::kCompareAndSet:
        if (table_.matches(key, request.expected)) put(key, request.value);
        return reply(peer, {.value = table_.held(key)});
      case Operation::kErase: return reply(peer, {.status = table_.erase(key) ? Status::kOk : Status::kMissing});
      case Operation::kCancel:
        if (!peer.awaited) return;
        cancel_wait(peer);
        return reply(peer, {.status = Status::kMissing});
      case Operation::kPing: return reply(peer, {.status = Status::kPong});
    }
  } catch (const InvalidArgument& error) {
    reply(peer, {.status = Status::kRefused, .value = error.what()});
  }
}

// Sends as many of the values as fit into a reply; the client asks again for the rest.
void Server::answer_all(Peer& peer, const std::vector<std::string>& keys) {
  std::vector<std::optional<std::string>> values;
  std::size_t bytes = 0;
  for (const std::string& key : keys) {
    const std::string* value = table_.find(key);
    bytes += kValueOverhead + (value == nullptr ? 0 : value->size());
    if (bytes > kMaxValue && !values.empty()) break;
    values.push_back(value == nullptr ? std::nullopt : std::optional(*value));
  }
  reply(peer, {.value = encode_values(values)});
}

void Server::answer_get(Peer& peer, const std::string& key) {
  if (const std::string* value = table_.find(key)) return reply(peer, {.value = *value});
  waiters_[key].push_back(peer.socket.fd());
  peer.awaited = key;
}

void Server::cancel_wait(Peer& peer) {
  if (!peer.awaited) return;
  const auto found = waiters_.find(*peer.awaited);
  std::erase(found->second, peer.socket.fd());
  if (found->second.empty()) waiters_.erase(found);
  peer.awaited.reset();
}

void Server::put(const std::string& key, const std::string& value) {
  table_.set(key, value);
  const auto found = waiters_.find(key);
  if (found == waiters_.end()) return;
  const std::vector<int> woken = std::move(found->second);
  waiters_.erase(found);
  for (const int fd : woken) {
    Peer& waiter = peers_.at(fd);
    waiter.awaited.reset();
    reply(waiter, {.value = value});
  }
}

void Server::reply(Peer& peer, const Reply& reply) {
  peer.writer.add(encode(reply));
  send(peer);
}

void Server::send(Peer& peer) {
  if (!peer.writer.flush(peer.socket) || (peer.refused && peer.writer.empty())) return doom(peer);
  loop_.change(peer.socket.fd(), peer.writer.empty() ? POLLIN : POLLOUT);
}

// The server's thread blocks all signals, so that they go to the program's own threads.
std::thread start_without_signals(Server& server) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread([&server] {
    pthread_setname_np(pthread_self(), "reigen-store");
    server.run();
  });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace

struct TcpStoreServer::Impl {
  explicit Impl(const TcpStoreServerOptions& options) : server(options), thread(start_without_signals(server)) {}
  ~Impl() {
    server.stop();
    thread.join();
  }

  Server server;
  std::thread thread;
};

TcpStoreServer::TcpStoreServer(const TcpStoreServerOptions& options) {
  check_job(options.job);
  impl_ = std::make_unique<Impl>(options);
}

TcpStoreServer::~TcpStoreServer() = default;

std::uint16_t TcpStoreServer::port() const { return impl_->server.port(); }

}  // namespace reigen::store
