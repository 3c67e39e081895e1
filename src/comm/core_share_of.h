// The part that a rank has of the processors of its machine.
#pragma once

#include "base/machine/core_share.h"
#include "reigen/comm/communicator.h"

namespace reigen::comm {

// The share is computed once, when the first group of the family forms (the group from which all others were split),
// among those of its ranks that are on this machine. A group that was split off has the same share. Local. If the
// first group is one rank alone: all processors that this process may use.
base::CoreShare core_share_of(const Communicator& group);

}  // namespace reigen::comm
