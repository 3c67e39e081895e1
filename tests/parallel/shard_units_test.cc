// Weights, gradients and states that ranks divide, over shared memory and over a network: the bits of ranks that hold
// all.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <tuple>

#include "parallel/oracle.h"
#include "reigen/nn/activation_checkpoint.h"
#include "reigen/nn/unit.h"
#include "reigen/optim/clip.h"
#include "reigen/optim/ema.h"
#include "reigen/optim/lamb.h"
#include "reigen/parallel/replicas.h"
#include "reigen/parallel/strategies.h"
#include "tensor/transient_flat.h"

namespace reigen::parallel {
namespace {

using namespace testing_oracle;  // NOLINT: the vocabulary of these tests
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

struct Layer : torch::nn::Module {
  Layer(int in, int hidden, int out, const at::Tensor& tie = {}) {
    up = register_module("up", torch::nn::Linear(in, hidden));
    down = register_module("down", torch::nn::Linear(hidden, out));
    if (tie.defined()) tied = register_parameter("tied", tie);
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = down(torch::tanh(up(x)));
    return tied.defined() ? y * tied : y;
  }
  torch::nn::Linear up{nullptr}, down{nullptr};
  at::Tensor tied;
};

// Units of several blocks and of less than one, one within the model's own parameters; weights of two units that are
// one tensor; one of another type, one frozen, one that nothing reaches.
struct Net : torch::nn::Module {
  explicit Net(at::ScalarType type = at::kFloat, bool has_unused = true) : type_(type) {
    const auto add = [&](const char* name, int hidden, const at::Tensor& tie = {}) {
      list.emplace_back(name, register_module(name, std::make_shared<Layer>(33, hidden, 33, tie)));
    };
    const at::Tensor tied = torch::ones({33}, type);
    add("first", 701, tied);
    add("second", 5);
    add("third", 40, tied);
    add("fourth", 640);
    add("fifth", 300);
    if (has_unused) unused = register_module("unused", torch::nn::Linear(5, 5));
    frozen = register_module("frozen", torch::nn::Linear(33, 33));
    fill(*this, type);
    // Large weights would make rounding large in few steps.
    for (at::Tensor parameter : parameters()) {
      const at::NoGradGuard no_grad;
      if (parameter.dim() == 2) parameter.mul_(2 / std::sqrt(static_cast<double>(parameter.size(1))));
    }
    for (auto& parameter : frozen->parameters()) parameter.set_requires_grad(false);
    for (auto& entry : named_parameters()) {
      const bool is_frozen = entry.key() == "third.up.weight" || entry.key().rfind("fourth.", 0) == 0;
      if (is_frozen) entry.value().set_requires_grad(false);
    }
    torch::NoGradGuard no_grad;
    scale = register_parameter("scale", torch::full({33}, 1.25, at::kDouble));
  }
  at::Tensor forward(const at::Tensor& x) { return nn::fold(list, frozen(x.to(type_)) * 0.1).to(at::kDouble) * scale; }
  std::vector<nn::Unit> units() const { return list; }

  std::vector<nn::Unit> list;
  torch::nn::Linear unused{nullptr}, frozen{nullptr};
  at::Tensor scale;

 private:
  at::ScalarType type_;
};

struct Way {
  Shard shard = Shard::kNone;
  bool units = true;
  bool reshard = true;
  int replicas = 1;
};

DataParallelOptions options_of(const Way& way, Net& model, const Communicator& world) {
  DataParallelOptions options{.bucket_mb = 0.05, .shard = way.shard, .reshard_after_forward = way.reshard};
  if (way.units) options.units = model.units();
  if (way.replicas > 1) options.mesh = Mesh(world, {{"dp_replicate", way.replicas}, {"dp_shard", mesh::kRest}});
  return options;
}

struct Case {
  const char* name;
  MakeOptimizer make;
  at::ScalarType type = at::kFloat;
  int accumulates = 1;
  bool recomputes = false;
  bool clips = false;
};

const auto kAdamW = maker<optim::AdamW>(optim::AdamWOptions{.lr = 0.01});

const std::vector<Case> kCases{
    {"sgd", maker<optim::SGD>(optim::SGDOptions{.lr = 0.1, .momentum = 0.9})},
    {"adamw", kAdamW},
    {"lamb", maker<optim::LAMB>(optim::LAMBOptions{.lr = 0.01, .weight_decay = 0.01})},
    {"adamw in bf16", kAdamW, at::kBFloat16},
    {"masters", maker<optim::AdamW>(optim::AdamWOptions{.lr = 0.01, .master_weights = true}), at::kBFloat16},
    {"accumulation", kAdamW, at::kFloat, 3},
    {"activations computed again", kAdamW, at::kFloat, 1, true},
    {"both, fp64", kAdamW, at::kDouble, 2, true},
    {"clipping", kAdamW, at::kFloat, 1, false, true},
};

// What every rank has of it, put together.
at::Tensor whole(const optim::NamedTensor& entry, Communicator& world, int replicas) {
  if (!entry.is_divided()) return entry.tensor.clone();
  at::Tensor sum = torch::zeros(entry.tensor.sizes(), at::kDouble);
  if (entry.first < entry.last) {
    sum.view({-1})
        .narrow(0, entry.first, entry.last - entry.first)
        .copy_(entry.tensor.reshape({-1}).narrow(0, entry.first, entry.last - entry.first));
  }
  world.all_reduce(sum.data_ptr(), sum.data_ptr(), static_cast<std::size_t>(sum.numel()), DataType::kFloat64,
                   ReduceOp::kSum);
  return (sum / replicas).to(entry.tensor.scalar_type());
}

at::Tensor loss_of(const at::Tensor& output) { return output.square().mean(); }

at::Tensor input_of(std::uint64_t seed, const Communicator& world) { return share(numbers(seed, {24, 33}), world); }

Tensors train(Communicator& world, const Case& one, const Way& way, int steps = 4) {
  Net model(one.type);
  std::optional<nn::ActivationCheckpoint> checkpoint;
  if (one.recomputes) checkpoint.emplace(nn::activation_checkpoint(model.units()));
  auto parallel = data_parallel(model, world, options_of(way, model, world));
  const auto optimizer = one.make(parallel.parameters());
  optim::ExponentialMovingAverage average(parallel.parameters(), {.decay = 0.9});
  for (int step = 0; step < steps; ++step) {
    for (int i = 0; i < one.accumulates; ++i) {
      std::optional<NoSync> only_adds_up;
      if (i + 1 < one.accumulates) only_adds_up.emplace(parallel.no_sync());
      loss_of(parallel(input_of(static_cast<std::uint64_t>(step * 10 + i), world))).backward();
    }
    optim::StepOptions how;
    if (one.clips) how.gradient_factor = optim::clip_factor(optim::gradient_norm(parallel.parameters()).norm, 0.2);
    if (one.clips && step == 1) optim::clip_grad_norm(parallel.parameters(), 0.1);
    if (one.clips && step == 2) optim::clip_grad_value(parallel.parameters(), 0.01);
    how.check_finite = step == 1;
    optimizer->step(how);
    optimizer->zero_grad();
    average.update();
    if (step != 2) continue;
    const auto swapped = average.swap_in();  // as for a validation in the middle
    const at::NoGradGuard no_grad;
    parallel(input_of(99, world));
  }
  parallel.gather_weights();
  Tensors result = values_of(model);
  // Ranges follow the units, so their order depends on the division.
  std::map<std::string, at::Tensor> states;
  for (const auto& entry : optimizer->state()) states[entry.name] = whole(entry, world, way.replicas);
  for (const auto& entry : average.state()) states[entry.name] = whole(entry, world, way.replicas);
  for (const auto& [name, state] : states) result.push_back(state);
  return result;
}

Tensors agreed_over(const std::string& backend, int ranks, const std::function<Tensors(Communicator&)>& function) {
  return agreed(ranks, function, backend);
}

// Beside the largest element of each tensor: second moments are large here.
double relative_distance(const Tensors& a, const Tensors& b) {
  double largest = a.size() == b.size() ? 0 : std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (a[i].numel() == 0) continue;
    const double size = std::max(1.0, a[i].to(at::kDouble).abs().max().item<double>());
    largest = std::max(largest, distance({a[i]}, {b[i]}) / size);
  }
  return largest;
}

class DividedRanks : public testing::TestWithParam<std::tuple<const char*, int>> {
 protected:
  Tensors over(const std::function<Tensors(Communicator&)>& function) const {
    return agreed_over(std::get<0>(GetParam()), std::get<1>(GetParam()), function);
  }
};
INSTANTIATE_TEST_SUITE_P(DataParallel, DividedRanks,
                         testing::Combine(testing::Values("shared_memory", "tcp"), testing::Values(1, 2, 3, 4, 6)));

// The later of two units that share a weight completes its gradient; the earlier one is computed again behind that.
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
      // A norm is added up in the order of the ranges, which follow the units.
      const bool as_good = one.clips ? distance(own, got) < 1e-7 : same_bits(own, got);
      EXPECT_TRUE(as_good) << one.name << ", " << to_text(shard) << ", differ by " << distance(own, got);
    }
  }
}

TEST_P(DividedRanks, UnitsAreNotNeededAndMayKeepTheirWeights) {
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

// Rounded where they compute, whole where they are stepped and where they are looked at.
TEST_P(DividedRanks, WhatTravelsIn16BitsIsRoundedOnItsWay) {
  const auto [backend, ranks] = GetParam();
  const bool rounds_weights = std::string(backend) == "tcp" && ranks > 1;
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    const auto run = [&](Shard shard, bool reshard = true) {
      return over([&](Communicator& world) {
        const at::NoGradGuard no_grad;
        Net model;
        model.scale.set_requires_grad(false);  // of doubles, which compressed() rounds as well
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
          // An output is each rank's own.
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

TEST(Divided, TypesOnTheWayAreRefusedWhereNothingIsDivided) {
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

// Averages that are not cleared add up, as they do without a division.
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

// Two replicas of two ranks, over one memory or a network each.
TEST(Divided, ReplicasThatDivideGiveTheValuesOfOwnWeights) {
  // A mean of means is rounded otherwise, which a small epsilon would make large where gradients are nearly zero.
  const auto adamw = maker<optim::AdamW>(optim::AdamWOptions{.lr = 0.01, .eps = 1e-2});
  const std::vector<Case> cases{{"sgd", kCases[0].make, at::kDouble},
                                {"adamw", adamw, at::kDouble},
                                {"accumulation", adamw, at::kDouble, 3, true},
                                {"clipping", adamw, at::kDouble, 1, false, true}};
  for (const char* backend : {"shared_memory", "tcp"}) {
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
      return compare_replicas({{"a", torch::ones({3})}, {"b", values, begin, end}}, ranks);
    };
    EXPECT_FALSE(compare(world, 0, 10));
    if (world.rank() == 2) values[7] += 1;
    // Rank 2 has the first half: what it has is as it was.
    EXPECT_FALSE(compare(mesh.along("dp_replicate"), first, first + 5));
    const auto found = compare(world, 0, 10);
    EXPECT_TRUE(found && found->tensor == "b" && found->ranks == std::vector<int>{2});
    EXPECT_EQ(found ? found->text : "", "b is another on rank 2 than on ranks 0, 1, 3");
    if (world.rank() == 2) values[1] += 1;
    const auto in_share = compare_replicas({{"b", values, first, first + 5}}, mesh.along("dp_replicate"), world.rank());
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
        const auto& flat = which(range);
        if (flat->is_there()) bytes += flat->bytes();
      }
      return bytes;
    };
    const auto weights = [&] { return there([](const ParameterRange& range) { return range.share().whole; }); };
    const auto gradients = [&] { return there([](const ParameterRange& range) { return range.share().made; }); };
    std::size_t largest = 0;
    for (const ParameterRange& range : parallel.parameters()) largest = std::max(largest, range.values().nbytes());
    std::size_t most_weights = 0;
    std::size_t most_gradients = 0;
    for (const nn::Unit& unit : model.units()) {
      unit.attach(nn::Layer::kPrecision, [&](const nn::Carry& input, const nn::Unit::Forward& inner) {
        most_weights = std::max(most_weights, weights());
        return inner(input);
      });
    }
    const at::Tensor loss = loss_of(parallel(input_of(1, world)));
    loss.backward();
    most_gradients = std::max(most_gradients, gradients());
    EXPECT_GT(most_weights, 0U);
    EXPECT_LE(most_weights, 2 * largest);
    EXPECT_EQ(weights(), 0U);
    EXPECT_EQ(gradients(), 0U);
    for (const nn::Unit& unit : model.units()) unit.detach(nn::Layer::kPrecision);
    EXPECT_TRUE(model.scale.isnan().all().item<bool>()) << "weights that are away were read";
    parallel.prepare_forward();
    EXPECT_EQ(model.scale.min().item<double>(), 1.25);
    return {torch::zeros(1)};
  });
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

// Each stays for what one rank does alone.
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
    const auto run = [&](bool fails) {
      return agreed_over(backend, 2, [&](Communicator& world) {
        Net model;
        auto parallel = data_parallel(model, world, options_of({.shard = Shard::kParameters}, model, world));
        optim::SGD optimizer(parallel.parameters(), {.lr = 0.01});
        for (std::uint64_t step = 0; step < 3; ++step) {
          if (fails && step == 1) {
            const at::Tensor x = input_of(9, world).requires_grad_();
            x.register_hook([](const at::Tensor&) { throw std::runtime_error("in the middle"); });
            EXPECT_ANY_THROW(loss_of(parallel(x)).backward());
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
    EXPECT_TRUE(same_bits(run(false), run(true))) << backend;
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
}  // namespace reigen::parallel
