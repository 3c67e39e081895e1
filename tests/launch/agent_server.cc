#include "agent_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <stdexcept>

namespace reigen::launch {

namespace {

constexpr int kSliceMilliseconds = 20;
constexpr std::uint32_t kMagic = 0x3C85F7CE;

bool wait_readable(int fd) {
  pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
  return ::poll(&entry, 1, kSliceMilliseconds) > 0;
}

// Returns false if the client has closed its connection.
bool take(int client, void* into, std::size_t bytes) {
  return bytes == 0 || ::recv(client, into, bytes, MSG_WAITALL) == static_cast<ssize_t>(bytes);
}

template <class Number>
bool take_number(int client, Number& number) {
  return take(client, &number, sizeof number);
}

bool take_text(int client, std::string& text) {
  std::uint64_t size = 0;
  if (!take_number(client, size) || size > 1 << 20) return false;
  text.resize(size);
  return take(client, text.data(), text.size());
}

bool take_texts(int client, std::vector<std::string>& texts) {
  std::uint64_t count = 0;
  if (!take_number(client, count) || count > 1 << 17) return false;
  texts.resize(count);
  for (std::string& text : texts) {
    if (!take_text(client, text)) return false;
  }
  return true;
}

bool give(int client, const std::string& bytes) {
  return ::send(client, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
}

std::string bytes_of(std::uint64_t number) {
  std::string bytes(sizeof number, '\0');
  std::memcpy(bytes.data(), &number, sizeof number);
  return bytes;
}

}  // namespace

AgentServer::AgentServer(bool answers)
    : answers_(answers), listener_(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const int both = 0;
  ::setsockopt(listener_.get(), IPPROTO_IPV6, IPV6_V6ONLY, &both, sizeof both);
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  socklen_t size = sizeof address;
  if (::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(listener_.get(), 64) != 0 ||
      ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    throw std::runtime_error("no agent");
  }
  port_ = ntohs(address.sin6_port);
  thread_ = std::thread([this] { accept_all(); });
}

AgentServer::~AgentServer() {
  stop_ = true;
  thread_.join();
  for (std::thread& client : clients_) client.join();
}

void AgentServer::set(const std::string& key, const std::string& value) {
  const std::lock_guard lock(mutex_);
  table_[key] = value;
}

std::map<std::string, std::string> AgentServer::table() {
  const std::lock_guard lock(mutex_);
  return table_;
}

void AgentServer::accept_all() {
  while (!stop_) {
    if (!wait_readable(listener_.get())) continue;
    const int client = ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC);
    if (client >= 0) clients_.emplace_back([this, client] { serve(client); });
  }
}

void AgentServer::serve(int client) {
  bool validated = false;
  while (!stop_) {
    if (!wait_readable(client)) continue;
    char query = 0;
    if (!take_number(client, query)) break;
    if (!answers_) continue;
    if (validated) {
      if (!answer(client, query)) break;
      continue;
    }
    std::uint32_t magic = 0;
    if (query != 0 || !take_number(client, magic) || magic != kMagic) break;
    validated = true;
  }
  ::close(client);
}

bool AgentServer::has_all(const std::vector<std::string>& keys) {
  const std::lock_guard lock(mutex_);
  for (const std::string& key : keys) {
    if (!table_.contains(key)) return false;
  }
  return true;
}

bool AgentServer::answer(int client, char query) {
  std::string key;
  std::string value;
  std::vector<std::string> keys;
  switch (query) {
    case 1:  // set
      if (!take_text(client, key) || !take_text(client, value)) return false;
      set(key, value);
      return true;
    case 3: {  // get
      if (!take_text(client, key)) return false;
      const std::lock_guard lock(mutex_);
      const std::string& found = table_[key];
      return give(client, bytes_of(found.size()) + found);
    }
    case 5:  // check: 0 means that all keys exist
      return take_texts(client, keys) && give(client, std::string(1, has_all(keys) ? '\0' : '\1'));
    case 6:  // wait
      if (!take_texts(client, keys)) return false;
      while (!has_all(keys) && !stop_) ::usleep(1000);
      return give(client, std::string(1, '\0'));
    case 8: {  // delete
      if (!take_text(client, key)) return false;
      const std::lock_guard lock(mutex_);
      return give(client, bytes_of(table_.erase(key)));
    }
    default: return false;
  }
}

}  // namespace reigen::launch
