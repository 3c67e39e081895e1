// One connection of a client to the TCP store's server: connect, shake hands, then one call at a time.
// Thread rule: one thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "net/frame.h"
#include "net/socket.h"
#include "reigen/base/deadline.h"
#include "store/tcp_protocol.h"

namespace reigen::store {

struct Endpoint {
  std::string host;
  std::uint16_t port;
  std::string job;
  std::string text() const { return net::endpoint_text(host, port); }
};

class Connection {
 public:
  // When nobody listens: the server may start later, or was there before and has ended.
  enum class Absent { kRetry, kFail };

  // Tries again and again until the deadline. Throws Timeout with the last reason, BackendError (76) when another job
  // or version answers.
  static Connection open(const Endpoint& endpoint, const Deadline& deadline, Absent absent);

  // Sends the request and waits for its reply; nullopt when the deadline passed first. While it waits it makes sure
  // that the server lives. Throws net::ConnectionClosed when it does not; the connection is then of no more use.
  std::optional<Reply> call(const Request& request, const Deadline& deadline);

  // After call() gave nullopt for a kGet: ends it. The reply may still be the value; nullopt: the server does not
  // answer in time, and the connection is of no more use. Throws as call().
  std::optional<Reply> cancel();

 private:
  struct Round;  // one try of every address
  static Round try_all(const Endpoint& endpoint, const Deadline& deadline, std::chrono::nanoseconds greeting);
  Connection(net::Socket socket, net::FrameReader reader) : socket_(std::move(socket)), reader_(std::move(reader)) {}
  void send(const Request& request);
  std::optional<Reply> wait(const Deadline& deadline);

  net::Socket socket_;
  net::FrameReader reader_;
  std::optional<Deadline> pong_due_ = {};  // set while a ping is on its way
};

}  // namespace reigen::store
