// How a program says what went wrong: once for the whole job.
// Thread rule: call from main().
#pragma once

#include <exception>
#include <string>

namespace reigen::train {

struct Failure {
  int exit_code = 0;
  std::string text;
  bool common = false;     // every rank has it
  bool aftermath = false;  // of another rank's error, which that rank tells itself
  int lost_rank = -1;      // which can tell nothing any more
};

Failure failure_of(const std::exception_ptr& error);

// Prints "error: ..." to stderr and returns the exit code. A common error is rank 0's to tell, the loss of rank 0 rank
// 1's, an error of one rank its own, with rank and host. The others wait a moment, in which the launcher or whoever
// ends them, and tell theirs only if they are still there: an error is never lost because the rank that should tell it
// is gone.
int report(const Failure& failure, int rank, int world_size);

}  // namespace reigen::train
