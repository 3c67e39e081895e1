// A value that names the device on which memory lies or code runs. This header does not need LibTorch; LibTorch's type
// for the same values is at::Device.
#pragma once

#include <cstdint>
#include <string>

namespace reigen {

enum class DeviceKind : std::uint8_t { kCpu, kCuda };

struct Device {
  DeviceKind kind = DeviceKind::kCpu;
  int index = 0;  // a GPU's index among the visible GPUs; -1 means the rank's number on its machine

  static constexpr Device cpu() { return {}; }
  static constexpr Device cuda(int index = -1) { return {DeviceKind::kCuda, index}; }
  bool is_cpu() const { return kind == DeviceKind::kCpu; }
  bool operator==(const Device&) const = default;
};

// Accepts "cpu", "cuda" (index -1) and "cuda:1". Throws InvalidArgument for any other text.
Device parse_device(const std::string& text);
std::string to_string(const Device& device);

// A queue of work on a device; the device runs the work in the order of the queue. The queue is the default stream, or
// a stream that the program made (a cudaStream_t). A Stream of the cpu means the work of the calling thread.
struct Stream {
  Device device = {};
  void* handle = nullptr;  // null means the default stream
};

}  // namespace reigen
