// The control connections of a rank, one to each other rank. They carry heartbeats, farewells (messages with which a
// rank leaves in good order), and the reason why a group ended. They are separate from the data connections. So control
// messages never wait for data, and a thread can send them without a lock that the driver thread holds.
// Thread rule: any thread.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/backend.h"
#include "net/socket.h"
#include "reigen/base/deadline.h"

namespace reigen::comm::tcp {

class Control {
 public:
  struct Peer {
    Deadline::Clock::time_point last_sign{};  // when this rank last received anything on this connection
    bool left = false;                        // the other rank left the group in good order
    bool ended = false;                       // the connection has ended: the other rank died or left
    std::string why = {};                     // why the connection ended, in the system's words
    Deadline::Clock::time_point ended_since{};
    std::optional<AbortCause> cause = {};  // why the other rank ended the group, if it did
    std::uint64_t completed = 0;           // how many calls it had completed when it ended the group
  };

  explicit Control(int size) : links_(static_cast<std::size_t>(size)) {}

  void connect(int rank, net::Socket socket);
  int fd(int rank) const { return links_[static_cast<std::size_t>(rank)].socket->fd(); }

  void beat();
  void say_farewell();
  void publish_abort(const AbortCause& cause, std::uint64_t completed);

  // look() reads all messages that have arrived. peer() returns what the messages read so far say about one rank.
  // cause_for() returns the reason why another rank ended the group. It ignores a rank that had completed call number
  // `sequence` before it ended the group.
  void look();
  Peer peer(int rank) const;
  // Whether messages to `rank` are not sent yet, because the connection has no room for them. look() tries again.
  bool has_unsent(int rank) const;
  std::optional<AbortCause> cause_for(std::uint64_t sequence) const;

 private:
  struct Link {
    std::optional<net::Socket> socket;
    std::string inbox = {};
    std::string unsent = {};  // the rest of the messages, for which the connection had no room
    Peer peer = {};
  };

  void send_to_all(const std::string& message);
  void push(Link& link);
  void read(Link& link);
  static void understand(Link& link);

  mutable std::mutex mutex_;
  std::vector<Link> links_;
};

}  // namespace reigen::comm::tcp
