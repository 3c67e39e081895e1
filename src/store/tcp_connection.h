// One connection of a client to the TCP store's server: it connects, shakes hands, then makes one call at a time.
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
  std::string socket = {};  // the name of a Unix socket; if not empty, it replaces hosts and port
  std::string job = {};
  std::chrono::nanoseconds heartbeat_timeout = std::chrono::seconds(10);  // a server silent for longer is lost

  std::string text() const { return socket.empty() ? net::endpoint_text(hosts.front(), port) : "socket " + socket; }
};

// No server answered before the deadline.
struct NoAnswer : Timeout {
  NoAnswer(const Report& report, std::string why, bool has_no_address)
      : Timeout(report), reason(std::move(why)), unknown_host(has_no_address) {}
  std::string reason;
  bool unknown_host;  // a host name had no address, and no machine answered
};

class Connection {
 public:
  // What to do when nobody listens: retry, because the server may start later, or fail, because a server that was there
  // has ended.
  enum class Absent { kRetry, kFail };

  // Tries until the deadline. Throws NoAnswer with the reasons of the last attempts, one for each address; BackendError
  // with exit code 76 if a server of another job or version answers and no host of the endpoint has the right server.
  static Connection open(const Endpoint& endpoint, const Deadline& deadline, Absent absent);

  // Sends the request and waits for its reply; returns nullopt if the deadline passes first. While call() waits, it
  // checks with pings that the server is alive. Throws net::ConnectionClosed when the server is lost; the connection
  // then cannot be used any more.
  std::optional<Reply> call(const Request& request, const Deadline& deadline);

  // Ends a kGet request for which call() returned nullopt. The reply may still be the value of the key. Returns nullopt
  // if the server does not answer in time; the connection then cannot be used any more. Throws the errors of call().
  std::optional<Reply> cancel();

  const std::string& host() const { return host_; }  // the host at which the server answered

 private:
  struct Round;  // the result of one attempt at every address
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
  std::optional<Deadline> pong_due_ = {};  // set while a ping waits for its pong
};

}  // namespace reigen::store
