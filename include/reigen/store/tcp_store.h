// The store over TCP: one server per job, any number of clients.
//
// A client begins with a handshake that carries the protocol version and the job's identity. If a client does not know
// the identity, the server refuses the client before it reads anything else. Such a client can never make the server
// hold more than a few hundred bytes in memory. After the server has died, a client's next call throws PeerLost. The
// rank in this error is 0, because rank 0 runs the server unless the launcher does.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "reigen/base/deadline.h"
#include "reigen/store/store.h"

namespace reigen::store {

struct TcpStoreServerOptions {
  std::string host = "127.0.0.1";  // the interface to listen on; "0.0.0.0" or "::" for all of them
  std::uint16_t port = 0;          // 0 means that the kernel picks a free port, which no other process can take
  std::string job = {};            // identity of the job; clients must send the same text
  // More addresses of this machine to listen on, all at the same port. The server leaves out an address that is not
  // available now (for example an IPv6 address that the network still checks for duplicates).
  std::vector<std::string> also = {};
  // If `socket` is not empty, the server listens on a Unix socket with this name (in the abstract namespace of this
  // machine) instead of on addresses and a port. Only processes of the same user can use the socket. At most 100 bytes.
  std::string socket = {};
};

// Answers clients on a thread of its own, until the object is destroyed. The constructor throws BackendError with exit
// code 69, naming the port, when the port is taken.
class TcpStoreServer {
 public:
  explicit TcpStoreServer(const TcpStoreServerOptions& options);
  ~TcpStoreServer();
  TcpStoreServer(const TcpStoreServer&) = delete;  // a listening socket has one owner
  TcpStoreServer& operator=(const TcpStoreServer&) = delete;

  std::uint16_t port() const;  // 0 if the server listens on a Unix socket

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct TcpStoreOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;
  std::string job = {};
  // The client tries again to connect until this deadline, because the server may start later than the client.
  Deadline connect_deadline = Deadline::after(std::chrono::seconds(60));
  std::vector<std::string> also = {};  // other hosts where the server may be, tried in this order
  std::string socket = {};             // as in TcpStoreServerOptions; replaces host and port
  // A server that sends no heartbeat for this time counts as lost.
  std::chrono::milliseconds heartbeat_timeout = std::chrono::seconds(10);
};

// Throws Timeout when no server has answered at the address before connect_deadline. Throws BackendError with exit code
// 76 when the server belongs to another job or has another version.
std::shared_ptr<Store> connect_tcp_store(const TcpStoreOptions& options);

}  // namespace reigen::store
