#include "comm/nccl/group.h"

#include "base/check.h"

namespace reigen::comm::nccl {

void check_memory(const Group& group, const Call& call, const void* data, std::size_t bytes, const char* side) {
  if (bytes == 0) return;
  const Place place = place_of(data, group.device);
  if (place == Place::kDevice || (place == Place::kHost && bytes <= kHostBytes)) return;
  throw InvalidArgument(
      Report{.what = fmt::format("[{}] NCCL cannot reach the {}", name_of(call.kind), side),
             .got = fmt::format("{} ({} bytes) {}", data, bytes,
                                place == Place::kHost ? "in the host's memory" : "on another device"),
             .expected = fmt::format("memory of device {} (host memory only up to {} bytes)", group.device, kHostBytes),
             .fix = "move the tensor to the device of this rank, or take a backend for host memory"});
}

}  // namespace reigen::comm::nccl
