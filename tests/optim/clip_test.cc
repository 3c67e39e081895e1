#include "reigen/optim/clip.h"

#include <ATen/Parallel.h>

#include <cmath>
#include <limits>

#include "optim/parameters.h"
#include "reigen/base/error.h"

namespace reigen::optim {
namespace {

using namespace testing_parameters;

double reference_norm(const std::vector<at::Tensor>& parameters) {
  double sum = 0;
  for (const auto& one : parameters) {
    if (!one.grad().defined()) continue;
    const double norm = at::norm(one.grad().to_dense().to(at::kDouble)).item<double>();
    sum += norm * norm;
  }
  return std::sqrt(sum);
}

TEST(GradientNorm, IsThatOfAllGradientsTogether) {
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    for (const Shapes& shapes : {kShapes, kLargeShapes}) {
      const auto parameters = make_parameters(type, shapes);
      tensor::FlatParameters flat(parameters, Communicator());
      EXPECT_EQ(gradient_norm(flat.ranges()).norm, 0) << "no gradients";
      set_gradients(1, tensors(parameters), {}, true);
      const double expected = reference_norm(tensors(parameters));
      const GradientNorm got = gradient_norm(flat.ranges());
      EXPECT_NEAR(got.norm, expected, 1e-12 * expected);
      EXPECT_DOUBLE_EQ(got.sum_of_squares, got.norm * got.norm);
      EXPECT_TRUE(got.finite);
      flat.ranges()[0].gather_gradients();
      EXPECT_EQ(gradient_norm(flat.ranges()).norm, got.norm) << "wherever the gradients lie";
    }
  }
}

TEST(GradientNorm, HasTheSameBitsForAnyNumberOfThreads) {
  const int before = at::get_num_threads();
  const auto parameters = make_parameters(at::kFloat, kLargeShapes);
  tensor::FlatParameters flat(parameters, Communicator());
  set_gradients(1, tensors(parameters), {}, false);
  at::set_num_threads(1);
  const double alone = gradient_norm(flat.ranges()).sum_of_squares;
  for (const int threads : {2, 3, 7}) {
    at::set_num_threads(threads);
    EXPECT_EQ(gradient_norm(flat.ranges()).sum_of_squares, alone) << threads;
  }
  at::set_num_threads(before);
}

TEST(GradientNorm, SeesEveryElementThatIsNotFinite) {
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    const auto parameters = make_parameters(type, kLargeShapes);
    tensor::FlatParameters flat(parameters, Communicator());
    for (const double bad :
         {std::nan(""), std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()}) {
      for (const std::int64_t at : {0, 16383, 16384, 61440}) {
        set_gradients(1, tensors(parameters), {}, false);
        parameters[4].parameter.grad()[at] = bad;
        const GradientNorm got = gradient_norm(flat.ranges());
        EXPECT_FALSE(got.finite) << at;
        EXPECT_FALSE(std::isfinite(got.norm));
      }
    }
  }
}

TEST(GradientNorm, LargeFp32ElementsDoNotOverflow) {
  const auto parameters = make_parameters(at::kFloat);
  tensor::FlatParameters flat(parameters, Communicator());
  parameters[2].parameter.mutable_grad() = torch::full({1}, 3e38F);
  const GradientNorm got = gradient_norm(flat.ranges());
  EXPECT_TRUE(got.finite);
  EXPECT_NEAR(got.norm / 3e38, 1, 1e-6);
}

TEST(GradientNorm, TakesGradientsOfAnyForm) {
  const auto parameters = make_parameters(at::kFloat);
  tensor::FlatParameters flat(parameters, Communicator());
  parameters[0].parameter.mutable_grad() = torch::randn({5, 3}).t();
  parameters[1].parameter.mutable_grad() = torch::ones({7}).to_sparse();
  const double expected = reference_norm(tensors(parameters));
  EXPECT_NEAR(gradient_norm(flat.ranges()).norm, expected, 1e-6);
}

TEST(Clip, TheFactorIsPyTorchs) {
  EXPECT_EQ(clip_factor(0.5, 1), 1);
  EXPECT_EQ(clip_factor(0, 1), 1);
  EXPECT_DOUBLE_EQ(clip_factor(4, 1), 1 / (4 + 1e-6));
  EXPECT_EQ(clip_factor(std::numeric_limits<double>::infinity(), 1), 0);
  EXPECT_TRUE(std::isnan(clip_factor(std::nan(""), 1)));
  for (const double bad : {0.0, -1.0, std::nan("")}) EXPECT_THROW(clip_factor(1, bad), InvalidArgument);
}

TEST(Clip, InPlaceAsPyTorch) {
  const auto parameters = make_parameters(at::kDouble);
  const auto list = tensors(parameters);
  const auto reference = tensors(make_parameters(at::kDouble));
  tensor::FlatParameters flat(parameters, Communicator());
  set_gradients(1, list, reference, false);
  const double expected = torch::nn::utils::clip_grad_norm_(reference, 0.5);
  EXPECT_NEAR(clip_grad_norm(flat.ranges(), 0.5).norm, expected, 1e-12);
  for (std::size_t i = 0; i < list.size(); ++i) EXPECT_TRUE(list[i].grad().allclose(reference[i].grad(), 0, 1e-14));
  EXPECT_NEAR(gradient_norm(flat.ranges()).norm, 0.5, 1e-6);

  set_gradients(2, list, reference, false);
  clip_grad_value(flat.ranges(), 0.3);
  torch::nn::utils::clip_grad_value_(reference, 0.3);
  for (std::size_t i = 0; i < list.size(); ++i) EXPECT_TRUE(list[i].grad().equal(reference[i].grad()));
  EXPECT_THROW(clip_grad_value(flat.ranges(), 0), InvalidArgument);
}

TEST(Finite, IsLookedAtInAStep) {
  for (const Maker& one : every_optimizer()) {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      const auto parameters = make_parameters(at::kFloat, kLargeShapes);
      tensor::FlatParameters flat(parameters, Communicator());
      const auto optimizer = one.make(flat.ranges());
      set_gradients(1, tensors(parameters), {}, true);
      tensors(parameters).front().mutable_grad().view(-1)[0] = std::numeric_limits<float>::max();
      optimizer->step({.check_finite = true});
      EXPECT_TRUE(optimizer->was_finite()) << one.name;
      tensors(parameters).front().mutable_grad().view(-1)[-1] = bad;
      optimizer->step({.check_finite = true});
      EXPECT_FALSE(optimizer->was_finite()) << one.name;
      optimizer->step();
      EXPECT_TRUE(optimizer->was_finite()) << one.name << ": nobody asked";
    }
  }
}

// The gradient factor of a step has the same effect as clipping the gradients before the step.
TEST(Clip, InTheStepAsInPlace) {
  for (const Maker& one : every_optimizer()) {
    if (one.bf16_states) continue;
    const auto parameters = make_parameters(at::kDouble);
    const auto others = make_parameters(at::kDouble);
    tensor::FlatParameters flat(parameters, Communicator());
    tensor::FlatParameters flat_others(others, Communicator());
    const auto optimizer = one.make(flat.ranges());
    const auto other = one.make(flat_others.ranges());
    for (int step = 0; step < 5; ++step) {
      set_gradients(step, tensors(parameters), tensors(others), true);
      optimizer->step({.gradient_factor = clip_factor(gradient_norm(flat.ranges()).norm, 0.5)});
      torch::nn::utils::clip_grad_norm_(tensors(others), 0.5);
      other->step();
      optimizer->zero_grad();
      other->zero_grad();
    }
    EXPECT_LE(difference(tensors(parameters), tensors(others)), one.name.starts_with("lion") ? 1e-9 : 1e-12)
        << one.name;
  }
}

}  // namespace
}  // namespace reigen::optim
