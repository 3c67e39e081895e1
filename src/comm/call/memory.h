// Whose memory a call takes.
#pragma once

#include <string>

#include "comm/call/call.h"

namespace reigen::comm {

// What of a group decides it.
struct MemoryOfGroup {
  const std::string& name;
  int rank = 0;
  int size = 1;
  Device device = {};  // whose memory it carries beside the host's; the cpu: none
};

// Whether it is the device's: the buffers say it, and for a call without any its stream. Throws InvalidArgument for
// buffers of both kinds, and for memory or a stream of another device.
bool is_of_device(const Call& call, const MemoryOfGroup& group);

// Throws InvalidArgument unless the stream is the device's, or of the cpu.
void check_stream(const Stream& stream, const Device& device, const char* what);

}  // namespace reigen::comm
