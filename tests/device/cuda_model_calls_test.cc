// The errors of the plug-in's functions for layers of models (device/model_calls.h), on machines without a GPU.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cmath>

#include "device/kernel_calls.h"
#include "harness/folders.h"

namespace reigen::device::model_calls_test {
namespace {

constexpr int kSuccess = 0;
constexpr int kInvalidValue = 1;  // cudaErrorInvalidValue

// A function of the plug-in, and a call that it accepts.
template <class Call>
class Accepted {
 public:
  Accepted(const char* name, const Call& call) : call_(call) {
    static void* const library = dlopen(built("lib/libreigen_cuda.so").c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) function_ = reinterpret_cast<int (*)(const Call*, void*)>(dlsym(library, name));
    EXPECT_NE(function_, nullptr) << dlerror();
    if (function_ == nullptr) return;
    EXPECT_EQ(function_(nullptr, nullptr), kInvalidValue);
    EXPECT_NE(function_(&call_, nullptr), kInvalidValue) << name;  // no device is here, or no memory of it
  }
  template <class Change>
  int changed(const Change& change) const {
    if (function_ == nullptr) return -1;
    Call call = call_;
    change(call);
    return function_(&call, nullptr);
  }
  template <class Change>
  void refuses(const char* what, const Change& change) const {
    EXPECT_EQ(changed(change), kInvalidValue) << what;
  }

 private:
  Call call_;
  int (*function_)(const Call*, void*) = nullptr;
};

alignas(16) float values[16] = {};
alignas(16) double count[2] = {};
alignas(16) long long numbers[4] = {};
constexpr int kFloat = static_cast<int>(ModelTypes::kFloat32);
constexpr int kMixed = static_cast<int>(ModelTypes::kFloat32Bfloat16);

TEST(CudaModelCalls, NormsRefuseWhatIsNotDefined) {
  const Accepted<NormCall> norm(
      "reigen_cuda_norm",
      {.input = values, .output = values, .rstd = values, .rows = 1, .columns = 4, .types = kMixed});
  norm.refuses("no such types", [](NormCall& c) { c.types = 6; });
  norm.refuses("negative types", [](NormCall& c) { c.types = -1; });
  norm.refuses("no input", [](NormCall& c) { c.input = nullptr; });
  norm.refuses("no place for the sum", [](NormCall& c) { c.added = values; });
  norm.refuses("negative rows", [](NormCall& c) { c.rows = -1; });
  norm.refuses("no columns", [](NormCall& c) { c.columns = 0; });
  norm.refuses("eps", [](NormCall& c) { c.eps = NAN; });
  EXPECT_EQ(norm.changed([](NormCall& c) { c.rows = 0; }), kSuccess);
  const Accepted<NormBackwardCall> backward("reigen_cuda_norm_backward", {.of_output = values,
                                                                          .sum = values,
                                                                          .rstd = values,
                                                                          .of_input = values,
                                                                          .rows = 1,
                                                                          .columns = 4,
                                                                          .types = kFloat});
  backward.refuses("no such types", [](NormBackwardCall& c) { c.types = 6; });
  backward.refuses("no rstd", [](NormBackwardCall& c) { c.rstd = nullptr; });
  const Accepted<NormSumsCall> sums("reigen_cuda_norm_sums", {.of_output = values,
                                                              .sum = values,
                                                              .rstd = values,
                                                              .parts = values,
                                                              .of_weight = values,
                                                              .rows = 1,
                                                              .columns = 4,
                                                              .types = kFloat});
  sums.refuses("no such types", [](NormSumsCall& c) { c.types = 6; });
  sums.refuses("no place for parts", [](NormSumsCall& c) { c.parts = nullptr; });
}

TEST(CudaModelCalls, BatchNormsRefuseWhatIsNotDefined) {
  const Accepted<BatchStatisticsCall> statistics(
      "reigen_cuda_batch_statistics",
      {.input = values, .parts = values, .mean = values, .rstd = values, .rows = 2, .columns = 4, .types = kMixed});
  statistics.refuses("no such types", [](BatchStatisticsCall& c) { c.types = 6; });
  statistics.refuses("no rows", [](BatchStatisticsCall& c) { c.rows = 0; });
  statistics.refuses("no columns", [](BatchStatisticsCall& c) { c.columns = 0; });
  statistics.refuses("no place for parts", [](BatchStatisticsCall& c) { c.parts = nullptr; });
  statistics.refuses("one running statistic", [](BatchStatisticsCall& c) { c.running_mean = values; });
  statistics.refuses("eps", [](BatchStatisticsCall& c) { c.eps = -1; });
  const Accepted<BatchNormCall> norm(
      "reigen_cuda_batch_norm",
      {.input = values, .mean = values, .rstd = values, .output = values, .rows = 2, .columns = 4, .types = kMixed});
  norm.refuses("negative types", [](BatchNormCall& c) { c.types = -1; });
  norm.refuses("no mean", [](BatchNormCall& c) { c.mean = nullptr; });
  norm.refuses("no output", [](BatchNormCall& c) { c.output = nullptr; });
  EXPECT_EQ(norm.changed([](BatchNormCall& c) { c.rows = 0; }), kSuccess);
  const Accepted<BatchNormSumsCall> sums("reigen_cuda_batch_norm_sums", {.of_output = values,
                                                                         .input = values,
                                                                         .mean = values,
                                                                         .rstd = values,
                                                                         .parts = values,
                                                                         .of_weight = values,
                                                                         .of_bias = values,
                                                                         .rows = 2,
                                                                         .columns = 4,
                                                                         .types = kFloat});
  sums.refuses("no such types", [](BatchNormSumsCall& c) { c.types = 6; });
  sums.refuses("no place for a gradient", [](BatchNormSumsCall& c) { c.of_bias = nullptr; });
  const Accepted<BatchNormBackwardCall> backward("reigen_cuda_batch_norm_backward", {.of_output = values,
                                                                                     .input = values,
                                                                                     .mean = values,
                                                                                     .rstd = values,
                                                                                     .of_input = values,
                                                                                     .rows = 2,
                                                                                     .columns = 4,
                                                                                     .types = kFloat});
  backward.refuses("no such types", [](BatchNormBackwardCall& c) { c.types = 6; });
  backward.refuses("one sum", [](BatchNormBackwardCall& c) { c.of_bias = values; });
  backward.refuses("no input", [](BatchNormBackwardCall& c) { c.input = nullptr; });
}

TEST(CudaModelCalls, CrossEntropyRefusesWhatIsNotDefined) {
  const Accepted<CrossEntropyCall> loss("reigen_cuda_cross_entropy", {.logits = values,
                                                                      .targets = numbers,
                                                                      .losses = values,
                                                                      .counted = count,
                                                                      .loss = values,
                                                                      .rows = 1,
                                                                      .columns = 4,
                                                                      .types = kFloat});
  loss.refuses("two types", [](CrossEntropyCall& c) { c.types = kMixed; });
  loss.refuses("no logits", [](CrossEntropyCall& c) { c.logits = nullptr; });
  loss.refuses("no targets", [](CrossEntropyCall& c) { c.targets = nullptr; });
  loss.refuses("no columns", [](CrossEntropyCall& c) { c.columns = 0; });
  loss.refuses("no place for the loss", [](CrossEntropyCall& c) { c.loss = nullptr; });
  const Accepted<MultiplyCall> multiply("reigen_cuda_multiply",
                                        {.values = values, .factor = values, .count = 4, .types = kFloat});
  multiply.refuses("two types", [](MultiplyCall& c) { c.types = kMixed; });
  multiply.refuses("no factor", [](MultiplyCall& c) { c.factor = nullptr; });
  multiply.refuses("a negative count", [](MultiplyCall& c) { c.count = -1; });
  EXPECT_EQ(multiply.changed([](MultiplyCall& c) { c.count = 0; }), kSuccess);
}

TEST(CudaModelCalls, ActivationsRefuseWhatIsNotDefined) {
  const Accepted<GeluCall> gelu("reigen_cuda_gelu",
                                {.input = values, .output = values, .rows = 1, .columns = 4, .types = kMixed});
  gelu.refuses("no such types", [](GeluCall& c) { c.types = 6; });
  gelu.refuses("no output", [](GeluCall& c) { c.output = nullptr; });
  EXPECT_EQ(gelu.changed([](GeluCall& c) { c.rows = 0; }), kSuccess);
  const Accepted<GeluBackwardCall> gelu_backward(
      "reigen_cuda_gelu_backward",
      {.of_output = values, .input = values, .of_input = values, .rows = 1, .columns = 4, .types = kFloat});
  gelu_backward.refuses("no such types", [](GeluBackwardCall& c) { c.types = 6; });
  gelu_backward.refuses("no place for parts", [](GeluBackwardCall& c) { c.of_bias = values; });
  const Accepted<SwigluCall> swiglu("reigen_cuda_swiglu", {.gate = values,
                                                           .up = values,
                                                           .output = values,
                                                           .gate_stride = 4,
                                                           .up_stride = 4,
                                                           .rows = 1,
                                                           .columns = 4,
                                                           .types = kFloat});
  swiglu.refuses("two types", [](SwigluCall& c) { c.types = kMixed; });
  swiglu.refuses("no up", [](SwigluCall& c) { c.up = nullptr; });
  const Accepted<SwigluBackwardCall> swiglu_backward("reigen_cuda_swiglu_backward", {.of_output = values,
                                                                                     .gate = values,
                                                                                     .up = values,
                                                                                     .of_gate = values,
                                                                                     .of_up = values,
                                                                                     .gate_stride = 4,
                                                                                     .up_stride = 4,
                                                                                     .of_gate_stride = 4,
                                                                                     .of_up_stride = 4,
                                                                                     .rows = 1,
                                                                                     .columns = 4,
                                                                                     .types = kFloat});
  swiglu_backward.refuses("two types", [](SwigluBackwardCall& c) { c.types = kMixed; });
  swiglu_backward.refuses("no place", [](SwigluBackwardCall& c) { c.of_up = nullptr; });
}

TEST(CudaModelCalls, TokensRefuseWhatIsNotDefined) {
  const Accepted<RotaryCall> rotary("reigen_cuda_rotary", {.input = values,
                                                           .output = values,
                                                           .cosines = values,
                                                           .sines = values,
                                                           .rows = 2,
                                                           .positions = 1,
                                                           .heads = 1,
                                                           .half = 1,
                                                           .types = kFloat});
  rotary.refuses("two types", [](RotaryCall& c) { c.types = kMixed; });
  rotary.refuses("no table", [](RotaryCall& c) { c.sines = nullptr; });
  rotary.refuses("positions that do not divide the rows", [](RotaryCall& c) { c.positions = 3; });
  rotary.refuses("more pairs than a block counts", [](RotaryCall& c) {
    c.heads = 1LL << 20;
    c.half = 1LL << 12;
  });
  const Accepted<EmbeddingSumsCall> sums("reigen_cuda_embedding_sums", {.of_output = values,
                                                                        .sorted = numbers,
                                                                        .order = numbers,
                                                                        .of_weight = values,
                                                                        .rows = 1,
                                                                        .columns = 4,
                                                                        .tokens = 1,
                                                                        .types = kFloat});
  sums.refuses("two types", [](EmbeddingSumsCall& c) { c.types = kMixed; });
  sums.refuses("no order", [](EmbeddingSumsCall& c) { c.order = nullptr; });
  sums.refuses("no tokens", [](EmbeddingSumsCall& c) { c.tokens = 0; });
  EXPECT_EQ(sums.changed([](EmbeddingSumsCall& c) { c.rows = 0; }), kSuccess);
}

}  // namespace
}  // namespace reigen::device::model_calls_test
