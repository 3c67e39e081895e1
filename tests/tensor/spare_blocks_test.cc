// Blocks of memory in which backward makes gradients.
#include "tensor/hooks/spare_blocks.h"

#include <c10/core/CPUAllocator.h>
#include <gmock/gmock.h>

#include "harness/torch.h"

namespace reigen::tensor {
namespace {

constexpr std::int64_t kWidth = 64;
constexpr std::int64_t kBlock = kWidth * kWidth;

struct Row {
  at::Tensor memory = torch::zeros({3 * kBlock});
  at::Tensor place = memory.narrow(0, 0, kBlock).view({kWidth, kWidth}).detach();
  std::shared_ptr<SpareBlocks> spares =
      std::make_shared<SpareBlocks>(std::vector<at::Tensor>{memory.narrow(0, kBlock, kBlock)});
  const void* spare() const { return memory.const_data_ptr<float>() + kBlock; }
};

class SpareBlocksTest : public testing::Test {
 protected:
  void SetUp() override { lend_to_backward(row.spares); }
  void TearDown() override { stop_lending(row.spares); }
  at::Tensor loss() { return layer(input).square().sum(); }
  const at::Tensor& gradient() { return layer->weight.grad(); }

  Row row;
  torch::nn::Linear layer{torch::nn::LinearOptions(kWidth, kWidth).bias(false)};
  at::Tensor input = torch::ones({5, kWidth});
};

TEST_F(SpareBlocksTest, AGradientOfTheirSizeIsMadeThere) {
  const at::Tensor expected = torch::autograd::grad({loss()}, {layer->weight})[0].clone();
  loss().backward();
  EXPECT_EQ(gradient().const_data_ptr(), row.spare());
  EXPECT_TRUE(row.spares->hold(gradient()));
  EXPECT_TRUE(gradient().equal(expected));
}

TEST_F(SpareBlocksTest, ExchangeMakesThePlaceTheBlock) {
  loss().backward();
  const at::Tensor values = gradient().clone();
  const at::Tensor place = row.spares->exchange(gradient(), row.place);
  layer->weight.mutable_grad() = place;
  EXPECT_EQ(place.const_data_ptr(), row.spare());
  EXPECT_TRUE(place.equal(values));
  EXPECT_FALSE(row.spares->hold(gradient())) << "it is a place now";
  layer->weight.mutable_grad().reset();
  loss().backward();
  EXPECT_EQ(gradient().const_data_ptr(), row.place.const_data_ptr());
  EXPECT_TRUE(gradient().equal(values));
}

TEST_F(SpareBlocksTest, AreLentOnceAtATime) {
  loss().backward();
  torch::nn::Linear other(torch::nn::LinearOptions(kWidth, kWidth).bias(false));
  other(input).sum().backward();
  EXPECT_FALSE(row.spares->hold(other->weight.grad()));
  layer->weight.mutable_grad().reset();
  other->weight.mutable_grad().reset();
  other(input).sum().backward();
  EXPECT_TRUE(row.spares->hold(other->weight.grad())) << "the first one's died";
}

TEST_F(SpareBlocksTest, HoldNothingThatSomebodyElseKeeps) {
  loss().backward();
  {
    const at::Tensor view = gradient().view({-1});
    EXPECT_FALSE(row.spares->hold(gradient()));
  }
  {
    const at::Tensor same = gradient();
    EXPECT_FALSE(row.spares->hold(gradient()));
  }
  EXPECT_TRUE(row.spares->hold(gradient()));
}

TEST_F(SpareBlocksTest, HoldNoGradientWithAGraphAndNoPartOfABlock) {
  layer(input).square().sum().backward({}, std::nullopt, /*create_graph=*/true);
  EXPECT_FALSE(row.spares->hold(gradient()));
  layer->weight.mutable_grad().reset();
  loss().backward();
  EXPECT_FALSE(row.spares->hold(gradient().narrow(0, 0, kWidth / 2)));
  EXPECT_FALSE(row.spares->hold(gradient().t()));
  EXPECT_FALSE(row.spares->hold(torch::zeros({kWidth, kWidth})));
  EXPECT_FALSE(row.spares->hold(at::Tensor(torch::zeros({kWidth, kWidth})).to_sparse()));
}

// In the hook older versions of LibTorch still have the gradient that backward made, and what that is a view of.
struct AskWhetherHeld final : torch::autograd::PostAccumulateGradHook {
  AskWhetherHeld(const SpareBlocks& blocks, bool& held) : spares(blocks), is_held(held) {}
  void operator()(const torch::autograd::Variable& parameter) override { is_held = spares.hold(parameter.grad()); }
  const SpareBlocks& spares;
  bool& is_held;
};

TEST_F(SpareBlocksTest, HoldAGradientInTheHookOfItsParameterUnlessSomebodyElseHasIt) {
  at::Tensor plain = torch::ones({kWidth, kWidth}).requires_grad_();  // its gradient is no view
  bool is_held = false;
  for (const at::Tensor& parameter : {layer->weight, plain}) {
    note_arrivals(parameter);
    torch::autograd::impl::set_post_acc_grad_hooks(parameter, std::make_unique<AskWhetherHeld>(*row.spares, is_held));
  }
  const auto held = [&](const at::Tensor& value) {
    is_held = false;
    value.square().sum().backward();
    layer->weight.mutable_grad().reset();
    plain.mutable_grad().reset();
    return is_held;
  };
  EXPECT_TRUE(held(layer(input)));
  EXPECT_TRUE(held(input.mm(plain)));
  at::Tensor kept;
  layer->weight.register_hook([&](const at::Tensor& gradient) { kept = gradient.detach(); });
  plain.register_hook([&](const at::Tensor& gradient) { kept = gradient.view({-1}); });
  EXPECT_FALSE(held(layer(input)));
  kept.reset();
  EXPECT_FALSE(held(input.mm(plain)));
}

TEST_F(SpareBlocksTest, NothingOutsideOfBackwardLiesInThem) {
  const at::Tensor made = torch::zeros({kWidth, kWidth});
  EXPECT_FALSE(row.spares->hold(made));
  EXPECT_NE(made.const_data_ptr(), row.spare());
  stop_lending(row.spares);
  loss().backward();
  EXPECT_NE(gradient().const_data_ptr(), row.spare());
}

// LibTorch's convolutions also allocate an address without a tensor.
TEST_F(SpareBlocksTest, AreGivenBackByTheirAddressToo) {
  void* raw = nullptr;
  void* plain = nullptr;
  at::Tensor hidden = layer(input);
  hidden.register_hook([&](const at::Tensor&) {
    raw = c10::GetCPUAllocator()->raw_allocate(kBlock * sizeof(float));
    plain = c10::GetCPUAllocator()->raw_allocate(100);
  });
  hidden.square().sum().backward();
  const bool in_block = raw == row.spare();
  EXPECT_EQ(row.spares->hold(gradient()), !in_block) << "one of them";
  layer->weight.mutable_grad().reset();
  c10::GetCPUAllocator()->raw_deallocate(raw);
  c10::GetCPUAllocator()->raw_deallocate(plain);
  loss().backward();
  EXPECT_TRUE(row.spares->hold(gradient()));
}

TEST_F(SpareBlocksTest, OfSeveralOwnersAreLentSideBySide) {
  const Row other;
  lend_to_backward(other.spares);
  loss().backward();
  torch::nn::Linear second(torch::nn::LinearOptions(kWidth, kWidth).bias(false));
  second(input).sum().backward();
  EXPECT_TRUE(row.spares->hold(gradient()));
  EXPECT_TRUE(other.spares->hold(second->weight.grad()));
  stop_lending(other.spares);
}

TEST_F(SpareBlocksTest, OutliveTheirOwnersWhileATensorLiesInThem) {
  loss().backward();
  const at::Tensor values = gradient().clone();
  row = Row{};
  EXPECT_TRUE(gradient().equal(values));
  layer->weight.mutable_grad().reset();
  loss().backward();
  EXPECT_TRUE(gradient().equal(values)) << "of nobody's block";
}

}  // namespace
}  // namespace reigen::tensor
