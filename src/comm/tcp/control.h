// The control connections of a rank, one to each other rank: signs of life, farewells, and why a group ended. They are
// apart from the data, so that they never stand behind it and need no lock that a driver holds.
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
    Deadline::Clock::time_point last_sign{};  // when it was last heard of
    bool left = false;                        // in good order
    bool ended = false;                       // the connection: it died, or has left
    std::string why = {};                     // ... as the system says it
    Deadline::Clock::time_point ended_since{};
    std::optional<AbortCause> cause = {};  // it has ended the group ...
    std::uint64_t completed = 0;           // ... after so many calls
  };

  explicit Control(int size) : links_(static_cast<std::size_t>(size)) {}

  void connect(int rank, net::Socket socket);
  int fd(int rank) const { return links_[static_cast<std::size_t>(rank)].socket->fd(); }

  void beat();
  void say_farewell();
  void publish_abort(const AbortCause& cause, std::uint64_t completed);

  // Reads what has come; then what is known of a rank, or why another rank ended the group: one that had not completed
  // call number `sequence` by then.
  void look();
  Peer peer(int rank) const;
  std::optional<AbortCause> cause_for(std::uint64_t sequence) const;

 private:
  struct Link {
    std::optional<net::Socket> socket;
    std::string inbox = {};
    Peer peer = {};
  };

  void send_to_all(const std::string& message);
  void read(Link& link);
  static void understand(Link& link);

  mutable std::mutex mutex_;
  std::vector<Link> links_;
};

}  // namespace reigen::comm::tcp
