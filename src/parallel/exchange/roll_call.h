// Who still trains, asked of all ranks before everything that the ranks of a Join do together.
#pragma once

#include <memory>
#include <string>

#include "reigen/comm/communicator.h"
#include "reigen/parallel/join.h"

namespace reigen::parallel {

enum class Activity : unsigned char {
  kNone = 0,  // no more data
  kForward = 1,
  kReduction = 2,
};

struct Roll {
  Activity activity = Activity::kNone;  // of the ranks that train; kNone: there are none left
  int training = 0;
  int first_training = 0;
  bool here = false;  // this rank trains
};

class RollCall {
 public:
  RollCall(Communicator world, const JoinOptions& options);

  // Asks all ranks; `tag` names the call. The answer is taken before the next question.
  void ask(Activity mine, const std::string& tag);
  // Whether answer() would not wait.
  bool is_answered() const { return work_.is_completed(); }
  // Of what was asked. Waits; the same result on every rank. Throws CollectiveMismatch where ranks that train differ in
  // what they do, and EarlyEnd, both on every rank.
  const Roll& answer();

  // The last roll that anybody trained in; before the first: all.
  const Roll& last() const { return last_; }
  // Of the last forward, and of the one before: whose buffers are the newest.
  const Roll& last_forward() const { return last_forward_; }
  const Roll& forward_before() const { return forward_before_; }
  // What gradients, averaged over all ranks, must be multiplied by.
  double correction() const;

 private:
  Communicator world_;
  const JoinOptions options_;
  Activity mine_ = Activity::kNone;
  std::string tag_;
  Work work_;
  // Each rank's, and before them this rank's own. Memory of the communicator: a question that nobody waits for any more
  // goes on in it.
  std::shared_ptr<void> answers_;
  Roll last_;
  Roll last_forward_;
  Roll forward_before_;
  Roll none_;
};

}  // namespace reigen::parallel
