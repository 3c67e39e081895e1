// Strategies that send less data than the gradients. They must lose nothing over the steps, be exact where they promise
// it, and send the promised number of bytes.
#include <gmock/gmock.h>

#include "parallel/oracle.h"
#include "reigen/parallel/strategies.h"

namespace reigen::testing_oracle::compression_test {
namespace {

using parallel::StrategyFactory;

StrategyFactory adasum_of_gradients() { return parallel::adasum({.of = parallel::AdasumOf::kGradients}); }

struct Outcome {
  Tensors sum;   // the sum of the gradients of all steps, by parameter
  Tensors kept;  // the mean over the ranks of the parts that each keeps back
  std::uint64_t bytes = 0;
};

// The gradients of several steps. The weights do not change, so the exact gradients are the same for every strategy.
Outcome gradients_with(int ranks, const StrategyFactory& strategy, double bucket_mb = 1e-3) {
  Outcome run;
  run.sum = agreed(ranks, [&](Communicator& world) {
    Mlp model;
    auto parallel = data_parallel(model, world, {.bucket_mb = bucket_mb, .strategy = strategy});
    Tensors sum;
    for (std::uint64_t step = 0; step < 6; ++step) {
      model.zero_grad();
      parallel(share(numbers(step, {4 * ranks, 4}), world)).pow(2).mean().backward();
      const Tensors gradients = gradients_of(model);
      for (std::size_t i = 0; i < gradients.size(); ++i) {
        if (step == 0) {
          sum.push_back(gradients[i]);
        } else {
          sum[i] = sum[i] + gradients[i];
        }
      }
    }
    parallel.settle();
    Tensors result = sum;
    if (world.rank() == 0) run.bytes = parallel.bytes_given();
    const auto state = parallel.strategy_state();
    for (const auto& entry : model.named_parameters()) {
      const auto error = state.find("error." + entry.key());
      result.push_back(error == state.end() ? at::zeros_like(entry.value())
                                            : error->second.view(entry.value().sizes()).clone());
    }
    return result;
  });
  const std::size_t count = run.sum.size() / 2;
  run.kept.assign(run.sum.begin() + static_cast<std::ptrdiff_t>(count), run.sum.end());
  run.sum.resize(count);
  return run;
}

struct Compressing {
  const char* name;
  StrategyFactory strategy;
};

class Feedback : public ::testing::TestWithParam<int> {};

TEST_P(Feedback, LosesNothingOverTheSteps) {
  const int ranks = GetParam();
  const Outcome exact = gradients_with(ranks, parallel::plain());
  for (const Compressing& one :
       {Compressing{"power_sgd", parallel::power_sgd({.rank = 1, .start_step = 0})},
        Compressing{"power_sgd later", parallel::power_sgd({.rank = 2, .start_step = 3})},
        Compressing{"top_k", parallel::top_k({.share = 0.1})}, Compressing{"top_k all", parallel::top_k({.share = 1})},
        Compressing{"one_bit", parallel::one_bit({.start_step = 0})}}) {
    const Outcome run = gradients_with(ranks, one.strategy);
    Tensors whole;
    for (std::size_t i = 0; i < run.sum.size(); ++i) whole.push_back(run.sum[i] + run.kept[i]);
    EXPECT_LT(distance(exact.sum, whole), 1e-12) << one.name;
    const bool gives_all = std::string(one.name) == "top_k all";
    EXPECT_EQ(distance(exact.sum, run.sum) > 1e-3, !gives_all) << one.name;
  }
}
INSTANTIATE_TEST_SUITE_P(Ranks, Feedback, ::testing::Values(2, 3, 4));

// The bits do not depend on the buckets, because each parameter is compressed by itself.
TEST(Compression, DoesNotDependOnBuckets) {
  for (const auto& strategy : {parallel::top_k({.share = 0.2}), parallel::one_bit({.start_step = 2}),
                               adasum_of_gradients(), parallel::power_sgd({.rank = 2, .start_step = 2})}) {
    const Outcome one = gradients_with(2, strategy, 0);
    const Outcome other = gradients_with(2, strategy, 25);
    EXPECT_TRUE(same_bits(one.sum, other.sum));
    EXPECT_TRUE(same_bits(one.kept, other.kept));
  }
}

// Elements of Mlp: weights 17x4, 9x17, 3x9, biases 17, 9, 3; fp64. Six steps.
TEST(Compression, GivesTheBytesThatItPromises) {
  constexpr std::uint64_t kElements = 68 + 153 + 27 + 17 + 9 + 3;
  // There is one spare element after each parameter, and more that align the next parameter.
  const std::uint64_t plain = gradients_with(2, parallel::plain()).bytes;
  EXPECT_GE(plain, 6 * 8 * (kElements + 6));
  EXPECT_EQ(gradients_with(2, parallel::compressed(at::kHalf)).bytes, plain / 4);
  // Each rank sends magnitudes of 4 bytes, and signs in whole bytes, to each other rank.
  EXPECT_EQ(gradients_with(3, parallel::one_bit({.start_step = 0})).bytes, 6U * 2 * (6 * 4 + (9 + 20 + 4 + 3 + 2 + 1)));
  // A tenth of each parameter, rounded up, with 8 bytes for a value and 4 for its place. Messages have multiples of 8
  // bytes.
  const std::uint64_t top = gradients_with(3, parallel::top_k({.share = 0.1}), 25).bytes;
  EXPECT_GE(top, 6U * 2 * 12 * (7 + 16 + 3 + 2 + 1 + 1));
  EXPECT_LE(top, 6U * 2 * (12 * (7 + 16 + 3 + 2 + 1 + 1) + 8 * 2));
  // For rank 1: rows + columns of each matrix, and the biases uncompressed.
  EXPECT_EQ(gradients_with(2, parallel::power_sgd({.rank = 1, .start_step = 0})).bytes,
            6U * 8 * (17 + 4 + 9 + 17 + 3 + 9 + 17 + 9 + 3));
  EXPECT_EQ(gradients_with(4, adasum_of_gradients()).bytes, 6U * 8 * 2 * kElements);
}

struct OneLayer : torch::nn::Module {
  OneLayer() {
    layer = register_module("layer", torch::nn::Linear(torch::nn::LinearOptions(21, 13).bias(false)));
    fill(*this);
  }
  at::Tensor forward(const at::Tensor& x) { return layer(x); }
  torch::nn::Linear layer{nullptr};
};

// Each rank has one sample, so the mean gradient has rank 2, and the strategy sends exactly that rank.
TEST(PowerSgd, IsExactForMatricesOfItsRank) {
  const auto train = [](const StrategyFactory& strategy) {
    return agreed(2, [&](Communicator& world) {
      OneLayer model;
      auto parallel = data_parallel(model, world, {.strategy = strategy});
      Tensors result;
      for (std::uint64_t step = 0; step < 4; ++step) {
        model.zero_grad();
        parallel(share(numbers(step, {2, 21}), world)).pow(2).sum().backward();
        result.push_back(model.layer->weight.grad().clone());
      }
      return result;
    });
  };
  const Tensors exact = train(parallel::plain());
  EXPECT_LT(distance(exact, train(parallel::power_sgd({.rank = 2, .start_step = 0}))), 1e-11);
  EXPECT_GT(distance(exact, train(parallel::power_sgd({.rank = 1, .start_step = 0}))), 1e-3);
}

// Gradients are zero for some steps and then not. The basis must not be lost.
TEST(PowerSgd, OutlivesGradientsOfZero) {
  const Tensors gradients = agreed(2, [](Communicator& world) {
    OneLayer model;
    auto parallel = data_parallel(model, world, {.strategy = parallel::power_sgd({.rank = 2, .start_step = 0})});
    for (std::uint64_t step = 0; step < 5; ++step) {
      model.zero_grad();
      (parallel(share(numbers(step, {2, 21}), world)).pow(2).sum() * (step < 3 ? 0 : 1)).backward();
    }
    return gradients_of(model);
  });
  EXPECT_GT(gradients[0].norm().item<double>(), 1);
  EXPECT_TRUE(gradients[0].isfinite().all().item<bool>());
}

// If one rank computes NaN, all ranks get NaN.
TEST(Compression, SpreadsWhatIsNotFinite) {
  for (const auto& strategy : {parallel::plain(), parallel::compressed(at::kBFloat16), parallel::top_k({.share = 0.1}),
                               parallel::one_bit({.start_step = 0}), adasum_of_gradients(),
                               parallel::power_sgd({.rank = 1, .start_step = 0})}) {
    const auto results = on_ranks(2, [&](Communicator& world) {
      Mlp model;
      auto parallel = data_parallel(model, world, {.strategy = strategy});
      const double factor = world.rank() == 1 ? std::nan("") : 1;
      (parallel(share(numbers(1, {4, 4}), world)).sum() * factor).backward();
      return gradients_of(model);
    });
    for (const Tensors& gradients : results) {
      EXPECT_FALSE(gradients[0].isfinite().all().item<bool>());
    }
  }
}

}  // namespace
}  // namespace reigen::testing_oracle::compression_test
