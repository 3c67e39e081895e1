// What the ranks that formed a group, and all groups that were split from it, have of their machine's processors.
#pragma once

#include "base/machine/core_share.h"
#include "reigen/comm/communicator.h"

namespace reigen::comm {

// Beside all ranks of the group that met first on this machine: those of a part share with those of the other parts.
// Local. Alone: all that this process may have.
base::CoreShare core_share_of(const Communicator& group);

}  // namespace reigen::comm
