// One connection of a client to the TCP store's server: connect, shake hands, then one call at a time.
// Thread rule: one thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "net/frame.h"
#include "net/socket.h"
#include "reigen/base/deadline.h"
#include "reigen/base/error.h"
#include "store/tcp_protocol.h"

namespace reigen::store {

struct Endpoint {
  std::vector<std::string> hosts;  // tried in this order
  std::uint16_t port = 0;
  std::string socket = {};  // not empty: in place of hosts and port
  std::string job = {};
  std::chrono::nanoseconds heartbeat_timeout = std::chrono::seconds(10);  // no sign of life: the server is lost

  std::string text() const { return socket.empty() ? net::endpoint_text(hosts.front(), port) : "socket " + socket; }
};

// Nobody answered in time.
struct NoAnswer : Timeout {
  NoAnswer(const Report& report, std::string why, bool has_no_address)
      : Timeout(report), reason(std::move(why)), unknown_host(has_no_address) {}
  std::string reason;
  bool unknown_host;  // a name has no address, and nothing else was reached
};

class Connection {
 public:
  // When nobody listens: the server may start later, or was there before and has ended.
  enum class Absent { kRetry, kFail };

  // Tries again and again until the deadline. Throws NoAnswer with the last reasons, BackendError (76) when another job
  // or version answers, and nobody of ours at another of the endpoint's hosts.
  static Connection open(const Endpoint& endpoint, const Deadline& deadline, Absent absent);

  // Sends the request and waits for its reply; nullopt when the deadline passed first. While it waits it makes sure
  // that the server lives. Throws net::ConnectionClosed when it does not; the connection is then of no more use.
  std::optional<Reply> call(const Request& request, const Deadline& deadline);

  // After call() gave nullopt for a kGet: ends it. The reply may still be the value; nullopt: the server does not
  // answer in time, and the connection is of no more use. Throws as call().
  std::optional<Reply> cancel();

  const std::string& host() const { return host_; }  // of the endpoint's, the one that answered

 private:
  struct Round;  // one try of every address
  static Round try_all(const Endpoint& endpoint, const Deadline& deadline, std::chrono::nanoseconds greeting);
  static void try_host(const Endpoint& endpoint, const std::string& host, const Deadline& deadline,
                       std::chrono::nanoseconds greeting, Round& round);
  Connection(net::Socket socket, net::FrameReader reader, std::string host, std::chrono::nanoseconds pong_wait)
      : socket_(std::move(socket)), reader_(std::move(reader)), host_(std::move(host)), pong_wait_(pong_wait) {}
  void send(const Request& request);
  std::optional<Reply> wait(const Deadline& deadline);

  net::Socket socket_;
  net::FrameReader reader_;
  std::string host_;
  std::chrono::nanoseconds pong_wait_;
  std::optional<Deadline> pong_due_ = {};  // set while a ping is on its way
};

}  // namespace reigen::store
