// The kernels that the stand-in computes on the host, under the names of the plug-in libreigen_cuda.so.
#include "device/kernel_calls.h"
#include "device/kernels.h"

using reigen::device::kernels;

extern "C" {

int reigen_cuda_version() { return reigen::device::kPluginVersion; }

int reigen_cuda_reduce(const reigen::device::ReduceCall* call, void* stream) { return kernels().reduce(call, stream); }
int reigen_cuda_optimize(const reigen::device::OptimizeCall* call, void* stream) {
  return kernels().optimize(call, stream);
}
int reigen_cuda_finish_norm(const reigen::device::FinishNormCall* call, void* stream) {
  return kernels().finish_norm(call, stream);
}
int reigen_cuda_norm(const reigen::device::NormCall* call, void* stream) { return kernels().norm(call, stream); }
int reigen_cuda_norm_backward(const reigen::device::NormBackwardCall* call, void* stream) {
  return kernels().norm_backward(call, stream);
}
int reigen_cuda_norm_sums(const reigen::device::NormSumsCall* call, void* stream) {
  return kernels().norm_sums(call, stream);
}
int reigen_cuda_batch_statistics(const reigen::device::BatchStatisticsCall* call, void* stream) {
  return kernels().batch_statistics(call, stream);
}
int reigen_cuda_batch_norm(const reigen::device::BatchNormCall* call, void* stream) {
  return kernels().batch_norm(call, stream);
}
int reigen_cuda_batch_norm_sums(const reigen::device::BatchNormSumsCall* call, void* stream) {
  return kernels().batch_norm_sums(call, stream);
}
int reigen_cuda_batch_norm_backward(const reigen::device::BatchNormBackwardCall* call, void* stream) {
  return kernels().batch_norm_backward(call, stream);
}
int reigen_cuda_cross_entropy(const reigen::device::CrossEntropyCall* call, void* stream) {
  return kernels().cross_entropy(call, stream);
}
int reigen_cuda_multiply(const reigen::device::MultiplyCall* call, void* stream) {
  return kernels().multiply(call, stream);
}
int reigen_cuda_gelu(const reigen::device::GeluCall* call, void* stream) { return kernels().gelu(call, stream); }
int reigen_cuda_gelu_backward(const reigen::device::GeluBackwardCall* call, void* stream) {
  return kernels().gelu_backward(call, stream);
}
int reigen_cuda_swiglu(const reigen::device::SwigluCall* call, void* stream) { return kernels().swiglu(call, stream); }
int reigen_cuda_swiglu_backward(const reigen::device::SwigluBackwardCall* call, void* stream) {
  return kernels().swiglu_backward(call, stream);
}
int reigen_cuda_rotary(const reigen::device::RotaryCall* call, void* stream) { return kernels().rotary(call, stream); }
int reigen_cuda_embedding_sums(const reigen::device::EmbeddingSumsCall* call, void* stream) {
  return kernels().embedding_sums(call, stream);
}

}  // extern "C"
