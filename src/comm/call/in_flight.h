// The calls of a group that are under way at once, for backends that run some of them beside each other.
//
// Calls begin and complete in their order. If one of two calls writes memory of this rank that the other one uses, the
// second call begins after the first is complete. The other ranks need not know, since each runs its calls in the same
// order.
// Thread rule: the driving thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include "comm/call/call.h"

namespace reigen::comm {

class InFlight {
 public:
  // At most so many calls at once.
  InFlight(int rank, int size, std::size_t most) : rank_(rank), size_(size), most_(most) {}

  // Call number `sequence` is under way from here on; false while it may not begin.
  bool try_begin(const Call& call, std::uint64_t sequence);
  bool is_first(std::uint64_t sequence) const { return completed_ == sequence; }
  void complete_first();
  std::uint64_t completed() const { return completed_; }

 private:
  struct Bytes {
    const std::byte* begin = nullptr;
    const std::byte* end = nullptr;
  };
  // Memory of this rank.
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
  std::deque<Touched> begun_;  // of those under way, in their order
};

}  // namespace reigen::comm
