// What a run could write at its end, and what it could not. If one file cannot be written, the others still are, and
// the user is told what is lost.
// Thread rule: one thread. Every rank makes the same calls.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "reigen/base/error.h"
#include "train/run/console.h"

namespace reigen::train {

class Outcome {
 public:
  explicit Outcome(Console& console) : console_(console) {}

  // Runs body(). An error that every rank has becomes a warning, is kept, and gives false. An error of one rank alone
  // is thrown.
  bool attempt(const std::string& what, const std::function<void()>& body);
  // `what` could not be written; the user was told of the error already.
  void note_lost(std::string what, ExitCode code, std::string why);

  bool is_complete() const { return lost_.empty(); }
  // Names of what was written.
  const std::vector<std::string>& written() const { return written_; }
  // The error of the run: `what` went wrong, what is lost, and `ways` to go on with what there is. Every rank has it.
  Error error(std::string what, std::vector<std::string> ways) const;

 private:
  struct Lost {
    std::string what;
    ExitCode code;
    std::string why;
  };

  Console& console_;
  std::vector<Lost> lost_;
  std::vector<std::string> written_;
};

}  // namespace reigen::train
