// Asks all ranks which of them still train. The ranks of a Join (reigen/parallel/join.h) do so before each averaging of
// gradients, and before each forward that synchronises buffers.
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

// The answer of all ranks to one question.
struct Roll {
  Activity activity = Activity::kNone;  // what the ranks that train do next; kNone if no rank trains any more
  int training = 0;                     // how many ranks train
  int first_training = 0;               // the lowest rank that trains
  bool here = false;                    // whether this rank trains
};

class RollCall {
 public:
  RollCall(Communicator world, const JoinOptions& options);

  // Starts a call in which every rank sends what it does next; `mine`: what this rank does next. `tag`: the tag of the
  // call. Call answer() before the next ask().
  void ask(Activity mine, const std::string& tag);
  // Whether answer() would not wait.
  bool is_answered() const { return work_.is_completed(); }
  // Waits for the answers of all ranks to the last ask(). The result is the same on every rank, except for Roll::here.
  // Throws CollectiveMismatch if the ranks that train do different things, and EarlyEnd if a rank has no more data and
  // throw_on_early_end is set. Every rank throws the same error.
  const Roll& answer();

  // The last answer in which some rank trained. Before the first answer, it says that all ranks train.
  const Roll& last() const { return last_; }
  // last_forward(): the answer for the last forward. forward_before(): the answer for the forward before the last. They
  // show which ranks have the newest buffers.
  const Roll& last_forward() const { return last_forward_; }
  const Roll& forward_before() const { return forward_before_; }
  // The mean over all ranks counts the gradients of ranks without data as zeros. Averaged gradients must be multiplied
  // by this factor, which corrects the mean as JoinOptions::divide_by says.
  double correction() const;

 private:
  Communicator world_;
  const JoinOptions options_;
  Activity mine_ = Activity::kNone;
  std::string tag_;
  Work work_;
  // This rank's own answer, then the answers of all ranks. A call in flight keeps this memory alive
  // (Communicator::allocate()), even if nobody waits for the answer any more.
  std::shared_ptr<void> answers_;
  Roll last_;
  Roll last_forward_;
  Roll forward_before_;
  Roll none_;
};

}  // namespace reigen::parallel
