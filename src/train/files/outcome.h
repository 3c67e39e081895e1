// Records which files a run could write at its end, and which files it could not write. If one file fails, the others
// are still written, and the user is told what is lost.
// Thread rule: used by one thread only. Every rank makes the same calls.
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

  // Runs body(), which writes `what`. If it throws an error that every rank has, attempt() prints a warning, records
  // the error and returns false. An error of one rank alone is thrown.
  bool attempt(const std::string& what, const std::function<void()>& body);
  // Records that `what` could not be written. The user was told already.
  void note_lost(std::string what, ExitCode code, std::string why);

  bool is_complete() const { return lost_.empty(); }
  // Names of the files that were written.
  const std::vector<std::string>& written() const { return written_; }
  // Makes the error of the run: `what` went wrong, what is lost, and `ways` to continue with what was saved. Every
  // rank has this error.
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
