#include "comm/call/in_flight.h"

#include <algorithm>
#include <functional>

namespace reigen::comm {

bool InFlight::overlap(const Bytes& a, const Bytes& b) {
  const std::less<const std::byte*> before;
  return before(a.begin, b.end) && before(b.begin, a.end);
}

InFlight::Touched InFlight::touched_by(const Call& call) const {
  const auto at = [&](const void* memory, std::size_t elements) {
    const auto* const begin = static_cast<const std::byte*>(memory);
    return elements == 0 ? Bytes() : Bytes{begin, begin + elements * size_of(call.type)};
  };
  const Extent extent = extent_of(call, rank_, size_);
  return {at(call.input, extent.input), at(call.output, extent.output)};
}

bool InFlight::try_begin(const Call& call, std::uint64_t sequence) {
  if (sequence >= completed_ + most_) return false;
  const Touched own = touched_by(call);
  const auto conflicts = [&](const Touched& other) {
    return overlap(own.written, other.written) || overlap(own.written, other.read) || overlap(own.read, other.written);
  };
  if (std::any_of(begun_.begin(), begun_.end(), conflicts)) return false;
  begun_.push_back(own);
  return true;
}

void InFlight::complete_first() {
  completed_ += 1;
  begun_.pop_front();
}

}  // namespace reigen::comm
