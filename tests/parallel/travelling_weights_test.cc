// Which data is sent, and when, if weights are sharded over a network: types in transit, weights that are kept, groups
// that keep them.
#include <gmock/gmock.h>

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "harness/torch.h"
#include "parallel/divided_training.h"
#include "reigen/nn/unit_policy.h"
#include "reigen/parallel/strategies.h"

namespace reigen::parallel::travelling_weights_test {
namespace {

using namespace testing_divided;  // NOLINT: the vocabulary of these tests
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

class TravellingWeights : public ::testing::TestWithParam<std::tuple<const char*, int>> {
 protected:
  Tensors over(const std::function<Tensors(Communicator&)>& function) const {
    return agreed_over(std::get<0>(GetParam()), std::get<1>(GetParam()), function);
  }
};
INSTANTIATE_TEST_SUITE_P(DataParallel, TravellingWeights,
                         ::testing::Combine(::testing::Values("shared_memory", "tcp"),
                                            ::testing::Values(1, 2, 3, 4, 6)));

TEST_P(TravellingWeights, UnitsAreNotNeededAndMayKeepTheirWeights) {
  const Case& one = kCases[1];
  const Tensors own = over([&](Communicator& world) { return train(world, one, {}); });
  for (const Way& way :
       {Way{.shard = Shard::kParameters, .units = false}, Way{.shard = Shard::kGradients, .units = false},
        Way{.shard = Shard::kParameters, .reshard = false}}) {
    const Tensors got = over([&](Communicator& world) { return train(world, one, way); });
    EXPECT_TRUE(same_bits(own, got)) << to_text(way.shard) << ", units " << way.units << ", differ by "
                                     << distance(own, got);
  }
}

// A case, the number of ranks, and how many of them keep a unit together.
class KeptUnits : public ::testing::TestWithParam<std::tuple<std::size_t, std::pair<int, int>>> {};
INSTANTIATE_TEST_SUITE_P(DataParallel, KeptUnits,
                         ::testing::Combine(::testing::Range(std::size_t{0}, std::size(kCases)),
                                            ::testing::Values(std::pair(2, 2), std::pair(4, 2), std::pair(6, 2),
                                                              std::pair(6, 3))));

TEST_P(KeptUnits, ChangeNoBit) {
  const Case& one = kCases[std::get<0>(GetParam())];
  const auto [ranks, keepers] = std::get<1>(GetParam());
  const auto run = [&, ranks = ranks](int kept_by) {
    return agreed_over("tcp", ranks, [&](Communicator& world) {
      return train(world, one, {.shard = Shard::kParameters, .reshard_to = kept_by});
    });
  };
  EXPECT_TRUE(same_bits(run(0), run(keepers))) << one.name;
}

// There are fewer units than the model has. Parameters of no unit are gathered with the first forward.
TEST_P(TravellingWeights, UnitsMayBeChosenBySize) {
  const auto run = [&](Shard shard) {
    return over([&](Communicator& world) {
      Net model;
      DataParallelOptions options = options_of({.shard = shard}, model, world);
      options.units = nn::units_of_size(options.units, 10'000);
      EXPECT_EQ(options.units.size(), 3U);
      auto parallel = data_parallel(model, world, options);
      const auto optimizer = kAdamW(parallel.parameters());
      for (std::uint64_t step = 0; step < 3; ++step) {
        loss_of(parallel(input_of(step, world))).backward();
        optimizer->step();
        optimizer->zero_grad();
      }
      parallel.gather_weights();
      return values_of(model);
    });
  };
  const Tensors own = run(Shard::kNone);
  EXPECT_TRUE(same_bits(own, run(Shard::kParameters)));
  EXPECT_TRUE(same_bits(own, run(Shard::kGradients)));
}

// Weights that are released after forward are gathered again from the group, once for each unit but the last. This
// holds with and without rounding and recomputation.
TEST(Travelling, WhatAGroupKeepsComesFromIt) {
  const auto gathers = [](bool recomputes, const DataParallelOptions& how) {
    std::map<std::string, std::map<std::string, std::uint64_t>> bytes;  // by group and tag, in rank 0's last step
    agreed_over("tcp", 4, [&](Communicator& world) -> Tensors {
      Net model;
      std::optional<nn::ActivationCheckpoint> checkpoint;
      if (recomputes) checkpoint.emplace(nn::activation_checkpoint(model.units()));
      DataParallelOptions options = options_of({.shard = Shard::kParameters}, model, world);
      options.reshard_to = how.reshard_to;
      options.gather_type = how.gather_type;
      auto parallel = data_parallel(model, world, options);
      optim::SGD optimizer(parallel.parameters(), {.lr = 0.01});
      std::uint64_t before = 0;
      for (std::uint64_t step = 0; step < 3; ++step) {
        before = world.history().back().number;
        loss_of(parallel(input_of(step, world))).backward();
        optimizer.step();
        optimizer.zero_grad();
      }
      for (const comm::PastCall& call : world.history()) {
        const bool is_of_unit = call.tag.starts_with("gather ") && call.tag != "gather what is of no unit";
        if (world.rank() == 0 && call.number > before && is_of_unit) bytes[call.group][call.tag] += call.bytes;
      }
      return {torch::zeros(1)};
    });
    return bytes;
  };
  for (const bool recomputes : {false, true}) {
    const auto plain = gathers(recomputes, {});
    ASSERT_EQ(plain.size(), 1U);
    for (const auto& type : {std::optional<at::ScalarType>(), std::optional(at::kBFloat16)}) {
      const auto kept = gathers(recomputes, {.reshard_to = 2, .gather_type = type});
      ASSERT_EQ(kept.size(), 2U) << "one group for forwards, one for backwards";
      const auto& [forwards, backwards] = std::pair(kept.begin()->second, kept.rbegin()->second);
      EXPECT_EQ(std::min(forwards.size(), backwards.size()), recomputes ? 5U : 4U) << "units";
      EXPECT_EQ(std::max(forwards.size(), backwards.size()), 5U) << "units";
    }
  }
}

TEST(Travelling, GroupsThatDoNotFitAreRefused) {
  const auto refusal = [](DataParallelOptions options) {
    return errors_on(4, [&](Communicator& world) {
      Net model;
      data_parallel(model, world, options);
    });
  };
  for (const DataParallelOptions& options :
       {DataParallelOptions{.shard = Shard::kParameters, .reshard_to = 3},
        DataParallelOptions{.shard = Shard::kParameters, .reshard_to = 1},
        DataParallelOptions{.shard = Shard::kParameters, .reshard_after_forward = false, .reshard_to = 2},
        DataParallelOptions{.shard = Shard::kGradients, .reshard_to = 2}}) {
    EXPECT_THAT(refusal(options), Each(AllOf(HasSubstr("reshard_to is not possible here"), HasSubstr("a multiple"))));
  }
}

// Weights are rounded for computation, but exact in steps and for readers.
TEST_P(TravellingWeights, WhatTravelsIn16BitsIsRoundedOnItsWay) {
  const auto [backend, ranks] = GetParam();
  const bool rounds_weights = std::string(backend) == "tcp" && ranks > 1;
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    const auto run = [&](Shard shard, bool reshard = true) {
      return over([&](Communicator& world) {
        const at::NoGradGuard no_grad;
        Net model;
        model.scale.set_requires_grad(false);  // it has doubles, which compressed() would round too
        DataParallelOptions options = options_of({.shard = shard, .reshard = reshard}, model, world);
        const bool is_reference = shard == Shard::kNone;
        if (is_reference) {
          options.strategy = compressed(type);
        } else {
          options.gather_type = type;
          options.reduce_type = type;
        }
        auto parallel = data_parallel(model, world, options);
        const auto optimizer = kAdamW(parallel.parameters());
        Tensors seen;
        for (std::uint64_t step = 0; step < 3; ++step) {
          const Tensors whole = values_of(model);
          const std::vector<at::Tensor> parameters = model.parameters();
          for (const at::Tensor& parameter : parameters) {
            if (!is_reference || !rounds_weights || parameter.scalar_type() != at::kFloat) continue;
            parameter.copy_(parameter.to(type));
          }
          seen.push_back(parallel(input_of(7, world)));
          {
            const at::AutoGradMode with_grad(true);
            loss_of(parallel(input_of(step, world))).backward();
          }
          for (std::size_t i = 0; is_reference && i < whole.size(); ++i) parameters[i].copy_(whole[i]);
          optimizer->step();
          optimizer->zero_grad();
          if (step == 1) {
            parallel.gather_weights();
            for (const at::Tensor& value : values_of(model)) seen.push_back(value);
          }
        }
        parallel.gather_weights();
        Tensors result = values_of(model);
        for (at::Tensor& tensor : seen) {
          // Each rank has its own output.
          world.all_reduce(tensor.data_ptr(), tensor.data_ptr(), static_cast<std::size_t>(tensor.numel()),
                           tensor.scalar_type() == at::kFloat ? DataType::kFloat32 : DataType::kFloat64,
                           ReduceOp::kMax);
          result.push_back(tensor);
        }
        return result;
      });
    };
    const Tensors own = run(Shard::kNone);
    EXPECT_TRUE(same_bits(own, run(Shard::kParameters))) << c10::toString(type);
    EXPECT_TRUE(same_bits(own, run(Shard::kParameters, false))) << c10::toString(type) << ", kept";
  }
}

TEST(Travelling, TypesOnTheWayAreRefusedWhereNothingIsDivided) {
  const auto refusal = [](const DataParallelOptions& options) {
    return errors_on(2, [&](Communicator& world) {
      Net model;
      data_parallel(model, world, options);
    });
  };
  EXPECT_THAT(refusal({.shard = Shard::kGradients, .gather_type = at::kHalf}),
              Each(AllOf(HasSubstr("gather_type is not possible here"), HasSubstr("shard kParameters"))));
  EXPECT_THAT(refusal({.reduce_type = at::kHalf}), Each(HasSubstr("without one strategy compressed(type)")));
  EXPECT_THAT(refusal({.shard = Shard::kParameters, .gather_type = at::kDouble}),
              Each(HasSubstr("at::kBFloat16 or at::kHalf")));
}

}  // namespace
}  // namespace reigen::parallel::travelling_weights_test
