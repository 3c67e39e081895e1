// What a run could write at its end, and what it could not: that one thing fails keeps no other from being written,
// and nothing is lost in silence.
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

  // Whether body() ended without an error that every rank has; such an error is told as a warning and kept. An error of
  // one rank alone is thrown.
  bool attempt(const std::string& what, const std::function<void()>& body);
  // `what` is not there, by an error that was told already.
  void note_lost(std::string what, ExitCode code, std::string why);

  bool is_complete() const { return lost_.empty(); }
  // Of what was tried and is there.
  const std::vector<std::string>& written() const { return written_; }
  // What is lost, as the error of the run: `what` it is, and in which ways the user has what there is. Common to all
  // ranks.
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
