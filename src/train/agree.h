// Work that may fail on some ranks only, such as opening a file, and the agreement of all on the outcome.
#pragma once

#include <functional>
#include <string>

#include "reigen/base/error.h"
#include "reigen/comm/communicator.h"

namespace reigen::train {

// An error that every rank of the job throws at the same place: printed once, by rank 0.
struct CommonError : Error {
  using Error::Error;
};

// Runs `body` on this rank and waits until all ranks have run theirs. When it failed anywhere, every rank throws the
// same CommonError: that of the lowest rank that failed, named unless it failed on all. One all_gather of 16 bytes when
// all is well.
void together(Communicator& world, const char* what, const std::function<void()>& body);

// Whether any rank wishes to stop, of which `here` says this rank's wish: the same answer on all. One all_reduce of 4
// bytes: every rank must call it as often.
bool any_wishes_to_stop(Communicator& world, bool here);

// rank 0's text on every rank.
std::string share_text(Communicator& world, std::string text);

}  // namespace reigen::train
