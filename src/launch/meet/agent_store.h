// A client of the key/value store that torchrun's agent serves for its ranks (PyTorch's TCPStore).
//
// The client speaks the protocol that PyTorch has used since 2.1, and needs six of its requests. A request begins with
// a byte for its kind. Numbers in this machine's byte order follow, and texts with a u64 length before each. This
// client limits texts to 64 KiB. Thread rule: one thread.
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
  // Tries again until the deadline. Throws Timeout when no PyTorch store answers at any address of the host.
  AgentStore(const std::string& host, std::uint16_t port, const Deadline& deadline);

  void set(const std::string& key, const std::string& value);
  bool has(const std::string& key);
  void erase(const std::string& key);
  // Waits until all keys exist. Returns false if the deadline passes first; after that the connection cannot be used
  // any more.
  bool wait(const std::vector<std::string>& keys, const Deadline& deadline);
  // Returns the value of a key, which must exist.
  std::string get(const std::string& key);

 private:
  bool open(const net::Address& address, const Deadline& deadline, std::string& reason);
  void send(const std::string& request);
  std::optional<std::string> receive(std::size_t bytes, const Deadline& deadline);
  std::string receive_answer(std::size_t bytes);

  std::string place_;  // host and port, for messages
  std::optional<net::Socket> socket_;
};

}  // namespace reigen::launch
