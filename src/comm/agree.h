// What ranks do together or not at all, where it may fail on some of them: opening files, taking memory, reading what a
// user gave. And what all of them must say alike.
//
//   comm::attempt(world, "run directory", [&] { if (world.rank() == 0) make(directory); });
//
// Blocking; every rank of the group calls it. Errors: the one that is agreed on, and those of Communicator's
// operations. Thread rule: as Communicator's.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "reigen/comm/communicator.h"

namespace reigen::comm {

// kJob: the group is all ranks of the job. Its error is_common(): the job tells it once, by rank 0. So the text names
// the rank that met it only where that is not rank 0. An error of another group is news to the ranks outside.
enum class Scope { kGroup, kJob };

// Each rank runs `body`. Where it throws on any rank, every rank throws the error of the lowest such rank, with its
// type and exit code; the text begins with that rank's number in the group. `what` is the tag of the calls, at most 38
// characters. Cost: one all_gather of a byte; where it fails, a broadcast of the text more.
void attempt(Communicator group, const std::string& what, const std::function<void()>& body,
             Scope scope = Scope::kGroup);

// The same; on every rank: result[q] = what rank q's body returned. Cost: an all_gather of the texts more.
std::vector<std::string> attempt_all(Communicator group, const std::string& what,
                                     const std::function<std::string()>& body);

// Rank 0 runs `body`, the others wait. Every rank returns what it returned, or throws what it threw.
// Cost: a broadcast of 8 bytes and one of the text.
std::string attempt_first(Communicator group, const std::string& what, const std::function<std::string()>& body);

// The first line in which a rank's text is another than rank 0's.
struct Difference {
  int rank = 0;       // the lowest that differs
  std::string other;  // its line; empty: it has fewer
  std::string first;  // rank 0's
};
// Compares lines of text: the same answer on every rank, nothing where all say the same. Cost: one all_gather of 16
// bytes; the lines travel only where they differ.
std::optional<Difference> find_difference(const std::vector<std::string>& lines, Communicator group,
                                          const std::string& what);

}  // namespace reigen::comm
