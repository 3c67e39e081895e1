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
  // the error and returns false. If only this rank has the error, attempt() throws it.
  bool attempt(const std::string& what, const std::function<void()>& body);
  // Records that `what` could not be written. The caller has told the user already.
  void note_lost(std::string what, ExitCode code, std::string why);

  bool is_complete() const { return lost_.empty(); }
  // Names of the files that were written.
  const std::vector<std::string>& written() const { return written_; }
  // Returns the error of the run. It says what went wrong (`what`), which files are lost, and how to continue with the
  // saved files (`ways`). Every rank has this error.
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
