// Work that may fail on some ranks only, such as opening a file, and the agreement of all on the outcome.
#pragma once

#include <functional>
#include <string>

#include "reigen/base/error.h"
#include "reigen/comm/communicator.h"

namespace reigen::train {

// comm::attempt(), with LibTorch's errors in the words of failure_of(): every rank throws the first error, which
// is_common().
void together(const Communicator& world, const char* what, const std::function<void()>& body);

// `error` as one that every rank throws at the same place: `throw common(Error(code, text))`.
template <class Leaf>
Leaf common(Leaf error) {
  error.mark_common();
  return error;
}

// Whether any rank wishes to stop, of which `here` says this rank's wish: the same answer on all. One all_reduce of 4
// bytes: every rank must call it as often.
bool any_wishes_to_stop(const Communicator& world, bool here);

// rank 0's text on every rank.
std::string share_text(const Communicator& world, std::string text);

}  // namespace reigen::train
