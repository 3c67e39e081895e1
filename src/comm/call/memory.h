// Decides whether a call is on the host's memory or on a device's.
#pragma once

#include <string>

#include "comm/call/call.h"

namespace reigen::comm {

// The properties of a group on which the decision depends.
struct MemoryOfGroup {
  const std::string& name;
  int rank = 0;
  int size = 1;
  Device device = {};  // the GPU whose memory the group's calls can use; cpu if there is none
};

// Whether the call is on the device's memory. The location of the call's buffers decides this. For a call without
// buffers, the device of the stream Call::after decides. Throws InvalidArgument for buffers in both kinds of memory,
// and for memory or a stream of another device.
bool is_of_device(const Call& call, const MemoryOfGroup& group);

// Throws InvalidArgument unless the stream belongs to the device or to the cpu. `what` names the operation.
void check_stream(const Stream& stream, const Device& device, const char* what);

}  // namespace reigen::comm
