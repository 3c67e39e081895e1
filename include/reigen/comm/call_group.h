// Calls that are made at once.
#pragma once

#include <memory>

#include "reigen/comm/communicator.h"

namespace reigen::comm {

// Ranks meet for all of them together, and none waits for another in the same group, as in
// an exchange of sends and recvs or the sum of many small tensors.
//
//   comm::CallGroup group(world);
//   world.send(a, n, type, next);
//   world.recv(b, n, type, previous);
//   group.run();
//
// From its construction to run() the calls of this communicator are only collected; a Work of one of them may be waited
// for after run(). Calls that were collected but not run are dropped with the group. One group at a time.
class CallGroup {
 public:
  explicit CallGroup(Communicator& communicator);
  ~CallGroup();
  CallGroup(const CallGroup&) = delete;  // the communicator collects for this one
  CallGroup& operator=(const CallGroup&) = delete;

  // The Work is complete when all are. Of the options, `async` and `progress` count for the whole group.
  Work run(const CallOptions& options = {});

 private:
  std::shared_ptr<Communicator::Impl> impl_;
  bool ran_ = false;
};

}  // namespace reigen::comm

namespace reigen {
using comm::CallGroup;
}  // namespace reigen
