#include "comm/call/memory.h"

#include <optional>

#include "base/check.h"
#include "device/cuda.h"

namespace reigen::comm {

namespace {

Device checked_device_of(const Call& call, const void* data, const Device& own) {
  const Device found = device::device_of(data);
  REIGEN_CHECK(
      found.is_cpu() || found == own,
      "[{}] the memory is on another device\n  got: {} on {}   expected: memory of the host, or of {}, which is "
      "the group's",
      name_of(call.kind), data, to_string(found), to_string(own));
  return found;
}

}  // namespace

void check_stream(const Stream& stream, const Device& device, const char* what) {
  const Device& on = stream.device;
  REIGEN_CHECK(on.is_cpu() || on.index < 0 || on == device,
               "[{}] the stream is another device's\n  got: {}   expected: {}, which is the group's", what,
               to_string(on), to_string(device));
}

bool is_of_device(const Call& call, const MemoryOfGroup& group) {
  if (group.device.is_cpu()) {
    REIGEN_CHECK(call.after.device.is_cpu(),
                 "[{}] group \"{}\" carries the host's memory alone\n  got: a call on {}   "
                 "expected: a group that was made with GroupOptions::device",
                 name_of(call.kind), group.name, to_string(call.after.device));
    return false;
  }
  check_stream(call.after, group.device, name_of(call.kind));
  const Extent extent = extent_of(call, group.rank, group.size);
  const bool has_any = extent.input + extent.output > 0;
  std::optional<Device> input;
  std::optional<Device> output;
  if (call.input != nullptr && (extent.input > 0 || !has_any)) {
    input = checked_device_of(call, call.input, group.device);
  }
  if (call.output != nullptr && (extent.output > 0 || !has_any)) {
    output = call.output == call.input && input ? input : checked_device_of(call, call.output, group.device);
  }
  REIGEN_CHECK(!input || !output || *input == *output,
               "[{}] the buffers of a call lie in different memory\n  got: input on {}, output on {}   "
               "expected: both on the same device",
               name_of(call.kind), to_string(*input), to_string(*output));
  const bool on_device = !(input ? *input : output ? *output : call.after.device).is_cpu();
  REIGEN_CHECK(on_device || call.after.device.is_cpu(),
               "[{}] a call on the host's memory does not come after a stream\n  got: after a stream of {}   "
               "expected: buffers of that device, or a host that has waited for the stream",
               name_of(call.kind), to_string(call.after.device));
  return on_device;
}

}  // namespace reigen::comm
