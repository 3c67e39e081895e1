// The state that the operations of a group share.
// Thread rule: the driver thread, except `scaled`, which belongs to the thread that makes the call.
#pragma once

#include <cstddef>
#include <memory>

#include "comm/control/store_control.h"
#include "comm/nccl/handle.h"
#include "device/cuda.h"

namespace reigen::comm::nccl {

struct Group {
  int rank = 0;
  int size = 1;
  int device = 0;
  // The order of the members matters: a communicator must be destroyed before its stream.
  std::unique_ptr<device::OwnStream> stream = {};
  std::shared_ptr<void> barrier = {};  // one byte of device memory, which a barrier reduces
  std::shared_ptr<void> scaled = {};   // device memory for inputs times their factor; calls use it one after another
  std::size_t scaled_bytes = 0;
  std::unique_ptr<control::StoreControl> control = {};
  Handle alone = {};  // a communicator of this rank alone, which multiplies by factors; created at the first factor
  Handle communicator = {};
};

}  // namespace reigen::comm::nccl
