// The part that a rank has of the processors of its machine.
#pragma once

#include "base/machine/core_share.h"
#include "reigen/comm/communicator.h"

namespace reigen::comm {

// The share is computed once, when the first group of the family forms (the group from which all others were split).
// The ranks of the first group on this machine divide the processors. A group that was split off has the same share.
// The function sends nothing. If the first group is one rank alone, the share is all processors that this process may
// use.
base::CoreShare core_share_of(const Communicator& group);

}  // namespace reigen::comm
