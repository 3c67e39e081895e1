// Models whose parameters get their gradients only in inner backwards.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "harness/torch.h"
#include "parallel/oracle.h"
#include "parallel/recompute.h"
#include "reigen/base/error.h"
#include "reigen/nn/activation_checkpoint.h"
#include "reigen/optim/sgd.h"
#include "reigen/parallel/data_parallel.h"

namespace reigen::testing::inner_backward_test {
namespace {

using testing_oracle::agreed;
using testing_oracle::distance;
using testing_oracle::numbers;
using testing_oracle::Recompute;
using testing_oracle::same_bits;
using testing_oracle::share;
using testing_oracle::Tensors;
using testing_oracle::values_of;

// Two units, and a head that may be unused.
struct Tower : torch::nn::Module {
  Tower() {
    for (const char* name : {"first", "second"}) {
      const auto layer = register_module(name, std::make_shared<Layer>());
      units.emplace_back(name, layer);
    }
    head = register_module("head", torch::nn::Linear(5, 5));
    to(torch::kDouble);
    testing_oracle::fill(*this);
  }
  at::Tensor forward(const at::Tensor& x, bool with_head) {
    const at::Tensor y = nn::fold(units, x);
    return with_head ? head(y) : y;
  }
  struct Layer : torch::nn::Module {
    Layer() { linear = register_module("linear", torch::nn::Linear(5, 5)); }
    at::Tensor forward(const at::Tensor& x) { return torch::tanh(linear(x)); }
    torch::nn::Linear linear{nullptr};
  };
  std::vector<nn::Unit> units;
  torch::nn::Linear head{nullptr};
};

enum class Head { kUnused, kUsedByRank0, kFrozenLater };

Tensors train(Communicator& world, Head kind, bool checkpointed, const DataParallelOptions& options) {
  Tower model;
  std::optional<nn::ActivationCheckpoint> checkpoint;
  if (checkpointed) checkpoint.emplace(nn::activation_checkpoint(model.units));
  auto parallel = data_parallel(model, world, options);
  optim::SGD optimizer(parallel.parameters(), {.lr = 0.1, .momentum = 0.9});
  for (std::uint64_t step = 0; step < 4; ++step) {
    if (kind == Head::kFrozenLater && step == 2) {
      for (at::Tensor& parameter : model.head->parameters()) parameter.requires_grad_(false);
    }
    const bool with_head =
        (kind == Head::kFrozenLater && step < 2) || (kind == Head::kUsedByRank0 && world.rank() == 0);
    parallel.prepare_forward();
    model.forward(share(numbers(step, {12, 5}), world), with_head).pow(2).mean().backward();
    optimizer.step();
    optimizer.zero_grad();
  }
  return values_of(model);
}

class InnerBackward : public ::testing::TestWithParam<std::tuple<Head, bool, Shard>> {};

TEST_P(InnerBackward, GradientsAreAveragedAllTheSame) {
  const Head head = std::get<0>(GetParam());
  const DataParallelOptions options{
      .bucket_mb = 0, .overlap = std::get<1>(GetParam()), .shard = std::get<2>(GetParam())};
  for (const int ranks : {2, 3}) {
    const auto run = [&](bool checkpointed) {
      return agreed(ranks, [&](Communicator& world) { return train(world, head, checkpointed, options); });
    };
    EXPECT_TRUE(same_bits(run(false), run(true))) << ranks;
  }
}

INSTANTIATE_TEST_SUITE_P(, InnerBackward,
                         ::testing::Combine(::testing::Values(Head::kUnused, Head::kUsedByRank0, Head::kFrozenLater),
                                            ::testing::Bool(), ::testing::Values(Shard::kNone, Shard::kGradients)));

TEST(ForeignInnerBackward, ThatNeverEndsIsSaidAtTheNextForward) {
  agreed(2, [](Communicator& world) {
    Tower model;
    auto parallel = data_parallel(model, world, {});
    Recompute::Part part = [&](const at::Tensor& x) { return model.forward(x, false); };
    const auto step = [&] {
      parallel.prepare_forward();
      const at::Tensor x = share(numbers(1, {12, 5}), world).requires_grad_();
      Recompute::apply(x, reinterpret_cast<std::int64_t>(&part)).sum().backward();
    };
    step();
    try {
      parallel.prepare_forward();
      ADD_FAILURE() << "no error";
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("no gradient of head.weight"));
    }
    return values_of(model);
  });
}

// A mean is kept, added to under no_sync(), and dropped. Then only rank 1 reaches the head.
TEST(DroppedGradients, AreAddedToNothing) {
  const auto train_with = [](Communicator& world, Shard shard) {
    Tower model;
    auto parallel = data_parallel(model, world, {.bucket_mb = 0, .shard = shard});
    optim::SGD optimizer(parallel.parameters(), {.lr = 0.1});
    const auto backward = [&](std::uint64_t step, bool with_head) {
      parallel.prepare_forward();
      model.forward(share(numbers(step, {12, 5}), world), with_head).pow(2).mean().backward();
    };
    backward(0, true);
    optimizer.step();
    {
      auto guard = parallel.no_sync();
      backward(1, true);
    }
    optimizer.zero_grad();
    backward(2, world.rank() == 1);
    optimizer.step();
    return values_of(model);
  };
  const auto run = [&](Shard shard, const char* backend) {
    return agreed(
        2, [&](Communicator& world) { return train_with(world, shard); }, backend);
  };
  for (const char* backend : {"shared_memory", "tcp"}) {
    EXPECT_LT(distance(run(Shard::kGradients, backend), run(Shard::kNone, backend)), 1e-12) << backend;
  }
  EXPECT_LT(distance(run(Shard::kParameters, "shared_memory"), run(Shard::kNone, "shared_memory")), 1e-12);
}

}  // namespace
}  // namespace reigen::testing::inner_backward_test
