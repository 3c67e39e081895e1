// Accepts the connections of ranks with higher numbers, while this rank connects to the ranks with lower numbers. A
// separate thread listens until all connections are there. It refuses a process that does not know the secret word, and
// then continues to listen.
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

// What a rank sends when it connects to another rank.
struct Greeting {
  std::string secret;  // from the text that the accepting rank has written to the store
  std::uint32_t rank = 0;
  std::uint32_t connection = 0;  // 0: control; 1: messages (send, recv); 2 and more: collectives
};

std::string to_bytes(const Greeting& greeting);

// The congestion control of TCP connections inside a machine. No other traffic shares their path, so a simple algorithm
// without pacing is enough. The algorithm bbr paces by the speed that it has measured. If it has measured a low speed
// on busy cores, it remains slow for a long time.
inline constexpr const char* kLocalCongestion = "reno";

// Whether both ends of the connection have the same address.
bool in_one_machine(const net::Socket& socket);

class Acceptor {
 public:
  // `secret`: the word that a process must send when it connects. `answer`: the word that this rank sends back.
  // `first`: the lowest rank that connects to this rank. `size`: one more than the highest such rank. `connections`:
  // the number of connections from each such rank. `host`: the only address to listen on. If it is empty, listens on
  // every address.
  Acceptor(std::string secret, std::string answer, int first, int size, int connections, const std::string& host = {});
  ~Acceptor();
  Acceptor(const Acceptor&) = delete;  // its thread uses its address
  Acceptor& operator=(const Acceptor&) = delete;

  std::uint16_t port() const { return listener_.address().port(); }
  // Waits for all connections, at most until the deadline. Returns true if all are there.
  bool wait(const Deadline& deadline);
  std::vector<int> missing();
  // Hands over the connections of a rank, in the order of Greeting::connection. Call take() once for each rank.
  std::vector<net::Socket> take(int rank);

 private:
  // A process that has connected and has not been accepted yet.
  struct Caller {
    net::Socket socket;
    net::FrameReader reader;
    Deadline deadline;
  };

  void serve();
  bool greet(Caller& caller);  // returns false if this process is accepted, refused or gone
  bool complete() const;       // call it with mutex_ locked

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
