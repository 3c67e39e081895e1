// Mixed precision: while an Autocast object lives, LibTorch computes this thread's matrix products and convolutions in
// 16 bits. It computes operations that need range or precision (losses, the statistics of normalisation layers, sums)
// in fp32. The weights keep their type. If they are fp32, they are the master weights, and gradients are fp32.
//
//   at::Tensor loss;
//   {
//     reigen::nn::Autocast autocast(at::kBFloat16);
//     loss = loss_of(parallel(batch.input), batch.target);
//   }
//   loss.backward();                                        // outside of the scope: backward uses forward's types
//
// fp16 needs a loss scaler (optim/grad_scaler.h); bf16 does not. LibTorch decides which operation runs in which type:
// https://docs.pytorch.org/docs/stable/amp.html. While an Autocast object lives, each weight is converted only once.
// Thread rule: an Autocast object acts on the thread that creates it, and not on threads that start while it lives.
// Autocast objects may nest.
#pragma once

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

namespace reigen::nn {

class Autocast {
 public:
  // `type` is at::kBFloat16 or at::kHalf, and `device` is at::kCPU or at::kCUDA. Throws InvalidArgument for other
  // values.
  explicit Autocast(c10::ScalarType type = c10::ScalarType::BFloat16, c10::DeviceType device = c10::DeviceType::CPU);
  ~Autocast();
  Autocast(const Autocast&) = delete;  // an object belongs to one scope
  Autocast& operator=(const Autocast&) = delete;

 private:
  c10::DeviceType device_;
  bool was_enabled_;
  c10::ScalarType was_type_;
};

}  // namespace reigen::nn
