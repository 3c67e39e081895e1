// The calls of a group that are in flight, for backends that run several calls at the same time.
//
// Calls begin and complete in the order in which they were made. If one of two calls writes memory of this rank that
// the other call uses, the later call begins after the earlier one is complete. The other ranks need no message about
// this, because every rank runs the calls in the same order.
// Thread rule: only the driver thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include "comm/call/call.h"

namespace reigen::comm {

class InFlight {
 public:
  // `most`: the largest number of calls in flight.
  InFlight(int rank, int size, std::size_t most) : rank_(rank), size_(size), most_(most) {}

  // Begins call number `sequence`, which is then in flight. Returns false, and begins nothing, while the call may not
  // begin.
  bool try_begin(const Call& call, std::uint64_t sequence);
  bool is_first(std::uint64_t sequence) const { return completed_ == sequence; }
  void complete_first();
  std::uint64_t completed() const { return completed_; }

 private:
  struct Bytes {
    const std::byte* begin = nullptr;
    const std::byte* end = nullptr;
  };
  // The memory of this rank that a call uses.
  struct Touched {
    Bytes read;
    Bytes written;
  };
  static bool overlap(const Bytes& a, const Bytes& b);
  Touched touched_by(const Call& call) const;

  const int rank_;
  const int size_;
  const std::size_t most_;
  std::uint64_t completed_ = 0;
  std::deque<Touched> begun_;  // the memory of each call in flight, oldest call first
};

}  // namespace reigen::comm
