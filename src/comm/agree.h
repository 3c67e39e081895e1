// Runs steps that may fail on some ranks, such as opening files, allocating memory or reading a user's input. If a step
// fails on one rank, all ranks throw its error. find_difference() compares texts between the ranks.
//
//   comm::attempt(world, "run directory", [&] { if (world.rank() == 0) make(directory); });
//
// All functions are blocking, and every rank of the group must call them. They throw the error of the failed step, on
// all ranks, and the errors of Communicator's operations. Thread rule: as Communicator's.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "reigen/comm/communicator.h"

namespace reigen::comm {

// The ranks of the group that calls attempt(). kJob: the group consists of all ranks of the job. The error is then
// marked as common (Error::is_common()), so that only rank 0 prints it. The text of the error names the rank where the
// error occurred, unless this is rank 0. kGroup: the group may have fewer ranks. The error is not marked as common,
// because ranks outside the group do not throw it.
enum class Scope { kGroup, kJob };

// Each rank runs `body`. If `body` throws on any rank, every rank throws the error of the lowest rank where it threw,
// with the same type and exit code. The text of the error begins with that rank's number in the group (with kJob: see
// Scope). `what` is the tag of the calls that this function makes; at most 38 characters. Cost: one all_gather of a
// byte per rank, and after an error also a broadcast of its text.
void attempt(Communicator group, const std::string& what, const std::function<void()>& body,
             Scope scope = Scope::kGroup);

// As attempt(). Every rank also gets the results of all ranks: result[q] is the text that `body` returned on rank q.
// Cost: the cost of attempt() and an all_gather of the texts.
std::vector<std::string> attempt_all(Communicator group, const std::string& what,
                                     const std::function<std::string()>& body);

// Rank 0 runs `body` while the other ranks wait. Every rank returns the result of `body`, or throws the error that
// `body` threw. Cost: a broadcast of 8 bytes, and a broadcast of the result or of the error.
std::string attempt_first(Communicator group, const std::string& what, const std::function<std::string()>& body);

// The first line in which the text of a rank differs from the text of rank 0.
struct Difference {
  int rank = 0;       // the lowest rank whose text differs
  std::string other;  // the line of that rank; empty if the rank has fewer lines
  std::string first;  // the line of rank 0; empty if rank 0 has fewer lines
};
// Compares lines of text between the ranks. Returns the same result on every rank, and nullopt if all ranks have the
// same lines. Cost: one all_gather of 16 bytes per rank; the lines themselves are sent only if they differ.
std::optional<Difference> find_difference(const std::vector<std::string>& lines, Communicator group,
                                          const std::string& what);

}  // namespace reigen::comm
