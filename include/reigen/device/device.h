// Where memory lies and code runs, as a value. LibTorch is not needed: a program that trains has the same words in
// at::Device.
#pragma once

#include <cstdint>
#include <string>

namespace reigen {

enum class DeviceKind : std::uint8_t { kCpu, kCuda };

struct Device {
  DeviceKind kind = DeviceKind::kCpu;
  int index = 0;  // of a GPU: among those that this process sees; -1: chosen by the rank's place

  static constexpr Device cpu() { return {}; }
  static constexpr Device cuda(int index = -1) { return {DeviceKind::kCuda, index}; }
  bool is_cpu() const { return kind == DeviceKind::kCpu; }
  bool operator==(const Device&) const = default;
};

// "cpu", "cuda" (index -1), "cuda:1". Throws InvalidArgument for anything else.
Device parse_device(const std::string& text);
std::string to_string(const Device& device);

// What a device does in one order: its default stream, or one of the program's own (a cudaStream_t). Of the cpu: what
// the calling thread does.
struct Stream {
  Device device = {};
  void* handle = nullptr;  // null: the default stream
};

}  // namespace reigen
