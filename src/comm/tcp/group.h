// The ranks of a group over TCP: their connections, which ranks are alive, and how a thread sleeps and wakes.
//
// Thread rule: only the driver thread, except for control() and wake(), which any thread may use, and functions whose
// comments say so.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/machine/cores.h"
#include "comm/backend.h"
#include "comm/call/algorithm_choice.h"
#include "comm/call/in_flight.h"
#include "comm/tcp/control.h"
#include "comm/tcp/header.h"
#include "comm/tcp/join.h"
#include "comm/tcp/stream.h"
#include "reigen/base/unique_fd.h"
#include "reigen/comm/communicator.h"

namespace reigen::comm::tcp {

inline std::size_t lane_of(std::uint64_t sequence) { return sequence % kLanes; }

class Group {
 public:
  explicit Group(const GroupOptions& options);

  int rank() const { return options_.rank; }
  int size() const { return options_.size; }
  const GroupOptions& options() const { return options_; }
  const AlgorithmChoice& algorithms() const { return algorithms_; }
  // The algorithm of the last collective that is complete on this rank. Any thread may read it.
  std::atomic<const schedule::Algorithm*>& last_algorithm() { return last_algorithm_; }
  const schedule::Algorithm* last_algorithm() const { return last_algorithm_.load(); }
  const base::CoreShare& core_share() const { return core_share_; }
  Control& control() { return control_; }

  // The connections to `rank` that belong to a lane (join.h). Every pair of ranks has the same number of connections.
  // The result is empty for this rank itself.
  std::span<Stream> streams(int rank, std::size_t lane);
  // The connection to `rank` that carries messages (send, recv). Messages may overtake collectives, and collectives may
  // overtake messages.
  Stream& messages(int rank) { return peers_[static_cast<std::size_t>(rank)].streams.front(); }
  // The bytes that the connections for messages and collectives have sent. Any thread may call it.
  std::uint64_t bytes_sent() const { return bytes_sent_.load(std::memory_order_relaxed); }
  // Keeps the header of the latest call of a rank, for error messages. The headers of two lanes may arrive in another
  // order than the order of the calls, so note_call() ignores the header of an earlier call.
  void note_call(int rank, const Header& header);
  // Scratch memory of at least `bytes` bytes for the operation that runs on a lane.
  std::byte* scratch(std::size_t lane, std::size_t bytes);

  InFlight& in_flight() { return in_flight_; }

  void sleep(const std::function<bool()>& ready, std::chrono::nanoseconds limit);
  void wake();

  // Checks the other ranks while a call waits. `what`: the call, as text for error messages. `sequence`: its number.
  // `needed`: the ranks that the call still needs. `absent`: the needed ranks that have not made the call; if all of
  // them have made it, all needed ranks. Throws when a needed rank is dead, stopped or gone, when another rank ended
  // the group, or when the wait has lasted too long.
  void check(const std::vector<int>& needed, const std::vector<int>& absent, std::uint64_t sequence,
             const std::string& what, std::chrono::nanoseconds waited);
  // The same as check(), for a message to or from one rank. `nothing_comes`: whether this message can never complete if
  // that rank has died or left.
  void check_message(int rank, bool nothing_comes, const std::string& what, std::chrono::nanoseconds waited);
  // Throws when one of these ranks has died or left, or when this group has ended. Any thread may call it.
  void look_for(const std::vector<int>& ranks);
  // Throws if another rank ended the group before that rank completed call number `sequence`. A rank whose waits are
  // too short for check() to run learns of the end here.
  void throw_if_ended(std::uint64_t sequence);
  void leave();
  void publish_abort(const AbortCause& cause);

 private:
  struct Peer {
    std::string host = {};
    pid_t pid = 0;
    bool loopback = false;                          // both ends of the connections have the same address
    std::vector<Stream> streams = {};               // messages first, then each lane (join.h); empty for this rank
    Deadline::Clock::time_point broken_since = {};  // when a stream broke although the rank seemed to live

    Header last_call = {.mark = 0};  // `mark` is 0 until a header arrives
  };

  void watch(int fd, std::uint32_t events);
  std::string who(int rank) const;        // "rank 2 (host a, pid 17)"
  std::string last_call(int rank) const;  // the last call of `rank`, as text for an error message
  [[noreturn]] void throw_lost(int rank, const std::string& how, const std::string& what) const;
  bool has_no_more(int rank, std::size_t lane);
  bool seems_to_live(int rank) const;
  void check_gone(const std::vector<int>& silent, const std::string& what) const;
  [[noreturn]] void throw_broken(int rank, const std::string& why, const std::string& what) const;
  void check_control(int rank, const std::string& what) const;
  void check_aborted(int rank, std::size_t lane, std::chrono::nanoseconds waited);
  void check_connections(int rank, std::optional<std::size_t> lane, const std::string& what);
  void check_answers(const std::string& what, std::chrono::nanoseconds waited);
  void check_heartbeat(int rank, const std::string& what, std::chrono::nanoseconds waited) const;
  void check_patience(const std::vector<int>& absent, const std::string& what, std::chrono::nanoseconds waited);
  bool all_delivered(bool data) const;

  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };

  GroupOptions options_;
  AlgorithmChoice algorithms_{"", Family::kTcp};
  std::atomic<const schedule::Algorithm*> last_algorithm_ = nullptr;
  std::atomic<std::uint64_t> bytes_sent_ = 0;  // the streams of peers_ add to it
  std::vector<Peer> peers_;
  Control control_;
  UniqueFd poll_fd_;
  UniqueFd wake_fd_;
  struct Scratch {
    std::unique_ptr<std::byte, Free> memory = {};
    std::size_t bytes = 0;
  };
  std::array<Scratch, kLanes> scratch_;  // one for each lane (join.h)
  InFlight in_flight_;
  base::CoreShare core_share_;
  bool reported_ = false;
  Deadline::Clock::time_point last_look_{};
  bool over_ = false;  // this rank has left, or ended the group
  bool left_ = false;
};

}  // namespace reigen::comm::tcp
