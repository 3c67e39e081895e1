// What dies in a program that has a static C++ library beside LibTorch's shared one.
#include <ATen/core/Tensor.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/ones.h>

#include <cstdio>
#include <future>

int main() {
  std::promise<int> promise;  // so that std::call_once is in this program, too
  promise.set_value(1);
  const at::Tensor sum = at::conv2d(at::ones({1, 1, 3, 3}), at::ones({1, 1, 3, 3})).sum();
  std::printf("promise %d, convolution %g\n", promise.get_future().get(), sum.item<double>());
}
