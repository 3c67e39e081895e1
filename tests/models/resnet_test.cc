// models::ResNet beside torchvision's networks. scripts/compare/resnet wrote what they compute
// (resnet_cases/torchvision.json).
#include "reigen/models/resnet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/folders.h"
#include "harness/read_file.h"
#include "reigen/base/error.h"
#include "reigen/comm/communicator.h"
#include "reigen/models/resnet18.h"
#include "reigen/nn/activation_checkpoint.h"
#include "reigen/optim/sgd.h"
#include "reigen/tensor/flat_parameters.h"

namespace reigen::models::resnet_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const nlohmann::json& case_of(std::int64_t depth) {
  static const nlohmann::json kCases = nlohmann::json::parse(
      tests::read_file(std::string(kSourceFolder) + "/tests/models/resnet_cases/torchvision.json"));
  return *std::find_if(kCases.begin(), kCases.end(), [&](const auto& one) { return one["depth"] == depth; });
}

std::vector<std::pair<std::string, at::Tensor>> tensors_of(const ResNet& model) {
  std::vector<std::pair<std::string, at::Tensor>> all;
  for (const auto& item : model.named_parameters()) all.emplace_back(item.key(), item.value());
  for (const auto& item : model.named_buffers()) all.emplace_back(item.key(), item.value());
  return all;
}

// Numbers between -1 and 1 that look random, of a formula in integers, which Python computes too. With regular numbers,
// such as those of a sine, some channels hardly vary. Batch norm then enlarges the rounding, which is another one on
// each processor.
at::Tensor scattered(at::IntArrayRef shape, std::int64_t k) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  const at::Tensor i = at::arange(count, at::kLong);
  const at::Tensor residue = (i * i * 7919 + i * 104729 + k * 611953) % 1000003;
  return (residue.to(at::kDouble) / 500001.5 - 1).view(shape);
}

at::Tensor value_of(const std::string& name, const at::Tensor& like, std::int64_t k) {
  const at::Tensor v = scattered(like.sizes(), k);
  if (like.dim() == 4) return v * 2 / std::sqrt(static_cast<double>(like.size(0) * like.size(2) * like.size(3)));
  if (like.dim() == 2) return v / std::sqrt(static_cast<double>(like.size(1)));
  if (name.ends_with("running_var")) return 1 + 0.1 * v;
  if (name.ends_with(".weight")) return 0.1 + 0.02 * v;
  return 0.1 * v;
}

void expect_near(const at::Tensor& found, const nlohmann::json& numbers, const char* what) {
  const at::Tensor expected = at::tensor(numbers.get<std::vector<double>>(), at::kDouble);
  EXPECT_LE(((found.flatten() - expected).abs().max() / expected.abs().max()).item<double>(), 1e-9) << what;
}

class ResNetTest : public ::testing::TestWithParam<std::int64_t> {};
INSTANTIATE_TEST_SUITE_P(Models, ResNetTest, ::testing::Values(18, 34, 50, 101, 152));

TEST_P(ResNetTest, HasTheNamesShapesAndSizeOfTorchvision) {
  const nlohmann::json& expected = case_of(GetParam());
  const ResNet model({.depth = GetParam(), .classes = 10});
  nlohmann::json found = nlohmann::json::array();
  for (const auto& [name, tensor] : tensors_of(model)) {
    found.push_back({name});
    for (const std::int64_t size : tensor.sizes()) found.back().push_back(size);
  }
  EXPECT_EQ(found, expected["tensors"]);
  std::int64_t count = 0;
  for (const at::Tensor& parameter : model.parameters()) count += parameter.numel();
  const std::int64_t channels = GetParam() >= 50 ? 2048 : 512;
  EXPECT_EQ(count + 990 * (channels + 1), expected["parameters"].get<std::int64_t>()) << "with 1000 classes";
}

TEST_P(ResNetTest, ComputesAndLearnsAsTorchvision) {
  const nlohmann::json& expected = case_of(GetParam());
  ResNet model({.depth = GetParam(), .classes = 10});
  model.to(at::kDouble);
  std::int64_t k = 0;
  for (auto& [name, tensor] : tensors_of(model)) {
    if (tensor.is_floating_point()) tensor.detach().copy_(value_of(name, tensor, k));
    ++k;
  }
  const at::Tensor pictures = scattered({4, 3, 64, 64}, 1000);
  const at::Tensor target = at::tensor({3, 7, 0, 5}, at::kLong);
  model.eval();
  expect_near(model.forward(pictures).detach(), expected["scores"], "scores");

  model.train();
  tensor::FlatParameters flat(tensor::named_parameters(model), Communicator());
  optim::SGD optimizer(flat.ranges(), {.lr = 0.0003, .momentum = 0.9, .weight_decay = 1e-4});
  std::vector<double> losses;
  for (int step = 0; step < 3; ++step) {
    const at::Tensor loss =
        at::cross_entropy_loss(model.forward(pictures), target, {}, at::Reduction::Mean, -100, /*label_smoothing=*/0.1);
    loss.backward();
    optimizer.step();
    optimizer.zero_grad();
    losses.push_back(loss.item<double>());
  }
  expect_near(at::tensor(losses, at::kDouble), expected["losses"], "losses");
  expect_near(model.forward(pictures).detach(), expected["scores_after"], "scores after three steps");
}

// Three steps of a small network in fp64: the losses, the scores after them, and all buffers.
std::vector<at::Tensor> learnt(std::int64_t depth, nn::Kernels kernels,
                               const std::optional<nn::ActivationCheckpointOptions>& recomputes = {}) {
  ResNet model({.depth = depth, .classes = 5, .width = 4, .norm_batch = 3, .kernels = kernels});
  model.to(at::kDouble);
  model.initialize(3);
  std::optional<nn::ActivationCheckpoint> checkpoint;
  if (recomputes) checkpoint.emplace(model.units(), *recomputes);
  const at::Tensor pictures = scattered({5, 3, 40, 48}, 50);
  const at::Tensor target = at::tensor({3, 1, 0, 4, 2}, at::kLong);
  std::vector<at::Tensor> results;
  for (int step = 0; step < 3; ++step) {
    const at::Tensor loss = at::cross_entropy_loss(model.forward(pictures), target);
    loss.backward();
    results.push_back(loss.detach());
    const at::NoGradGuard no_grad;
    for (const at::Tensor& parameter : model.parameters()) {
      parameter.sub_(parameter.grad(), 0.0003);  // larger steps make rounding errors grow
      parameter.mutable_grad() = at::Tensor();
    }
  }
  for (const at::Tensor& buffer : model.buffers()) results.push_back(buffer.to(at::kDouble));
  model.eval();
  results.push_back(model.forward(pictures).detach());
  return results;
}

TEST(ResNetValuesTest, FusedKernelsLearnAsLibTorchs) {
  for (const std::int64_t depth : {18, 50}) {
    const auto found = learnt(depth, nn::Kernels::kFused);
    const auto expected = learnt(depth, nn::Kernels::kTorch);
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      const double largest = expected[i].abs().max().item<double>();
      EXPECT_LE((found[i] - expected[i]).abs().max().item<double>(), 1e-9 * largest) << depth << ", result " << i;
    }
    for (const auto& again :
         {learnt(depth, nn::Kernels::kFused, nn::ActivationCheckpointOptions{}),
          learnt(depth, nn::Kernels::kFused, nn::ActivationCheckpointOptions{.keep = nn::products()})}) {
      for (std::size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(at::equal(again[i], found[i])) << depth << ", " << i;
    }
  }
}

double deviation(const at::Tensor& values) {
  return values.detach().to(at::kDouble).square().mean().sqrt().item<double>();
}

TEST(ResNetValuesTest, InitialValuesAreThoseOfTheOptions) {
  for (const std::int64_t depth : {18, 50}) {
    const std::string last = depth == 18 ? "bn2" : "bn3";
    ResNet plain({.depth = depth, .width = 16});
    plain.initialize(1);
    auto p = plain.named_parameters();
    EXPECT_NEAR(deviation(p["layer3.1.conv2.weight"]), std::sqrt(2.0 / (64 * 9)), 0.03 * std::sqrt(2.0 / (64 * 9)));
    EXPECT_TRUE(p["layer2.0." + last + ".weight"].eq(1).all().item<bool>());
    const double bound = 1 / std::sqrt(static_cast<double>(p["fc.weight"].size(1)));
    EXPECT_LE(p["fc.weight"].abs().max().item<double>(), bound);
    EXPECT_NEAR(deviation(p["fc.weight"]), bound / std::sqrt(3.0), 0.02 * bound);
    EXPECT_GT(p["fc.bias"].abs().max().item<double>(), 0);

    ResNet goyal({.depth = depth, .width = 16, .zero_last_norm = true, .classifier_deviation = 0.01});
    goyal.initialize(1);
    p = goyal.named_parameters();
    EXPECT_TRUE(p["layer2.0." + last + ".weight"].eq(0).all().item<bool>());
    EXPECT_TRUE(p["layer2.0.bn1.weight"].eq(1).all().item<bool>());
    EXPECT_TRUE(p["layer2.0.downsample.1.weight"].eq(1).all().item<bool>());
    EXPECT_NEAR(deviation(p["fc.weight"]), 0.01, 0.0002);
    EXPECT_TRUE(p["fc.bias"].eq(0).all().item<bool>());
    EXPECT_TRUE(p["conv1.weight"].equal(plain.named_parameters()["conv1.weight"]));
  }
}

TEST(ResNetValuesTest, TheUnitsAreAtTheirPlacesAndHaveAllParameters) {
  const ResNet model({.depth = 18, .width = 4});
  std::vector<std::string> names;
  std::size_t parameters = 0;
  for (const nn::Unit& unit : model.units()) {
    names.push_back(unit.name());
    parameters += unit.parameters().size();
    EXPECT_EQ(&unit.module(), model.named_modules("", /*include_self=*/false)[unit.name()].get());
  }
  EXPECT_THAT(names, ElementsAre("conv1", "bn1", "layer1.0", "layer1.1", "layer2.0", "layer2.1", "layer3.0", "layer3.1",
                                 "layer4.0", "layer4.1", "fc"));
  EXPECT_EQ(parameters, model.parameters().size());
  EXPECT_EQ(ResNet({.depth = 152, .width = 1}).units().size(), 3U + 3 + 8 + 36 + 3);
}

// The order of the parameters decides the layout of checkpoints and buckets.
TEST(ResNetValuesTest, TheSmallRecipeHasTheSameParametersInTheSameOrder) {
  std::vector<std::string> names;
  for (const auto& item : ResNet18().named_parameters()) {
    std::string name = item.key();
    for (const char* prefix : {"stem.", "head."}) {
      if (name.starts_with(prefix)) name = name.substr(5);
    }
    names.push_back(name);
  }
  EXPECT_EQ(names, ResNet({.depth = 18}).named_parameters().keys());
}

TEST(ResNetValuesTest, ImagesOfOtherSizesAndPartsOfABatch) {
  ResNet parts({.depth = 50, .classes = 3, .width = 4, .norm_batch = 2});
  ResNet alone({.depth = 50, .classes = 3, .width = 4});
  for (ResNet* model : {&parts, &alone}) {
    model->to(at::kDouble);
    model->initialize(2);
  }
  const at::Tensor input = at::randn({4, 3, 75, 91}, at::kDouble);
  std::vector<at::Tensor> expected;
  for (const at::Tensor& part : input.split(2)) expected.push_back(alone.forward(part));
  const at::Tensor scores = parts.forward(input);
  EXPECT_THAT(scores.sizes().vec(), ElementsAre(4, 3));
  EXPECT_LE((scores - at::cat(expected)).abs().max().item<double>(), 1e-10);
}

TEST(ResNetValuesTest, OptionsOutOfRangeAreRefused) {
  try {
    const ResNet model({.depth = 20});
    ADD_FAILURE() << "no error";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("18, 34, 50, 101 or 152"));
  }
  EXPECT_THROW(ResNet({.width = 0}), InvalidArgument);
  EXPECT_THROW(ResNet({.classes = 0}), InvalidArgument);
  EXPECT_THROW(ResNet({.norm_batch = -1}), InvalidArgument);
  EXPECT_THROW(ResNet({.classifier_deviation = -0.1}), InvalidArgument);
}

}  // namespace
}  // namespace reigen::models::resnet_test
