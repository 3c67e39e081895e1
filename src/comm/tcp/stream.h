// One connection that carries data: what is queued goes out in order, what comes in goes where it is expected, in
// order. Never waits, never throws for what the other side does: a connection that ended says so.
// Thread rule: one thread at a time.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <string>
#include <vector>

#include "net/socket.h"

namespace reigen::comm::tcp {

// Whether the other side has all that was sent. Through loopback what is sent has arrived; over a wire only what is
// acknowledged. A connection that has ended owes nothing.
bool all_delivered(int fd, bool loopback);

class Stream {
 public:
  explicit Stream(net::Socket socket);

  int fd() const { return socket_.fd(); }

  // The memory must stay until sends_done() or receives_done().
  void send(const void* data, std::size_t bytes);
  void receive(void* data, std::size_t bytes);
  bool sends_done() const { return out_first_ == out_.size(); }
  bool receives_done() const { return in_first_ == in_.size(); }

  // Moves what can be moved now; true when anything was.
  bool push();
  bool pull();
  // Forgets what is queued: its memory may go. The connection is of no more use.
  void drop();

  // Whether everything that the other side sent has been taken, and nothing more will come.
  bool silent();
  // Whether something is queued that will never move.
  bool stuck();

 private:
  bool take_spilled();

  net::Socket socket_;
  std::vector<iovec> out_;
  std::size_t out_first_ = 0;
  std::vector<iovec> in_;
  std::size_t in_first_ = 0;
  // What came behind the last piece expected.
  std::vector<char> spilled_;
  std::size_t spilled_begin_ = 0;
  std::size_t spilled_end_ = 0;
  bool takes_nothing_ = false;  // the other side; what it had sent before may still come
  bool gives_nothing_ = false;
};

}  // namespace reigen::comm::tcp
