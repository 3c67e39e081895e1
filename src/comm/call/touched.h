// Which memory of its own rank a call reads and writes.
#pragma once

#include "comm/call/call.h"

namespace reigen::comm {

struct Bytes {
  const std::byte* begin = nullptr;
  const std::byte* end = nullptr;
};

struct Touched {
  Bytes read;
  Bytes written;
};

Touched touched_by(const Call& call, int rank, int size);
// Whether one of them writes what the other one reads or writes.
bool conflict(const Touched& a, const Touched& b);

}  // namespace reigen::comm
