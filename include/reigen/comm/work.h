// The handle of a started operation of a Communicator, or of a started list of them.
#pragma once

#include <memory>
#include <utility>

#include "reigen/base/deadline.h"
#include "reigen/device/device.h"

namespace reigen::comm {

struct WorkState;

// Copies of a Work are handles of the same operation. The operation goes on when its Work is dropped. The operation
// keeps blocks of Communicator::allocate() alive, so these may be dropped at any time; other memory must stay valid
// until the operation has completed.
// Thread rule: any thread may call any function.
class Work {
 public:
  Work() = default;  // a completed operation
  explicit Work(std::shared_ptr<WorkState> state) : state_(std::move(state)) {}

  // Returns when the output may be read and the input changed. The waiting thread drives the operation itself if it
  // can, so that no other thread has to wake up. Throws the error of the operation: Timeout, PeerLost,
  // CollectiveMismatch or Aborted.
  void wait() const;
  // As above, but throws Timeout when `deadline` passes first; the operation goes on and may be waited for again.
  void wait(const Deadline& deadline) const;

  // Makes `stream` wait for the operation: work that is put on the stream from now on runs after the result is there,
  // so the host need not wait. Over cuda_ipc the function returns at once. Over nccl it returns when the operation is
  // on its device, and for a send or recv when it is complete. It blocks as wait() does for a stream of the cpu, for
  // an operation on the host's memory, and for a default stream that several ranks of one process share.
  // Best is a stream of the rank's own that does not wait for the default stream (cudaStreamNonBlocking): a call that
  // must begin after a stream that is itself waiting keeps all ranks waiting. Until the stream has run the wait, the
  // buffers must stay valid, and nothing may be called that waits for the device (cudaFree, cudaDeviceSynchronize).
  // Throws as wait() does, and InvalidArgument for a stream of another device. An error that occurs later is thrown
  // by the group's next call; the stream then goes on with an invalid result.
  void wait_on(const Stream& stream) const;

  // True once the operation has completed or failed. Never blocks, never throws.
  bool is_completed() const;

 private:
  std::shared_ptr<WorkState> state_;
};

}  // namespace reigen::comm
