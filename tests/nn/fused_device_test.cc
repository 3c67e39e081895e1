// Fused operations on a GPU give the bits of the CPU, and the host waits for nothing. LibTorch's device and CUDA are
// the stand-ins of tests/fakes/: an access by the host to the GPU's memory is SIGSEGV, and streams do their work late.
#include <gmock/gmock.h>

#include "fakes/cuda/stand_in.h"
#include "nn/fused.h"
#include "reigen/nn/activations.h"
#include "reigen/nn/autocast.h"
#include "reigen/nn/batch_norm.h"
#include "reigen/nn/cross_entropy.h"
#include "reigen/nn/embedding.h"
#include "reigen/nn/norm.h"
#include "reigen/nn/rotary.h"

namespace reigen::nn {
namespace {

namespace stand_in = reigen::testing::stand_in;
using fused_testing::kTypes;
using fused_testing::leaves;
using fused_testing::Tensors;

const bool kHidden = [] {
  stand_in::hide_memory();
  stand_in::be_lazy();
  return true;
}();

const at::Device kGpu(at::kCUDA, 1);

// What a function computes on a device: its results, and the gradients of the arguments.
Tensors computed(const std::function<Tensors(const Tensors&)>& function, const Tensors& arguments) {
  const Tensors results = function(arguments);
  Tensors along;
  for (const at::Tensor& result : results) along.push_back(at::ones_like(result) * 0.75);
  torch::autograd::backward(results, along);
  Tensors all = results;
  for (const at::Tensor& one : arguments) all.push_back(one.grad());
  return all;
}

void expect_same_bits(const std::function<Tensors(const Tensors&)>& function, const Tensors& values,
                      at::ScalarType type, const std::string& what) {
  const Tensors here = leaves(values, type);
  Tensors there;
  for (const at::Tensor& one : here) there.push_back(one.detach().to(kGpu).requires_grad_());
  const Tensors known = computed(function, here);
  stand_in::Counts& counts = stand_in::counts(kGpu.index());
  const std::int64_t waits = counts.waits;
  const std::int64_t layers = counts.layers;
  const Tensors found = computed(function, there);
  EXPECT_EQ(counts.waits, waits) << what;
  EXPECT_GT(counts.layers, layers) << what;
  ASSERT_EQ(found.size(), known.size()) << what;
  for (std::size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(found[i].defined(), known[i].defined()) << what << ", " << i;
    if (!found[i].defined()) continue;
    EXPECT_EQ(found[i].device(), kGpu) << what;
    EXPECT_EQ(found[i].scalar_type(), known[i].scalar_type()) << what;
    EXPECT_TRUE(at::equal(found[i].detach().cpu(), known[i].detach())) << what << ", " << i;
  }
}

// Three samples of 17 positions with a width of 24, and smaller tensors.
Tensors values() { return {at::randn({51, 24}), at::randn({51, 24}), at::randn({24}), at::randn({24})}; }

TEST(FusedOnAGpu, NormsGiveTheBitsOfTheCpu) {
  ASSERT_TRUE(kHidden);
  at::manual_seed(1);
  for (const at::ScalarType type : kTypes) {
    expect_same_bits(
        [](const Tensors& t) {
          const AddedNorm first = add_layer_norm(t[0], t[1], t[2], t[3]);
          const AddedNorm second = add_rms_norm(first.sum, first.output, t[2]);
          return Tensors{second.sum, second.output, nn::layer_norm(second.sum, {}, {}), nn::rms_norm(t[1], t[3])};
        },
        values(), type, c10::toString(type));
  }
}

TEST(FusedOnAGpu, NormsUnderAutocastGiveTheBitsOfTheCpu) {
  at::manual_seed(2);
  for (const at::ScalarType narrow : {at::kBFloat16, at::kHalf}) {
    expect_same_bits(
        [narrow](const Tensors& t) {
          const Autocast autocast(narrow, t[0].device().type());
          const AddedNorm first = add_layer_norm(t[0], t[1].to(narrow), t[2], t[3]);
          return Tensors{first.sum, first.output, nn::gelu(first.output, t[3])};
        },
        values(), at::kFloat, c10::toString(narrow));
  }
}

TEST(FusedOnAGpu, ActivationsGiveTheBitsOfTheCpu) {
  at::manual_seed(3);
  for (const at::ScalarType type : kTypes) {
    expect_same_bits(
        [](const Tensors& t) {
          return Tensors{nn::gelu(t[0], t[2]), nn::gelu(t[1]), swiglu(t[0], t[1]),
                         swiglu(t[0].narrow(1, 0, 7), t[1].narrow(1, 5, 7))};
        },
        values(), type, c10::toString(type));
  }
}

TEST(FusedOnAGpu, BatchNormsGiveTheBitsOfTheCpu) {
  at::manual_seed(8);
  for (const at::ScalarType type : kTypes) {
    expect_same_bits(
        [](const Tensors& t) {
          const BatchNormTensors tensors{t[2], t[3], at::zeros_like(t[2]).detach(), at::ones_like(t[2]).detach()};
          const at::Tensor first = nn::batch_norm(t[0], tensors, {.relu = true});
          const at::Tensor second = nn::batch_norm(first, tensors, {.residual = t[1], .relu = true});
          return Tensors{second,
                         nn::batch_norm(t[1].view({17, 24, 1, 3}), tensors, {.residual = {}, .training = false}),
                         tensors.running_mean.clone().requires_grad_(), tensors.running_var.clone().requires_grad_()};
        },
        values(), type, c10::toString(type));
  }
}

TEST(FusedOnAGpu, CrossEntropyGivesTheBitsOfTheCpu) {
  at::manual_seed(4);
  const at::Tensor here = at::randint(24, {51}, at::kLong);
  here[3] = -100;
  const at::Tensor there = here.to(kGpu);
  for (const at::ScalarType type : kTypes) {
    expect_same_bits(
        [&](const Tensors& t) {
          const at::Tensor& target = t[0].is_cuda() ? there : here;
          return Tensors{cross_entropy(t[0] * t[2], target), cross_entropy(t[0] + t[3], target, {.keep_logits = true})};
        },
        values(), type, c10::toString(type));
  }
}

TEST(FusedOnAGpu, ATargetThatIsNoClassGivesNan) {
  at::manual_seed(5);
  const at::Tensor x = at::randn({3, 5}).to(kGpu).requires_grad_();
  const at::Tensor loss = cross_entropy(x * 1, at::tensor({0, 5, 2}, at::kLong).to(kGpu));
  loss.backward();
  EXPECT_TRUE(loss.isnan().item<bool>());
  const at::Tensor is_nan = x.grad().isnan().cpu();
  EXPECT_TRUE(is_nan[1].all().item<bool>());
  EXPECT_FALSE(is_nan[0].any().item<bool>());
  EXPECT_FALSE(is_nan[2].any().item<bool>());
}

TEST(FusedOnAGpu, RotaryEmbeddingGivesTheBitsOfTheCpu) {
  at::manual_seed(6);
  for (const at::ScalarType type : kTypes) {
    const RotaryTable here = rotary_table(20, 8, 10000, type == at::kDouble ? at::kDouble : at::kFloat);
    const RotaryTable there{here.cosines.to(kGpu), here.sines.to(kGpu)};
    expect_same_bits(
        [&](const Tensors& t) {
          const RotaryTable& table = t[0].is_cuda() ? there : here;
          return Tensors{rotary(t[0].view({3, 17, 3, 8}), table, 2),
                         rotary_((t[1] * 1).view({3, 17, 3, 8}) * 1, table)};
        },
        values(), type, c10::toString(type));
  }
}

TEST(FusedOnAGpu, TheGradientOfAnEmbeddingHasTheBitsOfTheCpu) {
  at::manual_seed(7);
  const at::Tensor here = at::randint(51, {4, 60}, at::kLong);
  const at::Tensor there = here.to(kGpu);
  for (const at::ScalarType type : kTypes) {
    expect_same_bits([&](const Tensors& t) { return Tensors{nn::embedding(t[0].is_cuda() ? there : here, t[0])}; },
                     values(), type, c10::toString(type));
  }
}

}  // namespace
}  // namespace reigen::nn
