#include "reigen/optim/device_norm.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include <fmt/format.h>

#include "device/cuda.h"
#include "device/kernels.h"
#include "optim/option_checks.h"
#include "optim/passes/control.h"
#include "optim/passes/gradients.h"
#include "reigen/base/error.h"
#include "reigen/comm/call_list.h"
#include "tensor/calls.h"

namespace reigen::optim {

namespace {

// Replaces the first number by the sum over all ranks that own boxes and all stages, and the others by 0. Of whole
// gradients, which may differ by rounding, the first owner's count.
void add_up_model(const std::vector<ParameterRange>& ranges, const Gradients& gradients, const at::Tensor& squares) {
  const Communicator& owners = ranges.front().box_owners();
  std::vector<std::int64_t> own;
  for (std::size_t i = 0; i < gradients.pieces.size(); ++i) {
    const Piece& piece = gradients.pieces[i];
    if (!gradients.counts(piece)) continue;
    if (owners.rank() == 0 || gradients.is_of_box(piece)) own.push_back(static_cast<std::int64_t>(i));
  }
  const at::Tensor places = at::tensor(own, at::kLong).to(squares.device(), /*non_blocking=*/true);
  const at::Tensor all = squares.view({-1, 2}).select(1, 0).index_select(0, places).sum().view({1});
  auto* const sum = all.mutable_data_ptr();
  const auto add_up = [&](const Communicator& group, const char* tag) {
    if (group.size() == 1) return;
    CallList calls;
    calls.all_reduce(sum, sum, 1, DataType::kFloat64, ReduceOp::kSum, {.tag = tag, .after = tensor::stream_of(all)});
    tensor::run_calls(group, calls, all);
  };
  add_up(owners, "squares of gradients of all boxes");
  add_up(ranges.front().stages(), "squares of gradients of all stages");
  squares.zero_();
  squares.narrow(0, 0, 1).copy_(all);
}

}  // namespace

DeviceNorm::DeviceNorm(const at::Device& gpu, const DeviceNormOptions& options) : options_(options) {
  if (!gpu.is_cuda()) {
    throw InvalidArgument(Report{.what = "[device_norm] the device is no GPU",
                                 .got = gpu.str(),
                                 .expected = "a GPU",
                                 .fix = "on the CPU take gradient_norm() (reigen/optim/clip.h)"});
  }
  check_at_least_zero("device_norm", "max_norm", options.max_norm);
  values_ = at::zeros({kControlNumbers}, at::TensorOptions().dtype(at::kDouble).device(gpu));
  values_.narrow(0, 1, 1).fill_(1);  // this number is StepControl::factor
}

void DeviceNorm::compute(const std::vector<ParameterRange>& ranges) {
  const at::Device gpu = values_.device();
  const c10::DeviceGuard guard(gpu);
  if (device_of(ranges) != gpu) {
    throw InvalidArgument(Report{.what = "[device_norm] the parameters are on another device",
                                 .got = device_of(ranges).str(),
                                 .expected = gpu.str(),
                                 .fix = "make the norm with the device of the parameters"});
  }
  const Gradients gradients = gradients_of(ranges);
  const at::Tensor squares = add_squares(gpu, gradients);
  if (is_divided(ranges)) {
    // Each sum is computed by one rank, and all other ranks have 0 in its place. Adding zeros changes no bit.
    ranges.front().sharing().exchange([&](const Communicator& ranks) {
      auto* const sums = squares.mutable_data_ptr();
      CallList calls;
      calls.all_reduce(sums, sums, static_cast<std::size_t>(squares.numel()), DataType::kFloat64, ReduceOp::kSum,
                       {.tag = "squares of gradients", .after = tensor::stream_of(squares)});
      tensor::run_calls(ranks, calls, squares);
    });
  }
  const bool is_in_parts =
      !ranges.empty() && (ranges.front().box_owners().size() > 1 || ranges.front().stages().size() > 1);
  if (is_in_parts) add_up_model(ranges, gradients, squares);
  const device::FinishNormCall call{.squares = squares.const_data_ptr<double>(),
                                    .count = squares.numel() / 2,
                                    .max_norm = options_.max_norm,
                                    .control = values_.mutable_data_ptr()};
  device::check(device::kernels().finish_norm(&call, device::handle_of(tensor::stream_of(values_))),
                "the kernel that ends a norm");
}

void DeviceNorm::reset() { values_.narrow(0, 2, 1).zero_(); }

const kernels::StepControl* control_of(const DeviceNorm* norm, const at::Device& device, const char* who) {
  if (norm == nullptr) return nullptr;
  if (norm->values().device() != device) {
    throw InvalidArgument(Report{.what = fmt::format("[{}] the norm is on another device than the parameters", who),
                                 .got = norm->values().device().str(),
                                 .expected = device.str(),
                                 .fix = "make the norm with the device of the parameters"});
  }
  return static_cast<const kernels::StepControl*>(norm->values().const_data_ptr());
}

}  // namespace reigen::optim
