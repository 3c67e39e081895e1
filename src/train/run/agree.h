// Runs work that may fail on some ranks only, such as opening a file, so that all ranks agree on the outcome.
#pragma once

#include <functional>
#include <string>

#include "reigen/base/error.h"
#include "reigen/comm/communicator.h"

namespace reigen::train {

// Collective. Runs body() on every rank. If body() throws on some ranks, every rank throws the error of the lowest of
// these ranks, marked as is_common() (every rank has it). `what` is the name of the work, for the tag of the call.
// Errors of LibTorch and other exceptions get the text of failure_of() (failure.h).
void together(const Communicator& world, const char* what, const std::function<void()>& body);

// Marks `error` as one that every rank throws at the same place: `throw common(Error(code, text))`.
template <class Leaf>
Leaf common(Leaf error) {
  error.mark_common();
  return error;
}

// Collective. Returns on all ranks whether any rank requests a stop. `here` says whether this rank requests
// one. Costs one all_reduce of 4 bytes.
bool any_wishes_to_stop(const Communicator& world, bool here);

// Collective. Gives rank 0's text to every rank.
std::string share_text(const Communicator& world, std::string text);

}  // namespace reigen::train
