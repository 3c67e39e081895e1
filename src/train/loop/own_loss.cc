#include "train/loop/own_loss.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace reigen::train {

OwnLoss::OwnLoss(const at::Device& device) {
  if (device.is_cuda()) on_gpu_ = at::zeros({1}, at::TensorOptions().dtype(at::kDouble).device(device));
}

void OwnLoss::add(const at::Tensor& mean, std::int64_t terms) {
  if (terms == 0) return;
  if (!on_gpu_.defined()) {
    sum_ += mean.item<double>() * static_cast<double>(terms);
    return;
  }
  const at::NoGradGuard no_grad;
  // add_(mean, terms) might round only once, and the code for the CPU rounds twice. GPU and CPU would then give
  // different bits.
  on_gpu_.add_(mean.detach().to(at::kDouble).mul(static_cast<double>(terms)));
}

double OwnLoss::value() const { return on_gpu_.defined() ? on_gpu_.item<double>() : sum_; }

at::Tensor OwnLoss::on_device() const { return on_gpu_.defined() ? on_gpu_ : at::full({1}, sum_, at::kDouble); }

}  // namespace reigen::train
