// What the operations of a group share.
// Thread rule: the driving thread, but for `scaled`, which belongs to the thread that calls.
#pragma once

#include <cstddef>
#include <memory>

#include "comm/control/store_control.h"
#include "comm/nccl/device.h"
#include "comm/nccl/handle.h"

namespace reigen::comm::nccl {

inline constexpr std::size_t kHostBytes = 64 * 1024;  // of host memory that are carried to the device and back
inline constexpr std::size_t kBarrierBytes = 256;

struct Group {
  int rank = 0;
  int size = 1;
  int device = 0;
  // In this order: a communicator is ended before its stream.
  std::unique_ptr<Stream> stream = {};
  std::shared_ptr<void> scratch = {};  // of the device: a barrier's byte, then the input and the output of host memory
  std::shared_ptr<void> pinned = {};   // of the host, for the same: only from here do copies run without waiting
  bool host_busy = false;              // an operation on host memory is under way: the next one waits
  std::shared_ptr<void> scaled = {};   // of the device: inputs times their factor; one call after the other uses it
  std::size_t scaled_bytes = 0;
  std::unique_ptr<control::StoreControl> control = {};
  Handle alone = {};  // of this rank only: multiplies by a factor; made when there is one
  Handle communicator = {};
};

// Throws InvalidArgument when NCCL cannot reach the memory: `side` names it.
void check_memory(const Group& group, const Call& call, const void* data, std::size_t bytes, const char* side);

}  // namespace reigen::comm::nccl
