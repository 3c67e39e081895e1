#include "train/model/device.h"

#include <ATen/ATen.h>

#include "config/checks.h"
#include "device/cuda.h"
#include "reigen/base/error.h"
#include "tensor/torch_cuda.h"
#include "train/run/agree.h"

namespace reigen::train {

TrainConfig with_device_chosen(TrainConfig config) {
  if (!config::device_of(config)) config.device = device::has_gpu() ? "cuda" : "cpu";
  return config;
}

at::Device device_of(const TrainConfig& config, const Communicator& world) {
  const Device wanted = config::device_of(with_device_chosen(config)).value();
  if (wanted.is_cpu()) return at::kCPU;
  const Device carried = world.device();
  if (carried.is_cpu() || (wanted.index >= 0 && wanted.index != carried.index)) {
    throw common(InvalidArgument(
        Report{.what = fmt::format("train.device {}: the ranks' group does not carry this GPU", to_string(wanted)),
               .got = "a group that carries the memory of " + to_string(carried),
               .expected = to_string(wanted),
               .fix = "make the group with init({.device = Device::cuda()}), or leave "
                      "train.device out"}));
  }
  tensor::open_torch_cuda();
  return {at::kCUDA, static_cast<c10::DeviceIndex>(carried.index)};
}

data::Samples samples_on(const at::Device& device, const data::Samples& samples) {
  if (device.is_cpu()) return samples;
  const auto there = [&](const at::Tensor& tensor) { return tensor.defined() ? tensor.to(device) : tensor; };
  data::Samples moved{there(samples.input), there(samples.target), {}, {}};
  // The first of all input tensors is `input`, and need not be copied twice.
  for (std::size_t i = 0; i < samples.inputs.size(); ++i) {
    moved.inputs.push_back(i == 0 ? moved.input : there(samples.inputs[i]));
  }
  for (std::size_t i = 0; i < samples.targets.size(); ++i) {
    moved.targets.push_back(i == 0 ? moved.target : there(samples.targets[i]));
  }
  return moved;
}

}  // namespace reigen::train
