#include "tensor/hooks/intercept.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tensor/hooks/taken_over.h"

namespace reigen::tensor {
namespace intercept_test {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

thread_local std::vector<std::string> seen;

template <Where kWhere>
void note(const c10::OperatorHandle& operation, c10::DispatchKeySet keys, std::vector<c10::IValue>* stack) {
  constexpr std::string_view kNames[] = {"first ", "below ", "use "};
  const std::string_view name = operation.operator_name().name;
  seen.push_back(std::string(kNames[static_cast<int>(kWhere)]) + std::string(name.substr(name.find("::") + 2)));
  if (kWhere == Where::kUse && name == "aten::neg") {
    const Uncaught uncaught(kWhere);
    uncaught.run(operation, keys, stack);
    stack->back() = stack->back().toTensor().mul(10);
    return;
  }
  pass_on(kWhere, operation, keys, stack);
}

struct Everywhere {
  Intercept use{Where::kUse, &note<Where::kUse>};
  Intercept first{Where::kFirst, &note<Where::kFirst>};
  Intercept below{Where::kBelowAutograd, &note<Where::kBelowAutograd>};
};

class InterceptTest : public ::testing::Test {
 protected:
  InterceptTest() { seen.clear(); }

  at::Tensor weight_ = at::full({2, 2}, 3.0).requires_grad_();
  at::Tensor input_ = at::full({2, 2}, 2.0);
};

TEST_F(InterceptTest, AnOperationComesByTheThreePlacesInTheirOrder) {
  at::Tensor product;
  {
    const Everywhere everywhere;
    product = at::mul(weight_, input_);
    EXPECT_THAT(seen, ElementsAre("use mul", "first mul", "below mul"));
  }
  seen.clear();
  EXPECT_TRUE(at::equal(product, at::full({2, 2}, 6.0)));
  EXPECT_TRUE(product.requires_grad());
  EXPECT_THAT(seen, IsEmpty());
}

TEST_F(InterceptTest, WhatAutogradTakesApartIsSeenWholeOnlyAboveIt) {
  const Everywhere everywhere;
  at::matmul(weight_, input_);
  EXPECT_THAT(seen, Contains("use matmul"));
  EXPECT_THAT(seen, Contains("first matmul"));
  EXPECT_THAT(seen, Contains("below mm"));
  EXPECT_THAT(seen, Not(Contains("below matmul")));
}

TEST_F(InterceptTest, OperationsOfABackwardAreIntercepted) {
  const Everywhere everywhere;
  const at::Tensor loss = at::mul(weight_, input_).sum();
  seen.clear();
  loss.backward();
  EXPECT_THAT(seen, Contains("below mul"));
  EXPECT_TRUE(at::equal(weight_.grad(), input_));
}

TEST_F(InterceptTest, WhatTheFunctionComputesUncaughtIsNotIntercepted) {
  at::Tensor negative;
  {
    const Intercept use(Where::kUse, &note<Where::kUse>);
    negative = at::neg(weight_);
  }
  EXPECT_THAT(seen, ElementsAre("use neg"));
  negative.sum().backward();
  EXPECT_TRUE(at::equal(weight_.grad(), at::full({2, 2}, -10.0)));
}

TEST_F(InterceptTest, OnlyTheThreadThatAskedIsIntercepted) {
  const Everywhere everywhere;
  std::thread([&] {
    at::mul(weight_, input_);
    EXPECT_THAT(seen, IsEmpty());
    intercept_on_this_thread(Where::kBelowAutograd, &note<Where::kBelowAutograd>);
    at::mul(weight_, input_);
    EXPECT_THAT(seen, ElementsAre("below mul"));
  }).join();
  EXPECT_THAT(seen, IsEmpty());
}

TEST_F(InterceptTest, AWeightIsTakenOverUntilItIsDestroyed) {
  const auto what = std::make_shared<const int>(7);
  take_over(weight_, what);
  EXPECT_EQ(taken_over(weight_), what);
  EXPECT_EQ(taken_over(weight_.view({4})), nullptr);
  EXPECT_EQ(taken_over(input_), nullptr);
  EXPECT_EQ(taken_over(at::Tensor()), nullptr);
  weight_ = at::Tensor();
  take_over(input_, std::make_shared<const int>(8));
  EXPECT_EQ(what.use_count(), 1);
}

TEST_F(InterceptTest, OnlyWeightsThatAreTakenOverAreUsedByAnOperation) {
  const Intercept use(Where::kUse, &note<Where::kUse>);
  EXPECT_TRUE(used(input_).is_same(input_));
  EXPECT_FALSE(used(at::Tensor()).defined());
  EXPECT_THAT(seen, IsEmpty());
  take_over(weight_, std::make_shared<const int>(7));
  used(weight_).sum().backward();
  EXPECT_THAT(seen, Contains("use alias"));
  EXPECT_TRUE(at::equal(weight_.grad(), at::ones({2, 2}, at::kFloat)));
}

}  // namespace
}  // namespace intercept_test
}  // namespace reigen::tensor
