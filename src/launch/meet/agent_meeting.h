// How ranks of several machines meet that torchrun started: through the store of its agent, which all of them reach.
#pragma once

#include <chrono>
#include <memory>

#include "reigen/base/deadline.h"
#include "reigen/launch/environment.h"
#include "reigen/store/store.h"

namespace reigen::launch {

// As join_job. Every rank tells the agent on which machine it is; rank 0 then serves on a port that the kernel picks,
// on the loopback where all are on one, and tells the agent where.
std::shared_ptr<store::Store> meet_at_agent(const Environment& environment, const Deadline& deadline,
                                            std::chrono::milliseconds heartbeat_timeout);

}  // namespace reigen::launch
