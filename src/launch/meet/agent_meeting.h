// Connects ranks that torchrun started on several machines, through the store of torchrun's agent, which all ranks can
// reach.
#pragma once

#include <chrono>
#include <memory>

#include "reigen/base/deadline.h"
#include "reigen/launch/environment.h"
#include "reigen/store/store.h"

namespace reigen::launch {

// Parameters and errors are those of join_job(). Every rank writes the identity of its machine's network to the agent's
// store. Rank 0 then serves the job's store on a port that the kernel picks (on the loopback if all ranks are on one
// machine), and writes the address of this store to the agent's store.
std::shared_ptr<store::Store> meet_at_agent(const Environment& environment, const Deadline& deadline,
                                            std::chrono::milliseconds heartbeat_timeout);

}  // namespace reigen::launch
