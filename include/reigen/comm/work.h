// The handle of one operation of a Communicator.
#pragma once

#include <memory>
#include <utility>

#include "reigen/base/deadline.h"
#include "reigen/device/device.h"

namespace reigen::comm {

struct WorkState;

// Copies are the same operation. A Work that is dropped goes on. Blocks of Communicator::allocate() are kept for it and
// may be dropped at any time; other memory must stay valid until it has completed.
// Thread rule: any thread may wait or ask.
class Work {
 public:
  Work() = default;  // completed
  explicit Work(std::shared_ptr<WorkState> state) : state_(std::move(state)) {}

  // Returns when the output may be read and the input changed. The waiting thread does the work itself where it can, so
  // that no other thread need wake up. Throws what went wrong: Timeout, PeerLost, CollectiveMismatch, Aborted.
  void wait() const;
  // As above, but throws Timeout when `deadline` passes first; the operation goes on and may be waited for again.
  void wait(const Deadline& deadline) const;

  // What comes on the stream from now on waits for the result, so that the host need not. Returns at once over
  // cuda_ipc; over nccl when the operation is on its device, and for a message when it is complete; as wait() for a
  // stream of the cpu, for the host's memory, and for a default stream that ranks of one process share. A stream of the
  // rank's own that does not wait for the default stream (cudaStreamNonBlocking) is best: a call behind another stream
  // that waits keeps all ranks waiting. Until the stream has come so far the buffers must stay, and nothing may be
  // called that waits for the device (cudaFree, cudaDeviceSynchronize). Throws as wait(), and InvalidArgument for a
  // stream of another device; what goes wrong later is thrown by the group's next call, and the stream goes on, with a
  // result that is none.
  void wait_on(const Stream& stream) const;

  // True once it has completed or failed. Never blocks, never throws.
  bool is_completed() const;

 private:
  std::shared_ptr<WorkState> state_;
};

}  // namespace reigen::comm
