// A value that names the device on which memory lies or code runs. This header does not need LibTorch; LibTorch's type
// for the same values is at::Device.
#pragma once

#include <cstdint>
#include <string>

namespace reigen {

enum class DeviceKind : std::uint8_t { kCpu, kCuda };

struct Device {
  DeviceKind kind = DeviceKind::kCpu;
  int index = 0;  // of a GPU: its index among the visible GPUs; -1: chosen by the rank's number on its machine

  static constexpr Device cpu() { return {}; }
  static constexpr Device cuda(int index = -1) { return {DeviceKind::kCuda, index}; }
  bool is_cpu() const { return kind == DeviceKind::kCpu; }
  bool operator==(const Device&) const = default;
};

// "cpu", "cuda" (index -1), "cuda:1". Throws InvalidArgument for anything else.
Device parse_device(const std::string& text);
std::string to_string(const Device& device);

// A queue of work on a device, which runs the work in the order of the queue. It is the default stream, or a stream
// that the program made (a cudaStream_t). A stream of the cpu stands for the work of the calling thread.
struct Stream {
  Device device = {};
  void* handle = nullptr;  // null: the default stream
};

}  // namespace reigen
