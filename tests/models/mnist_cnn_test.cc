#include "reigen/models/mnist_cnn.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/functional.h>

namespace reigen::models::mnist_cnn_test {
namespace {

TEST(MnistCnnTest, HasTheParametersOfItsNamesake) {
  const MnistCnn model;
  std::vector<std::string> names;
  std::int64_t count = 0;
  for (const auto& item : model.named_parameters()) {
    names.push_back(item.key());
    count += item.value().numel();
  }
  EXPECT_THAT(names, ::testing::ElementsAre("conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias", "fc1.weight",
                                            "fc1.bias", "fc2.weight", "fc2.bias"));
  EXPECT_EQ(count, 1'199'882);
}

TEST(MnistCnnTest, ComputesWhatItsHeaderSays) {
  MnistCnn model;
  const auto p = model.named_parameters();
  const at::Tensor input = at::randn({3, 1, 28, 28});
  at::Tensor x = at::relu(at::conv2d(input, p["conv1.weight"], p["conv1.bias"]));
  x = at::max_pool2d(at::relu(at::conv2d(x, p["conv2.weight"], p["conv2.bias"])), 2).flatten(1);
  const at::Tensor expected =
      at::linear(at::relu(at::linear(x, p["fc1.weight"], p["fc1.bias"])), p["fc2.weight"], p["fc2.bias"]);
  EXPECT_TRUE(at::equal(model.forward(input), expected));
}

TEST(MnistCnnTest, AnEmptyBatchHasNoScoresAndZeroGradients) {
  MnistCnn model;
  const at::Tensor scores = model.forward(at::empty({0, 1, 28, 28}));
  EXPECT_EQ(scores.sizes(), (std::vector<std::int64_t>{0, 10}));
  scores.sum().backward();
  for (const at::Tensor& parameter : model.parameters()) EXPECT_EQ(parameter.grad().abs().sum().item<double>(), 0);
}

TEST(MnistCnnTest, RunsInDouble) {
  MnistCnn model;
  model.to(at::kDouble);
  EXPECT_EQ(model.forward(at::zeros({2, 1, 28, 28}, at::kDouble)).scalar_type(), at::kDouble);
}

}  // namespace
}  // namespace reigen::models::mnist_cnn_test
