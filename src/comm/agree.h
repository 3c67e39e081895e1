// Steps that may fail on some ranks, and that either all ranks must do or none: opening files, taking memory, reading a
// user's input. Also a check that all ranks give the same text.
//
//   comm::attempt(world, "run directory", [&] { if (world.rank() == 0) make(directory); });
//
// All functions are blocking, and every rank of the group calls them. Errors: the error that the ranks agree on, and
// those of Communicator's operations. Thread rule: as Communicator's.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "reigen/comm/communicator.h"

namespace reigen::comm {

// kJob: the group has all ranks of the job. The error is then marked as common (Error::is_common()), so that only
// rank 0 prints it; its text names the rank where the error occurred, unless that is rank 0. kGroup: the error is not
// marked as common, because ranks outside the group do not know it.
enum class Scope { kGroup, kJob };

// Each rank runs `body`. If it throws on any rank, every rank throws the error of the lowest such rank, with its type
// and exit code; the text begins with that rank's number in the group (for kJob: see Scope). `what` is the tag of the
// calls, at most 38 characters. Cost: one all_gather of a byte a rank; after an error also a broadcast of the text.
void attempt(Communicator group, const std::string& what, const std::function<void()>& body,
             Scope scope = Scope::kGroup);

// As attempt(), and returns on every rank: result[q] = what `body` returned on rank q. Cost: that of attempt() and an
// all_gather of the texts.
std::vector<std::string> attempt_all(Communicator group, const std::string& what,
                                     const std::function<std::string()>& body);

// Rank 0 runs `body` while the other ranks wait. Every rank returns the result of `body`, or throws the error that
// `body` threw. Cost: a broadcast of 8 bytes and one of the text.
std::string attempt_first(Communicator group, const std::string& what, const std::function<std::string()>& body);

// The first line in which the text of a rank differs from the text of rank 0.
struct Difference {
  int rank = 0;       // the lowest rank whose text differs
  std::string other;  // the line of that rank; empty: its text has fewer lines
  std::string first;  // the line of rank 0; empty: its text has fewer lines
};
// Compares lines of text between the ranks. Returns the same answer on every rank: nothing if all ranks have the same
// lines. Cost: one all_gather of 16 bytes a rank; the lines themselves are sent only if they differ.
std::optional<Difference> find_difference(const std::vector<std::string>& lines, Communicator group,
                                          const std::string& what);

}  // namespace reigen::comm
