// The types of devices that Autocast accepts. Code that saves and restores the autocast setting does so for each of
// these types.
#pragma once

#include <c10/core/DeviceType.h>

#include <array>

namespace reigen::nn {

inline constexpr std::array kAutocastDevices{c10::DeviceType::CPU, c10::DeviceType::CUDA};

}  // namespace reigen::nn
