// One connection that carries data. It sends queued memory in order, and stores incoming data, in order, in the memory
// that is queued to receive. It never waits. It never throws because of the other side: silent() and stuck() report
// that the connection has ended.
// Thread rule: one thread at a time.
#pragma once

#include <sys/uio.h>

#include <atomic>
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

// Whether the other side has received all data that were sent. Over loopback, data have arrived when the kernel has
// sent them; over a network, only when they are acknowledged. Returns true for a connection that has ended.
bool all_delivered(int fd, bool loopback);

// The state of a connection, as the kernel knows it. condition_of() takes no data from the connection. Any thread may
// call it.
struct Condition {
  bool stands = false;                // neither side has ended the connection
  bool unread = false;                // data have arrived and are not read yet; an end may have arrived after them
  std::chrono::milliseconds quiet{};  // time since data last arrived
};
Condition condition_of(int fd);

// The error when the kernel cannot access the memory from which it should send or to which it should receive.
class UnreachableMemory : public InvalidArgument {
 public:
  UnreachableMemory(const iovec& memory, bool sends);
  // Throws an error that names the call in which this happened; `what` describes the call.
  [[noreturn]] void throw_for(const Call& call, const std::string& what) const;

 private:
  const iovec memory_;
  const bool sends_;
};

class Stream {
 public:
  // Adds the number of bytes that it sends to `total`, which must outlive the stream.
  Stream(net::Socket socket, std::atomic<std::uint64_t>& total);

  int fd() const { return socket_.fd(); }

  // send() and receive() queue memory. It must remain valid until sends_done() or receives_done() returns true.
  void send(const void* data, std::size_t bytes);
  void receive(void* data, std::size_t bytes);
  bool sends_done() const { return out_first_ == out_.size(); }
  bool receives_done() const { return in_first_ == in_.size(); }

  // push() sends, and pull() receives, as much as is possible now. Both return true when anything was sent or received.
  // Both throw UnreachableMemory when the kernel cannot access the queued memory.
  bool push();
  bool pull();
  // Forgets all queued memory, which may then be freed. The stream cannot be used any more after that.
  void drop();

  // Whether this rank has read everything that the other side sent, and nothing more will arrive.
  bool silent();
  // Whether memory is queued that will never be sent or received.
  bool stuck();
  // How the connection ended, in the system's words.
  std::string why() const { return net::to_string({.closed = true, .error = error_}); }
  // How long sent data have waited for an acknowledgement of the other side's kernel. The time counts from the first
  // call of unanswered() after the last acknowledgement, so call it regularly.
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
  // To save a system call, pull() also reads data for which no memory is queued yet. It keeps them in `spilled_`. The
  // memory that receive() queues next gets these data first.
  std::vector<char> spilled_;
  std::size_t spilled_begin_ = 0;
  std::size_t spilled_end_ = 0;
  bool takes_nothing_ = false;  // the other side accepts no more data; data that it sent before may still arrive
  bool gives_nothing_ = false;  // the other side sends no more data
  int error_ = 0;               // errno of the end of the connection; 0 if the other side closed it
  std::uint64_t sent_ = 0;      // bytes that the kernel has taken
  std::atomic<std::uint64_t>* total_;
  std::uint64_t acknowledged_ = 0;
  std::optional<Deadline::Clock::time_point> unanswered_since_;
};

}  // namespace reigen::comm::tcp
