// Mixed precision: while a guard lives, LibTorch computes matrix products and convolutions of this thread in 16 bits,
// and operations that need range or precision (losses, the statistics of norms, sums) in fp32. The weights keep their
// type. If they are fp32, they are the master weights, and gradients are fp32.
//
//   at::Tensor loss;
//   {
//     reigen::nn::Autocast autocast(at::kBFloat16);
//     loss = loss_of(parallel(batch.input), batch.target);
//   }
//   loss.backward();                                        // after the guard: backward uses the types of forward
//
// fp16 needs a loss scaler (optim/grad_scaler.h); bf16 does not. LibTorch decides which operation runs in which type:
// https://docs.pytorch.org/docs/stable/amp.html. While a guard lives, each weight is converted only once.
// Thread rule: a guard acts on the thread that creates it, not on threads that start while it lives; guards nest.
#pragma once

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

namespace reigen::nn {

class Autocast {
 public:
  // type: at::kBFloat16 or at::kHalf; device: at::kCPU or at::kCUDA. Throws InvalidArgument for others.
  explicit Autocast(c10::ScalarType type = c10::ScalarType::BFloat16, c10::DeviceType device = c10::DeviceType::CPU);
  ~Autocast();
  Autocast(const Autocast&) = delete;  // a guard belongs to one scope
  Autocast& operator=(const Autocast&) = delete;

 private:
  c10::DeviceType device_;
  bool was_enabled_;
  c10::ScalarType was_type_;
};

}  // namespace reigen::nn
