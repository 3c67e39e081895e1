// The job's store on rank 0, if rank 0 serves it: the server, and rank 0's own connection to the server.
// Thread rule: that of store::Store.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "reigen/base/deadline.h"
#include "reigen/store/store.h"
#include "reigen/store/tcp_store.h"

namespace reigen::launch {

class ServedStore final : public store::Store {
 public:
  // Throws the errors of TcpStoreServer and connect_tcp_store().
  ServedStore(const store::TcpStoreServerOptions& options, const Deadline& deadline,
              std::chrono::milliseconds heartbeat_timeout);

  std::uint16_t port() const { return server_.port(); }

  void set(const std::string& key, const std::string& value) override { client_->set(key, value); }
  std::string get(const std::string& key, const Deadline& deadline) override { return client_->get(key, deadline); }
  std::optional<std::string> try_get(const std::string& key) override { return client_->try_get(key); }
  std::vector<std::optional<std::string>> try_get_all(const std::vector<std::string>& keys) override {
    return client_->try_get_all(keys);
  }
  std::int64_t add(const std::string& key, std::int64_t delta) override { return client_->add(key, delta); }
  std::string compare_and_set(const std::string& key, const std::optional<std::string>& expected,
                              const std::string& desired) override {
    return client_->compare_and_set(key, expected, desired);
  }
  bool erase(const std::string& key) override { return client_->erase(key); }

 private:
  store::TcpStoreServer server_;
  std::shared_ptr<store::Store> client_;  // is destroyed before the server
};

}  // namespace reigen::launch
