// A rank's share of the processors of its machine.
#pragma once

#include "base/machine/core_share.h"
#include "reigen/comm/communicator.h"

namespace reigen::comm {

// Returns this rank's share. It is computed once, when the first group forms: the group from which `group` was split,
// or `group` itself. The ranks of the first group on this machine divide the processors. All groups that are split off
// have the same share. The function sends nothing to other ranks. If the first group is one rank alone, the share is
// all processors that this process may use.
base::CoreShare core_share_of(const Communicator& group);

}  // namespace reigen::comm
