#include "launch/meet/served_store.h"

namespace reigen::launch {

ServedStore::ServedStore(const store::TcpStoreServerOptions& options, const Deadline& deadline,
                         std::chrono::milliseconds heartbeat_timeout)
    : server_(options),
      client_(store::connect_tcp_store({.host = options.host,
                                        .port = server_.port(),
                                        .job = options.job,
                                        .connect_deadline = deadline,
                                        .socket = options.socket,
                                        .heartbeat_timeout = heartbeat_timeout})) {}

}  // namespace reigen::launch
