// The handle of a started operation of a Communicator, or of a started CallList.
#pragma once

#include <memory>
#include <utility>

#include "reigen/base/deadline.h"
#include "reigen/device/device.h"

namespace reigen::comm {

struct WorkState;

// Copies of a Work are handles of the same operation. The operation continues when its last Work is destroyed. The
// operation keeps blocks of Communicator::allocate() alive, so their owner may drop them at any time; other memory must
// remain valid until the operation has completed.
// Thread rule: any thread may call any function.
class Work {
 public:
  Work() = default;  // a completed operation
  explicit Work(std::shared_ptr<WorkState> state) : state_(std::move(state)) {}

  // Returns when the output may be read and the input may be changed. The waiting thread advances the operation itself
  // if it can, so that no other thread has to wake up. Throws the error of the operation: Timeout, PeerLost,
  // CollectiveMismatch or Aborted.
  void wait() const;
  // As wait() above, but throws Timeout when `deadline` passes first. The operation then continues, and wait() may be
  // called again.
  void wait(const Deadline& deadline) const;

  // Makes `stream` wait for the operation: work that is put on the stream from now on runs after the result is there.
  // So the host need not wait. Over cuda_ipc the function returns at once. Over nccl it returns when the operation has
  // been launched on its device; for a send or recv it returns when the operation is complete. The function blocks as
  // wait() does for a stream of the cpu, for an operation on the host's memory, and for a default stream that several
  // ranks of one process share.
  // Use a stream of the rank's own that does not wait for the default stream (cudaStreamNonBlocking). Otherwise all
  // ranks may block for ever: a later call may be unable to begin, because it must wait for a stream that itself waits
  // for an earlier call. Until the stream has run the wait, the buffers must remain valid, and the program must not
  // call functions that wait for the device (cudaFree, cudaDeviceSynchronize). Throws as wait() does, and throws
  // InvalidArgument for a stream of another device. If an error occurs after wait_on() has returned, the group's next
  // call throws it, and the stream continues with an invalid result.
  void wait_on(const Stream& stream) const;

  // True if the operation has completed or failed. Never blocks, never throws.
  bool is_completed() const;

 private:
  std::shared_ptr<WorkState> state_;
};

}  // namespace reigen::comm
