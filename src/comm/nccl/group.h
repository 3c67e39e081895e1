// What the operations of a group share.
// Thread rule: the driving thread, but for `scaled`, which belongs to the thread that calls.
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
  // In this order: a communicator is ended before its stream.
  std::unique_ptr<device::OwnStream> stream = {};
  std::shared_ptr<void> barrier = {};  // a byte of the device
  std::shared_ptr<void> scaled = {};   // of the device: inputs times their factor; one call after the other uses it
  std::size_t scaled_bytes = 0;
  std::unique_ptr<control::StoreControl> control = {};
  Handle alone = {};  // of this rank only: multiplies by a factor; made when there is one
  Handle communicator = {};
};

}  // namespace reigen::comm::nccl
