// Takes the connections of ranks that have a higher number, while this rank makes its own. A thread of its own
// listens until all are there. A stranger who does not know the secret word is refused and costs nothing but its
// connection.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "net/frame.h"
#include "net/socket.h"
#include "reigen/base/deadline.h"

namespace reigen::comm::tcp {

// What a rank says when it calls another.
struct Greeting {
  std::string secret;  // from the announcement of the rank that is called
  std::uint32_t rank = 0;
  std::uint32_t connection = 0;  // 0: control, 1: messages, then data
};

std::string to_bytes(const Greeting& greeting);

// Inside a machine nobody shares the way: the simplest congestion control, which never paces. With bbr, which paces by
// a speed that it measured, ranks on busy cores are slow long after.
inline constexpr const char* kLocalCongestion = "reno";

// Both ends have one address.
bool in_one_machine(const net::Socket& socket);

class Acceptor {
 public:
  // `first`: the lowest rank that calls, `size`: one more than the highest. `host`: the one address to listen on;
  // empty: every one.
  Acceptor(std::string secret, std::string answer, int first, int size, int connections, const std::string& host = {});
  ~Acceptor();
  Acceptor(const Acceptor&) = delete;  // a thread belongs to it
  Acceptor& operator=(const Acceptor&) = delete;

  std::uint16_t port() const { return listener_.address().port(); }
  // True when all are there.
  bool wait(const Deadline& deadline);
  std::vector<int> missing();
  // The connections of a rank, in their order; once.
  std::vector<net::Socket> take(int rank);

 private:
  struct Caller {
    net::Socket socket;
    net::FrameReader reader;
    Deadline deadline;
  };

  void serve();
  bool greet(Caller& caller);  // false: done with it, one way or the other
  bool complete() const;       // holds mutex_

  const std::string secret_;
  const std::string answer_;
  const int first_;
  net::Listener listener_;
  std::string usual_congestion_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::vector<std::optional<net::Socket>>> accepted_;  // [rank][connection]
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace reigen::comm::tcp
