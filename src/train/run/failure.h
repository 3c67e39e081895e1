// How a program reports an error: once for the whole job.
// Thread rule: call from main().
#pragma once

#include <exception>
#include <string>

namespace c10 {
class Error;
}  // namespace c10

namespace reigen::train {

struct Failure {
  int exit_code = 0;
  std::string text;
  bool common = false;     // every rank has this error
  bool aftermath = false;  // a consequence of another rank's error, which that rank prints
  int lost_rank = -1;      // rank that died and cannot print anything; -1 means none
};

// The first line of LibTorch's message. The other lines are for LibTorch's developers.
std::string first_line_of(const c10::Error& error);

// Translates an exception into exit code and text.
Failure failure_of(const std::exception_ptr& error);

// Prints "error: ..." to stderr and returns the exit code. Rank 0 prints a common error; if rank 0 is the rank that was
// lost, rank 1 prints it. An error of one rank alone is printed by that rank, with its number and host. The other ranks
// wait 5 seconds, in which the launcher normally ends them. They print their error only if they are still running after
// this time. So the error is shown even if the rank that should print it is dead.
int report(const Failure& failure, int rank, int world_size);

}  // namespace reigen::train
