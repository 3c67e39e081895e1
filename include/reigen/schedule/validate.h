// Proves that a pipeline schedule is complete, correct and cannot hang.
//
// validate() accepts a schedule if and only if ranks that do the actions of their lists in order all finish and compute
// the gradients of the model. It checks that
//   1. every action has a stage, a micro-batch and a peer that exist, and is in the list of the rank that holds the
//   stage
//   2. every stage has, for each micro-batch, F once, and either B once or I and W once each
//   3. F of stage s comes after the output of stage s-1 (and of skips) is there: as F of that stage if it is on the
//   same
//      rank, else as RECV_F; B and I come after F and after the gradients are there; W comes after I; a send comes
//      after the action that computes its data
//   4. the n-th send from one rank to another is the counterpart of the n-th receive
//   5. no ranks wait for each other, if a send does not wait and a receive waits until its message is there
//   6. if the weights of a stage are sharded (its list has UNSHARD), they are whole in F, B, I and W; UNSHARD and
//      RESHARD alternate; REDUCE_GRAD comes at most once, after the last backward
// Thread rule: validate() is a pure function; any thread may call it.
#pragma once

#include <vector>

#include "reigen/schedule/schedule.h"

namespace reigen::schedule {

// The most activations that are in flight at one time. An activation of a stage is one micro-batch that the stage has
// begun F for, and has not yet ended B or W for. Lists of one rank are in order, so these numbers do not depend on
// times.
struct InFlight {
  std::vector<int> by_stage;
  std::vector<int> by_rank;  // over all stages of the rank together
  bool operator==(const InFlight&) const = default;
};

struct ValidateOptions {
  // The most activations in flight that are allowed for each stage and for each rank. 0: no limit.
  int most_by_stage = 0;
  int most_by_rank = 0;
};

// Throws InvalidArgument. The error names the rank, the position in its list, from 0 on, and the action. If ranks wait
// for each other, it lists the actions of one cycle. Cost: proportional to ranks times n for n actions,
// most often to n.
InFlight validate(const Schedule& schedule, const ValidateOptions& options = {});

}  // namespace reigen::schedule
