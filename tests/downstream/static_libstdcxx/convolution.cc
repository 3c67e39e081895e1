// Without Reigen's link flags, this program crashes if it has a static C++ library besides LibTorch's shared one.
#include <ATen/core/Tensor.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/ones.h>

#include <cstdio>
#include <future>

int main() {
  std::promise<int> promise;  // so that this program also contains std::call_once
  promise.set_value(1);
  const at::Tensor sum = at::conv2d(at::ones({1, 1, 3, 3}), at::ones({1, 1, 3, 3})).sum();
  std::printf("promise %d, convolution %g\n", promise.get_future().get(), sum.item<double>());
}
