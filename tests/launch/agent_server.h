// The store that torchrun's agent serves for its ranks, PyTorch's TCPStore, as far as Reigen's ranks use it.
// The answers to requests were recorded from PyTorch 2.11.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "reigen/base/unique_fd.h"

namespace reigen::launch {

class AgentServer {
 public:
  // Listens on every address, like PyTorch's store. If not `answers`, it receives data but never answers.
  explicit AgentServer(bool answers = true);
  ~AgentServer();
  AgentServer(const AgentServer&) = delete;  // its threads refer to it
  AgentServer& operator=(const AgentServer&) = delete;

  std::uint16_t port() const { return port_; }
  void set(const std::string& key, const std::string& value);
  std::map<std::string, std::string> table();

 private:
  void accept_all();
  void serve(int client);
  bool answer(int client, char query);
  bool has_all(const std::vector<std::string>& keys);

  const bool answers_;
  UniqueFd listener_;
  std::uint16_t port_ = 0;
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::map<std::string, std::string> table_;
  std::vector<std::thread> clients_;
  std::thread thread_;
};

}  // namespace reigen::launch
