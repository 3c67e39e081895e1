// A client of the key/value store that torchrun's agent serves for its ranks (PyTorch's TCPStore).
//
// The protocol as PyTorch speaks it since 2.1, of which six requests are used: a byte that says what is asked, then
// numbers of this machine's byte order and texts with a u64 length before them. Texts are at most 64 KiB here.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "net/socket.h"
#include "reigen/base/deadline.h"

namespace reigen::launch {

class AgentStore {
 public:
  // Tries again until the deadline. Throws Timeout when no such store answers at any address of the host.
  AgentStore(const std::string& host, std::uint16_t port, const Deadline& deadline);

  void set(const std::string& key, const std::string& value);
  bool has(const std::string& key);
  void erase(const std::string& key);
  // Waits until all keys are there; false: the deadline passed, and the connection is of no more use.
  bool wait(const std::vector<std::string>& keys, const Deadline& deadline);
  // Of a key that is there.
  std::string get(const std::string& key);

 private:
  bool open(const net::Address& address, const Deadline& deadline, std::string& reason);
  void send(const std::string& request);
  std::optional<std::string> receive(std::size_t bytes, const Deadline& deadline);
  std::string receive_answer(std::size_t bytes);

  std::string place_;  // for messages
  std::optional<net::Socket> socket_;
};

}  // namespace reigen::launch
