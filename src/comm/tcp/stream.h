// One connection that carries data: what is queued goes out in order, what comes in goes where it is expected, in
// order. Never waits, never throws for what the other side does: a connection that ended says so.
// Thread rule: one thread at a time.
#pragma once

#include <sys/uio.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/call/call.h"
#include "net/socket.h"
#include "reigen/base/deadline.h"
#include "reigen/base/error.h"

namespace reigen::comm::tcp {

// Whether the other side has all that was sent. Through loopback what is sent has arrived; over a wire only what is
// acknowledged. A connection that has ended owes nothing.
bool all_delivered(int fd, bool loopback);

// What the kernel knows of a connection; nothing is taken from it. Any thread.
struct Condition {
  bool stands = false;                // neither side has ended it
  bool unread = false;                // something has come and was not taken: an end may be hidden behind it
  std::chrono::milliseconds quiet{};  // since something came
};
Condition condition_of(int fd);

// Memory to send from or to receive into that the kernel cannot reach.
class UnreachableMemory : public InvalidArgument {
 public:
  UnreachableMemory(const iovec& memory, bool sends);
  // Says that it happened in this call: `what`.
  [[noreturn]] void throw_for(const Call& call, const std::string& what) const;

 private:
  const iovec memory_;
  const bool sends_;
};

class Stream {
 public:
  explicit Stream(net::Socket socket);

  int fd() const { return socket_.fd(); }

  // The memory must stay until sends_done() or receives_done().
  void send(const void* data, std::size_t bytes);
  void receive(void* data, std::size_t bytes);
  bool sends_done() const { return out_first_ == out_.size(); }
  bool receives_done() const { return in_first_ == in_.size(); }

  // Moves what can be moved now; true when anything was. Throws UnreachableMemory.
  bool push();
  bool pull();
  // Forgets what is queued: its memory may go. The connection is of no more use.
  void drop();

  // Whether everything that the other side sent has been taken, and nothing more will come.
  bool silent();
  // Whether something is queued that will never move.
  bool stuck();
  // How it ended, as the system says it.
  std::string why() const { return net::to_string({.closed = true, .error = error_}); }
  // For how long something has been under way to the other side without any answer of its kernel. Such a look remembers
  // the one before.
  std::chrono::nanoseconds unanswered();

 private:
  bool take_spilled();
  void note_end(ssize_t got);
  void note(int error);

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
  int error_ = 0;           // why, when it is not that the other side closed the connection
  std::uint64_t sent_ = 0;  // bytes that the kernel has taken
  std::uint64_t acknowledged_ = 0;
  std::optional<Deadline::Clock::time_point> unanswered_since_;
};

}  // namespace reigen::comm::tcp
