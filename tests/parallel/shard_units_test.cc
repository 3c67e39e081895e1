// Sharded weights, gradients and states, over shared memory and over a network. The bits must equal those of ranks that
// hold everything.
#include <gmock/gmock.h>

#include <chrono>
#include <stdexcept>
#include <thread>
#include <tuple>

#include "harness/torch.h"
#include "parallel/divided_training.h"
#include "parallel/gradient_reducer.h"
#include "reigen/parallel/replicas.h"
#include "tensor/flat/gradient_share.h"
#include "tensor/flat/transient_flat.h"

namespace reigen::parallel::shard_units_test {
namespace {

using namespace testing_divided;  // NOLINT: the vocabulary of these tests
using ::testing::Each;
using ::testing::HasSubstr;

class DividedRanks : public ::testing::TestWithParam<std::tuple<const char*, int>> {
 protected:
  Tensors over(const std::function<Tensors(Communicator&)>& function) const {
    return agreed_over(std::get<0>(GetParam()), std::get<1>(GetParam()), function);
  }
};
INSTANTIATE_TEST_SUITE_P(DataParallel, DividedRanks,
                         ::testing::Combine(::testing::Values("shared_memory", "tcp"),
                                            ::testing::Values(1, 2, 3, 4, 6)));

// Two units share a weight. The later unit completes its gradient, and the earlier unit is recomputed after that.
TEST_P(DividedRanks, WhatUnitsShareStaysUntilBackwardIsOver) {
  const auto run = [&](Shard shard) {
    return over([shard](Communicator& world) {
      Net model(at::kDouble, false);
      const auto checkpoint = nn::activation_checkpoint(model.units());
      DataParallelOptions options = options_of({.shard = shard}, model, world);
      options.overlap = false;
      auto parallel = data_parallel(model, world, options);
      const auto optimizer = kAdamW(parallel.parameters());
      for (int step = 0; step < 3; ++step) {
        loss_of(parallel(input_of(static_cast<std::uint64_t>(step), world))).backward();
        optimizer->step();
        optimizer->zero_grad();
      }
      parallel.gather_weights();
      return values_of(model);
    });
  };
  EXPECT_EQ(distance(run(Shard::kParameters), run(Shard::kNone)), 0);
}

TEST_P(DividedRanks, EveryStageGivesTheBitsOfOwnWeights) {
  for (const Case& one : kCases) {
    const Tensors own = over([&](Communicator& world) { return train(world, one, {}); });
    for (const Shard shard : {Shard::kOptimizer, Shard::kGradients, Shard::kParameters}) {
      const Tensors got = over([&](Communicator& world) { return train(world, one, {.shard = shard}); });
      // A norm is summed in the order of the ranges, which follows the units.
      const bool as_good = one.clips ? distance(own, got) < 1e-7 : same_bits(own, got);
      EXPECT_TRUE(as_good) << one.name << ", " << to_text(shard) << ", differ by " << distance(own, got);
    }
  }
}

// Averages that are not cleared add up, as without sharding.
TEST_P(DividedRanks, AveragesAddUpUntilTheyAreCleared) {
  const auto run = [&](Shard shard) {
    return over([&](Communicator& world) {
      Net model(at::kDouble);
      auto parallel = data_parallel(model, world, options_of({.shard = shard}, model, world));
      optim::SGD optimizer(parallel.parameters(), {.lr = 1e-4});
      for (std::uint64_t step = 0; step < 4; ++step) {
        loss_of(parallel(input_of(step, world))).backward();
        if (step % 2 == 0) continue;
        optimizer.step();
        step < 2 ? optimizer.zero_grad() : model.zero_grad();
      }
      parallel.gather_weights();
      return values_of(model);
    });
  };
  EXPECT_LT(distance(run(Shard::kNone), run(Shard::kParameters)), 1e-12);
}

// Units have different sizes, and weights and gradients are gathered and released in every way. After three steps
// nothing more is allocated.
TEST(Divided, NothingIsAllocatedInASteadyStep) {
  struct Way {
    const char* name;
    DataParallelOptions options;
  };
  for (const Way& way : std::vector<Way>{{"parameters", {.shard = Shard::kParameters}},
                                         {"kept", {.shard = Shard::kParameters, .reshard_after_forward = false}},
                                         {"keepers", {.shard = Shard::kParameters, .reshard_to = 2}},
                                         {"rounded", {.shard = Shard::kParameters, .gather_type = at::kBFloat16}},
                                         {"gradients", {.shard = Shard::kGradients}}}) {
    on_ranks(
        2,
        [&](Communicator& world) -> Tensors {
          Net model;
          DataParallelOptions options = way.options;
          options.units = model.units();
          const auto reducer = std::make_shared<GradientReducer>(model, world, options);
          DataParallelBase parallel(reducer);
          const auto optimizer = kAdamW(parallel.parameters());
          std::int64_t after_three = 0;
          for (int step = 0; step < 50; ++step) {
            if (step == 3) after_three = reducer->allocations();
            parallel.prepare_forward();
            loss_of(model.forward(input_of(static_cast<std::uint64_t>(step), world))).backward();
            optimizer->step();
            optimizer->zero_grad();
          }
          EXPECT_GT(after_three, 0) << way.name;
          EXPECT_EQ(reducer->allocations(), after_three) << way.name;
          return {torch::zeros(1)};
        },
        "tcp");
  }
}

// Two replicas of two ranks, over shared memory or over a network.
TEST(Divided, ReplicasThatDivideGiveTheValuesOfOwnWeights) {
  // A mean of means is rounded differently. A small epsilon would make this difference large if gradients are nearly 0.
  const auto adamw = maker<optim::AdamW>(optim::AdamWOptions{.lr = 0.01, .eps = 1e-2});
  std::vector<Case> cases{{"sgd", kCases[0].make, at::kDouble},
                          {"adamw", adamw, at::kDouble},
                          {"accumulation", adamw, at::kDouble, 3, true},
                          {"clipping", adamw, at::kDouble, 1, false, true}};
  const std::vector<const char*> backends = on_gpu ? std::vector{"auto"} : std::vector{"shared_memory", "tcp"};
  if (on_gpu) cases = {cases[2]};
  for (const char* backend : backends) {
    for (const Case& one : cases) {
      const Tensors own = agreed_over(backend, 4, [&](Communicator& world) { return train(world, one, {}); });
      for (const Shard shard : {Shard::kOptimizer, Shard::kGradients, Shard::kParameters}) {
        const Tensors got = agreed_over(
            backend, 4, [&](Communicator& world) { return train(world, one, {.shard = shard, .replicas = 2}); });
        EXPECT_LT(relative_distance(own, got), 1e-11) << backend << ", " << one.name << ", " << to_text(shard);
      }
    }
  }
}

TEST(Replicas, AreComparedByWhatEachRankHasOfThem) {
  agreed_over("shared_memory", 4, [&](Communicator& world) -> Tensors {
    Mesh mesh(world, {{"dp_replicate", 2}, {"dp_shard", 2}});
    const at::Tensor values = torch::arange(10, at::kFloat);
    const std::int64_t first = 5 * mesh.coordinate("dp_shard");
    const auto compare = [&](const Communicator& ranks, std::int64_t begin, std::int64_t end) {
      return compare_replicas({{"a", torch::ones({3})}, {"b", values, layout::flat_part({10}, begin, end - begin)}},
                              ranks);
    };
    EXPECT_FALSE(compare(world, 0, 10));
    if (world.rank() == 2) values[7] += 1;
    // Rank 2 has the first half, which has not changed.
    EXPECT_FALSE(compare(mesh.along("dp_replicate"), first, first + 5));
    const auto found = compare(world, 0, 10);
    EXPECT_TRUE(found && found->tensor == "b" && found->ranks == std::vector<int>{2});
    EXPECT_EQ(found ? found->text : "", "b is another on rank 2 than on ranks 0, 1, 3");
    if (world.rank() == 2) values[1] += 1;
    const auto in_share =
        compare_replicas({{"b", values, layout::flat_part({10}, first, 5)}}, mesh.along("dp_replicate"), world.rank());
    EXPECT_EQ(in_share ? in_share->text : "",
              mesh.coordinate("dp_shard") == 0 ? "b is another on rank 2 than on rank 0" : "");
    return {torch::zeros(1)};
  });
}

TEST(Divided, AMeshThatDoesNotSayWhoDividesIsRefused) {
  EXPECT_THAT(errors_on(2,
                        [](Communicator& world) {
                          Net model;
                          data_parallel(model, world, {.shard = Shard::kParameters, .mesh = Mesh(world, {{"tp", 2}})});
                        }),
              Each(HasSubstr("axes dp_replicate and dp_shard over all ranks")));
}

TEST(Divided, WeightsAndGradientsAreThereOnlyWhileTheirUnitRuns) {
  agreed_over("tcp", 3, [&](Communicator& world) -> Tensors {
    Net model;
    auto parallel = data_parallel(model, world, options_of({.shard = Shard::kParameters}, model, world));
    const auto there = [&](auto which) {
      std::size_t bytes = 0;
      for (const ParameterRange& range : parallel.parameters()) {
        const tensor::TransientFlat& flat = which(range);
        if (flat.is_there()) bytes += flat.bytes();
      }
      return bytes;
    };
    const auto weights = [&] {
      return there([](const ParameterRange& range) -> auto& { return *range.sharing().whole(); });
    };
    const auto gradients = [&] {
      return there([](const ParameterRange& range) -> auto& { return range.share()->made(); });
    };
    std::size_t largest = 0;
    for (const ParameterRange& range : parallel.parameters()) largest = std::max(largest, range.values().nbytes());
    std::size_t most_weights = 0;
    for (const nn::Unit& unit : model.units()) {
      unit.attach(nn::Layer::kPrecision, [&](const nn::Carry& input, const nn::Unit::Forward& inner) {
        most_weights = std::max(most_weights, weights());
        return inner(input);
      });
    }
    optim::SGD optimizer(parallel.parameters(), {.lr = 0.1});
    const at::Tensor loss = loss_of(parallel(input_of(1, world)));
    loss.backward();
    EXPECT_GT(most_weights, 0U);
    EXPECT_LE(most_weights, 2 * largest);
    EXPECT_EQ(gradients(), 0U);
    EXPECT_TRUE(model.list[1].parameters().front().isnan().all().item<bool>()) << "a unit's stay behind its backward";
    EXPECT_EQ(model.scale.min().item<double>(), 1.25) << "another backward may need it";
    optimizer.step();
    EXPECT_EQ(weights(), 0U);
    for (const nn::Unit& unit : model.units()) unit.detach(nn::Layer::kPrecision);
    EXPECT_TRUE(model.scale.isnan().all().item<bool>()) << "weights that are away were read";
    parallel.prepare_forward();
    EXPECT_TRUE(model.scale.isfinite().all().item<bool>());
    return {torch::zeros(1)};
  });
}

// If gradients are averaged by units, only the gradients of two units have memory at a time, besides those of no unit.
TEST(Divided, GradientsOfTwoUnitsHaveMemoryAtATime) {
  struct Way {
    const char* backend;
    Shard shard;
    bool recomputes;
  };
  for (const Way& way : std::vector<Way>{{"tcp", Shard::kGradients, false},
                                         {"tcp", Shard::kGradients, true},
                                         {"tcp", Shard::kParameters, false},
                                         {"tcp", Shard::kParameters, true},
                                         {"shared_memory", Shard::kParameters, false}}) {
    on_ranks(
        2,
        [&](Communicator& world) -> Tensors {
          Net model;
          std::optional<nn::ActivationCheckpoint> checkpoint;
          if (way.recomputes) checkpoint.emplace(nn::activation_checkpoint(model.units()));
          auto parallel = data_parallel(model, world, {.shard = way.shard, .units = model.units()});
          std::vector<std::size_t> sizes;
          std::size_t of_no_unit = 0;
          for (const ParameterRange& range : parallel.parameters()) {
            const std::string& name = range.segments().front().name;
            const bool is_of_unit = std::any_of(model.list.begin(), model.list.end(), [&](const nn::Unit& unit) {
              return name.rfind(unit.name() + ".", 0) == 0 && name.find("tied") == std::string::npos;
            });
            is_of_unit ? sizes.push_back(range.values().nbytes()) : void(of_no_unit += range.values().nbytes());
          }
          std::sort(sizes.rbegin(), sizes.rend());
          std::size_t most = 0;
          for (const at::Tensor& parameter : model.parameters()) {
            if (!parameter.requires_grad()) continue;
            parameter.register_hook([&](const at::Tensor&) {
              std::size_t bytes = 0;
              for (const ParameterRange& range : parallel.parameters()) {
                if (range.share()->made().is_there()) bytes += range.share()->made().bytes();
              }
              most = std::max(most, bytes);
            });
          }
          optim::SGD optimizer(parallel.parameters(), {.lr = 0.1});
          for (std::uint64_t step = 0; step < 3; ++step) {
            loss_of(parallel(input_of(step, world))).backward();
            optimizer.step();
            optimizer.zero_grad();
          }
          EXPECT_GT(sizes.size(), 2U);
          EXPECT_GT(most, 0U);
          EXPECT_LE(most, sizes[0] + sizes[1] + of_no_unit) << way.backend << ", " << to_text(way.shard);
          return {torch::zeros(1)};
        },
        way.backend);
  }
}

// After a wrapper is destroyed in the middle of a step, others can use the model.
TEST(Divided, AWrapperThatDiesInTheMiddleOfAStepLeavesTheUnits) {
  for (const Shard shard : {Shard::kGradients, Shard::kParameters}) {
    on_ranks(
        2,
        [&](Communicator& world) -> Tensors {
          Communicator group = *world.split(0, world.rank());
          Net model;
          {
            auto parallel = data_parallel(model, group, {.shard = shard, .units = model.units()});
            EXPECT_THROW(loss_of(parallel(input_that_fails(input_of(1, world)))).backward(), std::runtime_error);
          }
          group.abort("done with it");
          for (const nn::Unit& unit : model.units()) EXPECT_FALSE(unit.has(nn::Layer::kOrder)) << unit.name();
          return {torch::zeros(1)};
        },
        "tcp");
  }
}

TEST(Divided, WeightsThatWereGatheredStayWhenTheWrapperIsGone) {
  const auto run = [](Shard shard) {
    return agreed_over("tcp", 2, [&](Communicator& world) {
      Net model;
      {
        auto parallel = data_parallel(model, world, options_of({.shard = shard}, model, world));
        optim::SGD optimizer(parallel.parameters(), {.lr = 0.01});
        loss_of(parallel(input_of(1, world))).backward();
        optimizer.step();
        parallel.gather_weights();
      }
      Tensors result = values_of(model);
      EXPECT_TRUE(model.forward(input_of(2, world)).isfinite().all().item<bool>());
      return result;
    });
  };
  EXPECT_TRUE(same_bits(run(Shard::kNone), run(Shard::kParameters)));
}

// Every gathered weight remains, for forwards that one rank makes alone.
TEST(Divided, GatheredWeightsAreThereForForwardsOfOneRank) {
  agreed_over("tcp", 2, [&](Communicator& world) -> Tensors {
    Net model;
    auto parallel = data_parallel(model, world, options_of({.shard = Shard::kParameters}, model, world));
    parallel.gather_weights();
    if (world.rank() == 0) {
      const at::NoGradGuard no_grad;
      for (int i = 0; i < 3; ++i) EXPECT_TRUE(model.forward(numbers(7, {5, 33})).isfinite().all().item<bool>());
    }
    loss_of(parallel(input_of(1, world))).backward();
    return {torch::zeros(1)};
  });
}

TEST(Divided, AnExceptionInABackwardIsOverWithTheNextForward) {
  for (const char* backend : {"shared_memory", "tcp"}) {
    enum class Fails { kNever, kInTheMiddle, kAtTheEnd };
    const auto run = [&](Fails fails) {
      return agreed_over(backend, 2, [&](Communicator& world) {
        Net model;
        auto parallel = data_parallel(model, world, options_of({.shard = Shard::kParameters}, model, world));
        optim::SGD optimizer(parallel.parameters(), {.lr = 0.01});
        for (std::uint64_t step = 0; step < 3; ++step) {
          if (fails != Fails::kNever && step == 1) {
            const auto fail = [](const at::Tensor&) { throw std::runtime_error("within backward"); };
            const at::Tensor x = input_of(9, world).requires_grad_();
            if (fails == Fails::kAtTheEnd) x.register_hook(fail);
            const nn::Unit& unit = model.list[2];
            unit.attach(nn::Layer::kPrecision, [&](const nn::Carry& input, const nn::Unit::Forward& inner) {
              if (fails == Fails::kInTheMiddle) input.front().register_hook(fail);
              return inner(input);
            });
            EXPECT_ANY_THROW(loss_of(parallel(x)).backward());
            unit.detach(nn::Layer::kPrecision);
            optimizer.zero_grad();
          }
          loss_of(parallel(input_of(step, world))).backward();
          optimizer.step();
          optimizer.zero_grad();
        }
        parallel.gather_weights();
        return values_of(model);
      });
    };
    const Tensors expected = run(Fails::kNever);
    EXPECT_TRUE(same_bits(expected, run(Fails::kInTheMiddle))) << backend;
    EXPECT_TRUE(same_bits(expected, run(Fails::kAtTheEnd))) << backend;
  }
}

TEST(Divided, AGradientThatWasNotAveragedIsRefused) {
  agreed_over("tcp", 2, [&](Communicator& world) -> Tensors {
    Net model;
    auto parallel = data_parallel(model, world, options_of({.shard = Shard::kParameters}, model, world));
    optim::SGD optimizer(parallel.parameters(), {.lr = 0.1});
    {
      const auto guard = parallel.no_sync();
      loss_of(parallel(input_of(1, world))).backward();
    }
    try {
      optimizer.step();
      ADD_FAILURE() << "a step with this rank's gradients";
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr("was not averaged"));
      EXPECT_THAT(error.what(), HasSubstr("no_sync"));
    }
    return {torch::zeros(1)};
  });
}

TEST(Divided, ARankThatSleepsWithinBackwardChangesNoBit) {
  for (const char* backend : {"shared_memory", "tcp"}) {
    const auto run = [&](bool sleeps) {
      return agreed_over(backend, 3, [&](Communicator& world) {
        Net model;
        auto parallel = data_parallel(model, world, options_of({.shard = Shard::kParameters}, model, world));
        optim::AdamW optimizer(parallel.parameters(), {.lr = 0.01});
        for (std::uint64_t step = 0; step < 3; ++step) {
          parallel.prepare_forward();
          at::Tensor x = nn::call(model.list[0], input_of(step, world).to(at::kFloat));
          x.register_hook([&](const at::Tensor&) {
            if (sleeps && world.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(200));
          });
          for (std::size_t i = 1; i < model.list.size(); ++i) x = nn::call(model.list[i], x);
          loss_of(x.to(at::kDouble) * model.scale).backward();
          optimizer.step();
          optimizer.zero_grad();
        }
        parallel.gather_weights();
        return values_of(model);
      });
    };
    EXPECT_TRUE(same_bits(run(false), run(true))) << backend;
  }
}

}  // namespace
}  // namespace reigen::parallel::shard_units_test
