#include "launch/meet/agent_store.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>

#include <array>
#include <chrono>
#include <cstring>
#include <span>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "reigen/base/error.h"

namespace reigen::launch {

namespace {

using namespace std::chrono_literals;

// The numbers come from torch/csrc/distributed/c10d/TCPStoreBackend.hpp.
enum class Query : std::uint8_t { kValidate = 0, kSet = 1, kGet = 3, kCheck = 5, kWait = 6, kDeleteKey = 8 };
constexpr std::uint32_t kValidationNumber = 0x3C85F7CE;
constexpr char kReady = 0;        // answer to kCheck: all keys exist
constexpr char kStopWaiting = 0;  // answer to kWait: all keys exist now

constexpr std::uint64_t kMaxText = 64 * 1024;
constexpr auto kAnswerTime = 30s;  // long, because an agent that serves thousands of ranks is busy
constexpr auto kConnectTime = 2s;  // limit for a connection to one address
constexpr auto kGreetTime = 5s;
constexpr auto kAgentPause = 50ms;

template <class Number>
void put(std::string& out, Number number) {
  std::array<char, sizeof(Number)> bytes;
  std::memcpy(bytes.data(), &number, sizeof(Number));
  out.append(bytes.data(), bytes.size());
}

void put_text(std::string& out, const std::string& text) {
  put(out, static_cast<std::uint64_t>(text.size()));
  out += text;
}

std::string request_of(Query query) { return std::string(1, static_cast<char>(query)); }

std::string request_of_keys(Query query, const std::vector<std::string>& keys) {
  std::string request = request_of(query);
  put(request, static_cast<std::uint64_t>(keys.size()));
  for (const std::string& key : keys) put_text(request, key);
  return request;
}

}  // namespace

// Connects and sends two requests at once (validate, check). A store of another kind answers the second request wrongly
// or not at all. So the answer shows whether the store is PyTorch's.
bool AgentStore::open(const net::Address& address, const Deadline& deadline, std::string& reason) {
  net::ConnectAttempt attempt = net::try_connect(address, Deadline::after(deadline.remaining(kConnectTime)));
  if (!attempt.socket) {
    reason = fmt::format("{}: {}", address.to_string(), base::errno_text(attempt.error));
    return false;
  }
  socket_ = *std::move(attempt.socket);
  std::string greeting = request_of(Query::kValidate);
  put(greeting, kValidationNumber);
  try {
    send(greeting + request_of_keys(Query::kCheck, {"reigen"}));
    const auto answer = receive(1, Deadline::after(deadline.remaining(kGreetTime)));
    if (answer && (*answer)[0] <= 1) return true;
    reason = fmt::format("{}: what listens there is no store of PyTorch 2.1 or newer", address.to_string());
  } catch (const Error& error) {
    reason = fmt::format("{}: {}", address.to_string(), error.what());
  }
  socket_.reset();
  return false;
}

AgentStore::AgentStore(const std::string& host, std::uint16_t port, const Deadline& deadline)
    : place_(net::endpoint_text(host, port)) {
  bool warned = false;
  for (;;) {
    const net::Resolution found = net::try_resolve(host, port);
    std::vector<std::string> reasons;
    if (!found.problem.empty()) {
      reasons.push_back(fmt::format("host '{}' has no address: {}", host, found.problem));
      if (!std::exchange(warned, true)) base::log_warning("{}; still trying", reasons.back());
    }
    for (const net::Address& address : found.addresses) {
      std::string reason;
      if (open(address, deadline, reason)) return;
      reasons.push_back(reason);
    }
    if (deadline.expired()) {
      throw Timeout(Report{.what = fmt::format("torchrun's agent does not answer at {}", place_),
                           .got = fmt::format("{}", fmt::join(reasons, "; ")),
                           .expected = "the store of torchrun's agent at MASTER_ADDR and MASTER_PORT",
                           .fix = "is the agent of node 0 running, and can this host reach it? "
                                  "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 lets rank 0 listen there instead"});
    }
    std::this_thread::sleep_for(deadline.remaining(kAgentPause));
  }
}

void AgentStore::send(const std::string& request) { socket_->write_all(request, Deadline::after(kAnswerTime)); }

std::optional<std::string> AgentStore::receive(std::size_t bytes, const Deadline& deadline) {
  std::string text(bytes, '\0');
  std::size_t got = 0;
  while (got < bytes) {
    const net::Transfer moved = socket_->read_some(std::span(text).subspan(got));
    if (moved.closed) throw net::ConnectionClosed(net::to_string(moved));
    got += moved.bytes;
    if (moved.bytes == 0 && !net::wait_ready(socket_->fd(), POLLIN, deadline)) return std::nullopt;
  }
  return text;
}

std::string AgentStore::receive_answer(std::size_t bytes) {
  auto text = receive(bytes, Deadline::after(kAnswerTime));
  if (text) return *std::move(text);
  throw Timeout(Report{.what = fmt::format("torchrun's agent at {} does not answer any more", place_),
                       .fix = "see what torchrun printed on node 0"});
}

void AgentStore::set(const std::string& key, const std::string& value) {
  std::string request = request_of(Query::kSet);
  put_text(request, key);
  put_text(request, value);
  send(request);
}

bool AgentStore::has(const std::string& key) {
  send(request_of_keys(Query::kCheck, {key}));
  return receive_answer(1)[0] == kReady;
}

void AgentStore::erase(const std::string& key) {
  std::string request = request_of(Query::kDeleteKey);
  put_text(request, key);
  send(request);
  receive_answer(sizeof(std::int64_t));  // the number of keys that were deleted
}

bool AgentStore::wait(const std::vector<std::string>& keys, const Deadline& deadline) {
  if (keys.empty()) return true;
  send(request_of_keys(Query::kWait, keys));
  const auto answer = receive(1, deadline);
  return answer && (*answer)[0] == kStopWaiting;
}

std::string AgentStore::get(const std::string& key) {
  std::string request = request_of(Query::kGet);
  put_text(request, key);
  send(request);
  std::uint64_t size = 0;
  const std::string bytes = receive_answer(sizeof(size));
  std::memcpy(&size, bytes.data(), sizeof(size));
  if (size > kMaxText) {
    throw DataError(Report{.what = fmt::format("torchrun's agent at {} gave a value that is none of ours", place_),
                           .got = fmt::format("key {}: {} bytes", key, size),
                           .expected = fmt::format("at most {}", kMaxText)});
  }
  return receive_answer(static_cast<std::size_t>(size));
}

}  // namespace reigen::launch
