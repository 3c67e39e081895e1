#include "comm/tcp/acceptor.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "base/log.h"
#include "net/wire.h"
#include "reigen/base/error.h"

namespace reigen::comm::tcp {

namespace {

constexpr std::size_t kGreetingMax = 256;
constexpr auto kGreetingTime = std::chrono::seconds(5);
constexpr int kSliceMilliseconds = 50;

// Listens for IPv6 and IPv4 through one socket if the kernel has IPv6, else for IPv4 only.
net::Listener listen_everywhere() {
  try {
    return net::Listener("::", 0);
  } catch (const BackendError&) {
    return net::Listener("0.0.0.0", 0);
  }
}

}  // namespace

bool in_one_machine(const net::Socket& socket) {
  const auto host = [](const net::Address& address) {
    const std::string text = address.to_string();
    return text.substr(0, text.rfind(':'));
  };
  return host(socket.local_address()) == host(socket.peer_address());
}

std::string to_bytes(const Greeting& greeting) {
  std::string bytes;
  net::put_bytes(bytes, greeting.secret);
  net::put_u32(bytes, greeting.rank);
  net::put_u32(bytes, greeting.connection);
  return bytes;
}

Acceptor::Acceptor(std::string secret, std::string answer, int first, int size, int connections,
                   const std::string& host)
    : secret_(std::move(secret)),
      answer_(std::move(answer)),
      first_(first),
      listener_(host.empty() ? listen_everywhere() : net::Listener(host, 0)),
      accepted_(static_cast<std::size_t>(size)) {
  for (auto& sockets : accepted_) sockets.resize(static_cast<std::size_t>(connections));
  // Accepted connections inherit the congestion control of the listener. For connections from other machines, greet()
  // restores the usual congestion control.
  usual_congestion_ = net::congestion_control(listener_.fd());
  net::set_congestion_control(listener_.fd(), kLocalCongestion);
  thread_ = std::thread([this] { serve(); });
}

Acceptor::~Acceptor() {
  stop_.store(true);
  thread_.join();
}

bool Acceptor::complete() const {
  return std::all_of(accepted_.begin() + first_, accepted_.end(), [](const auto& sockets) {
    return std::all_of(sockets.begin(), sockets.end(), [](const auto& socket) { return socket.has_value(); });
  });
}

bool Acceptor::wait(const Deadline& deadline) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, deadline.remaining(std::chrono::hours(1)), [&] { return complete(); });
}

std::vector<int> Acceptor::missing() {
  std::lock_guard lock(mutex_);
  std::vector<int> ranks;
  for (int q = first_; q < static_cast<int>(accepted_.size()); ++q) {
    const auto& sockets = accepted_[static_cast<std::size_t>(q)];
    if (!std::all_of(sockets.begin(), sockets.end(), [](const auto& s) { return s.has_value(); })) ranks.push_back(q);
  }
  return ranks;
}

std::vector<net::Socket> Acceptor::take(int rank) {
  std::lock_guard lock(mutex_);
  std::vector<net::Socket> sockets;
  for (auto& socket : accepted_[static_cast<std::size_t>(rank)]) sockets.push_back(std::move(*socket));
  return sockets;
}

bool Acceptor::greet(Caller& caller) {
  if (caller.deadline.expired()) return false;
  try {
    const auto state = caller.reader.read(caller.socket);
    if (state != net::FrameReader::State::kFrame) return state == net::FrameReader::State::kWouldBlock;
    const std::string frame = caller.reader.take();
    net::WireReader in(frame);
    const bool known = in.bytes() == secret_;
    const auto rank = static_cast<std::size_t>(in.u32());
    const auto connection = static_cast<std::size_t>(in.u32());
    if (!known || rank < static_cast<std::size_t>(first_) || rank >= accepted_.size() ||
        connection >= accepted_[rank].size()) {
      base::log_warning("refused a connection from {} that is none of this group's",
                        caller.socket.peer_address().to_string());
      return false;
    }
    if (!in_one_machine(caller.socket)) net::set_congestion_control(caller.socket.fd(), usual_congestion_);
    std::lock_guard lock(mutex_);  // locked for both lines, so that a caller with an answer is in accepted_
    net::write_frame(caller.socket, answer_, Deadline::after(kGreetingTime));
    accepted_[rank][connection].emplace(std::move(caller.socket));
    changed_.notify_all();
  } catch (const Error& error) {
    base::log_debug("a caller gave up: {}", error.what());
  }
  return false;
}

void Acceptor::serve() {
  std::vector<Caller> callers;
  const auto done = [&] {
    std::lock_guard lock(mutex_);
    return complete();
  };
  while (!stop_.load() && !done()) {
    std::vector<pollfd> polled{{listener_.fd(), POLLIN, 0}};
    for (const Caller& caller : callers) polled.push_back({caller.socket.fd(), POLLIN, 0});
    if (::poll(polled.data(), polled.size(), kSliceMilliseconds) < 0) continue;
    for (net::Accepted next = listener_.accept(); next.socket; next = listener_.accept()) {
      callers.push_back({std::move(*next.socket), net::FrameReader(kGreetingMax), Deadline::after(kGreetingTime)});
    }
    std::erase_if(callers, [this](Caller& caller) { return !greet(caller); });
  }
}

}  // namespace reigen::comm::tcp
