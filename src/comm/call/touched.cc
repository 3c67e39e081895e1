#include "comm/call/touched.h"

#include <functional>

namespace reigen::comm {

namespace {

Bytes bytes_at(const void* memory, std::size_t bytes) {
  const auto* const begin = static_cast<const std::byte*>(memory);
  return bytes == 0 ? Bytes() : Bytes{begin, begin + bytes};
}

bool overlap(const Bytes& a, const Bytes& b) {
  const std::less<const std::byte*> before;
  return before(a.begin, b.end) && before(b.begin, a.end);
}

}  // namespace

Touched touched_by(const Call& call, int rank, int size) {
  const Extent extent = extent_of(call, rank, size);
  const std::size_t element = size_of(call.type);
  return {bytes_at(call.input, extent.input * element), bytes_at(call.output, extent.output * element)};
}

bool conflict(const Touched& a, const Touched& b) {
  return overlap(a.written, b.written) || overlap(a.written, b.read) || overlap(a.read, b.written);
}

}  // namespace reigen::comm
