#include "reigen/tensor/flat_parameters.h"

#include <gmock/gmock.h>

#include "harness/torch.h"
#include "reigen/base/error.h"

namespace reigen::tensor {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Mixed : torch::nn::Module {
  Mixed() {
    first = register_parameter("first", torch::arange(6, torch::kFloat).view({2, 3}));
    wide = register_parameter("wide", torch::arange(4, torch::kDouble));
    empty = register_parameter("empty", torch::empty({0, 3}, torch::kFloat));
    // Exactly four cache lines, so the spare element needs a line of its own.
    full = register_parameter("full", torch::ones({64}, torch::kFloat));
    last = register_parameter("last", torch::full({}, 7.0F));
  }
  torch::Tensor first, wide, empty, full, last;
};

template <class Function>
std::string error_of(const Function& function) {
  try {
    function();
  } catch (const InvalidArgument& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kConfiguration);
    return error.what();
  }
  return "no error";
}

std::vector<NamedParameter> list(const at::Tensor& a, const at::Tensor& b = torch::zeros(1)) {
  return {{.name = "a", .parameter = a}, {.name = "b", .parameter = b}};
}

TEST(FlatParameters, PacksEveryTypeIntoOneAlignedBuffer) {
  Mixed model;
  FlatParameters flat(named_parameters(model), Communicator());
  ASSERT_EQ(flat.ranges().size(), 2U);
  const ParameterRange& range = flat.ranges()[0];
  EXPECT_EQ(range.values().scalar_type(), at::kFloat);
  EXPECT_EQ(flat.ranges()[1].values().scalar_type(), at::kDouble);
  EXPECT_EQ(range.numel(), 6 + 0 + 64 + 1);
  std::vector<std::string> names;
  std::int64_t end = 0;
  for (const Segment& segment : range.segments()) {
    names.push_back(segment.name);
    EXPECT_EQ(segment.offset % 16, 0);
    EXPECT_GE(segment.offset, end);
    end = segment.offset + segment.numel + 1;
    EXPECT_EQ(segment.parameter.sizes(), at::IntArrayRef(segment.shape));
    if (segment.numel > 0) {
      EXPECT_EQ(segment.parameter.data_ptr<float>(), range.values().data_ptr<float>() + segment.offset);
    }
  }
  EXPECT_LE(end, range.values().numel());
  EXPECT_THAT(names, ElementsAre("first", "empty", "full", "last"));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(range.values().data_ptr()) % 64, 0U);
  EXPECT_TRUE(model.first.equal(torch::arange(6, torch::kFloat).view({2, 3})));
  EXPECT_TRUE(model.wide.equal(torch::arange(4, torch::kDouble)));
  EXPECT_EQ(model.last.item<float>(), 7.0F);
  EXPECT_EQ(range.values().sum().item<float>(), 15 + 64 + 7) << "spare elements are zero";
}

TEST(FlatParameters, AParameterIsAViewThatKeepsTheBufferAlive) {
  auto model = std::make_shared<Mixed>();
  {
    FlatParameters flat(named_parameters(*model), Communicator());
    flat.ranges()[0].values().fill_(3);
  }
  EXPECT_EQ(model->first.sum().item<float>(), 18.0F);
  (model->first * model->first).sum().backward();
  EXPECT_TRUE(model->first.grad().equal(torch::full({2, 3}, 6.0F)));
}

TEST(FlatParameters, TiedParametersComeOnceWithBothNames) {
  struct Tied : torch::nn::Module {
    Tied() {
      a = register_parameter("a", torch::ones(3));
      register_parameter("b", a);
    }
    torch::Tensor a;
  } model;
  FlatParameters flat(named_parameters(model), Communicator());
  ASSERT_EQ(flat.ranges()[0].size(), 1U);
  EXPECT_EQ(flat.ranges()[0].segments()[0].name, "a");
  EXPECT_THAT(flat.ranges()[0].segments()[0].aliases, ElementsAre("b"));
}

TEST(FlatParameters, StridedParametersKeepTheirValues) {
  const auto values = torch::arange(24, torch::kFloat).view({2, 3, 2, 2});
  const auto last = values.contiguous(at::MemoryFormat::ChannelsLast).requires_grad_();
  const auto transposed = torch::arange(6, torch::kFloat).view({2, 3}).t().requires_grad_();
  FlatParameters flat(list(last, transposed), Communicator());
  EXPECT_TRUE(last.equal(values));
  EXPECT_TRUE(last.is_contiguous());
  EXPECT_TRUE(transposed.equal(torch::arange(6, torch::kFloat).view({2, 3}).t()));
  (last * values).sum().backward();
  EXPECT_TRUE(last.grad().equal(values));
}

TEST(FlatParameters, PackingAgainMovesTheParameters) {
  Mixed model;
  FlatParameters one(named_parameters(model), Communicator());
  FlatParameters two(named_parameters(model), Communicator());
  one.ranges()[0].values().zero_();
  EXPECT_EQ(model.full.sum().item<float>(), 64.0F);
}

TEST(FlatParameters, NoParametersNoRanges) { EXPECT_TRUE(FlatParameters({}, Communicator()).ranges().empty()); }

TEST(FlatParameters, RefusesWhatItCannotPack) {
  const auto pack = [](const at::Tensor& a, const at::Tensor& b = torch::zeros(1)) {
    return error_of([&] { FlatParameters(list(a, b), Communicator()); });
  };
  EXPECT_THAT(pack(torch::zeros(2, torch::kLong)), HasSubstr("parameter a cannot be packed"));
  EXPECT_THAT(pack(torch::zeros(2, torch::kComplexFloat)), HasSubstr("ComplexFloat"));
  EXPECT_THAT(pack(torch::zeros({2, 2}).to_sparse()), HasSubstr("sparse"));
  EXPECT_THAT(pack(torch::zeros(2, torch::device(torch::kMeta))), HasSubstr("device meta"));
  EXPECT_THAT(pack(torch::zeros(2).requires_grad_() * 2), HasSubstr("result of an operation"));
  EXPECT_THAT(pack(at::Tensor()), HasSubstr("undefined"));
  const auto block = torch::zeros({4, 4});
  EXPECT_THAT(pack(block, block.view({16}).slice(0, 15)), HasSubstr("memory shared with a"));
  EXPECT_THAT(pack(block.slice(0, 0, 2), block.slice(0, 2)), HasSubstr("no error")) << "neighbours do not overlap";
}

class RangeGradients : public testing::Test {
 protected:
  RangeGradients() : parameter(torch::ones({2, 3}).requires_grad_()), flat(list(parameter), Communicator()) {}
  const ParameterRange& range() const { return flat.ranges()[0]; }
  at::Tensor parameter;
  FlatParameters flat;
};

TEST_F(RangeGradients, GatherMovesAGradientIntoItsSlotOnce) {
  EXPECT_FALSE(range().is_active(0));
  range().gather_gradient(0);
  EXPECT_FALSE(range().is_active(0));
  (parameter * 5).sum().backward();
  EXPECT_TRUE(range().is_active(0));
  EXPECT_FALSE(range().is_in_place(0));
  range().gather_gradients();
  EXPECT_TRUE(range().is_in_place(0));
  EXPECT_EQ(parameter.grad().data_ptr(), range().gradients().data_ptr());
  EXPECT_EQ(range().gradients().sum().item<float>(), 30.0F);
  range().gradients().mul_(2);
  range().gather_gradient(0);
  EXPECT_EQ(parameter.grad().sum().item<float>(), 60.0F);
  (parameter * 1).sum().backward();
  EXPECT_TRUE(range().is_in_place(0)) << "accumulation stays in the slot";
  EXPECT_EQ(range().gradients().sum().item<float>(), 66.0F);
}

TEST_F(RangeGradients, GatherTakesAnyLayout) {
  parameter.mutable_grad() = torch::arange(6, torch::kFloat).view({3, 2}).t();
  range().gather_gradient(0);
  EXPECT_TRUE(parameter.grad().equal(torch::arange(6, torch::kFloat).view({3, 2}).t()));
  EXPECT_TRUE(range().is_in_place(0));
  parameter.mutable_grad() = torch::eye(3, torch::kFloat).slice(0, 0, 2).to_sparse();
  range().gather_gradient(0);
  EXPECT_TRUE(parameter.grad().equal(torch::eye(3, torch::kFloat).slice(0, 0, 2)));
  parameter.mutable_grad() = parameter.detach().requires_grad_() * 2;
  range().gather_gradient(0);
  EXPECT_FALSE(parameter.grad().requires_grad());
  EXPECT_TRUE(range().is_in_place(0));
}

TEST_F(RangeGradients, RefusesAnotherShape) {
  parameter.mutable_grad() = torch::zeros({3, 2});
  EXPECT_THAT(error_of([&] { range().gather_gradient(0); }), testing::AllOf(HasSubstr("[3, 2]"), HasSubstr("[2, 3]")));
}

TEST_F(RangeGradients, DropAndZeroGradWork) {
  (parameter * 5).sum().backward();
  range().gather_gradients();
  torch::optim::SGD optimizer({parameter}, 0.1);
  optimizer.zero_grad(/*set_to_none=*/false);
  EXPECT_TRUE(range().is_in_place(0));
  EXPECT_EQ(range().gradients().abs().sum().item<float>(), 0.0F);
  range().drop_gradients();
  EXPECT_FALSE(parameter.grad().defined());
}

}  // namespace
}  // namespace reigen::tensor
