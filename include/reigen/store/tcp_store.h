// The store over TCP: one server a job, any number of clients.
//
// A client opens with a handshake that carries the protocol version and the job's identity; who does not know it is
// refused before anything else is read, and a stranger can never make the server hold more than a few hundred bytes. A
// server that dies is seen by its clients at the next call (PeerLost, rank 0).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "reigen/base/deadline.h"
#include "reigen/store/store.h"

namespace reigen::store {

struct TcpStoreServerOptions {
  std::string host = "127.0.0.1";  // the interface to listen on; "0.0.0.0" or "::" for every one
  std::uint16_t port = 0;          // 0: the kernel picks a free one, which is never taken by somebody else
  std::string job = {};            // identity of the job; clients must send the same
  // More addresses of this machine to listen on, all on the same port. One that cannot be had now (an IPv6 address
  // whose network is still asked whether it is free) is left out.
  std::vector<std::string> also = {};
  // Not empty: no address and no port, but a socket of this machine with that name, which only processes of the same
  // user reach. At most 100 bytes.
  std::string socket = {};
};

// Serves from a thread of its own until it is destroyed. Throws BackendError (69) when the port is taken, naming it.
class TcpStoreServer {
 public:
  explicit TcpStoreServer(const TcpStoreServerOptions& options);
  ~TcpStoreServer();
  TcpStoreServer(const TcpStoreServer&) = delete;  // a listening socket has one owner
  TcpStoreServer& operator=(const TcpStoreServer&) = delete;

  std::uint16_t port() const;  // 0 where it has a name

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct TcpStoreOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;
  std::string job = {};
  Deadline connect_deadline =
      Deadline::after(std::chrono::seconds(60));  // retries until then: the server may start later
  std::vector<std::string> also = {};             // other places where the server may be, tried in this order
  std::string socket = {};                        // as there: in place of host and port
  std::chrono::milliseconds heartbeat_timeout = std::chrono::seconds(10);  // no sign of life: the server is lost
};

// Throws Timeout (nobody listens there), or BackendError with exit code 76 when another job or version answers.
std::shared_ptr<Store> connect_tcp_store(const TcpStoreOptions& options);

}  // namespace reigen::store
