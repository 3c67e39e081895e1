// Weights and optimizer states that the ranks of a machine share. The bits must equal those of ranks with their own.
#include <gmock/gmock.h>

#include <array>
#include <latch>
#include <memory>

#include "harness/torch.h"
#include "parallel/oracle.h"
#include "reigen/optim/adagrad.h"
#include "reigen/optim/adam.h"
#include "reigen/optim/clip.h"
#include "reigen/optim/ema.h"
#include "reigen/optim/grad_scaler.h"
#include "reigen/optim/lamb.h"
#include "reigen/optim/lars.h"
#include "reigen/optim/lion.h"
#include "reigen/optim/rmsprop.h"
#include "reigen/parallel/join.h"
#include "reigen/parallel/strategies.h"
#include "reigen/parallel/verify.h"
#include "reigen/tensor/collectives.h"

namespace reigen::parallel::shard_test {
namespace {

using namespace testing_oracle;  // NOLINT: the vocabulary of these tests
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr std::array kShards{Shard::kOptimizer, Shard::kGradients};

DataParallelOptions sharing(Shard shard) { return {.shard = shard}; }

// The first weight has three blocks, so shares begin inside of it. One parameter has another type, and one is never
// used.
struct Wide : torch::nn::Module {
  explicit Wide(at::ScalarType type) : type_(type) {
    first = register_module("first", torch::nn::Linear(64, 700));
    second = register_module("second", torch::nn::Linear(700, 3));
    unused = register_module("unused", torch::nn::Linear(5, 5));
    frozen = register_module("frozen", torch::nn::Linear(3, 3));
    for (auto& parameter : frozen->parameters()) parameter.set_requires_grad(false);
    empty = register_parameter("empty", torch::zeros({0}, here));
    scale = register_parameter("scale", torch::ones({3}, here));
    fill(*this, type);
    torch::NoGradGuard no_grad;
    scale.set_data(torch::full({3}, 1.5, at::TensorOptions(at::kDouble).device(here)));
  }
  at::Tensor forward(const at::Tensor& x) { return second(torch::tanh(first(x.to(type_)))).to(at::kDouble) * scale; }
  torch::nn::Linear first{nullptr}, second{nullptr}, unused{nullptr}, frozen{nullptr};
  at::Tensor scale, empty;

 private:
  at::ScalarType type_;
};

struct Case {
  const char* name;
  MakeOptimizer make;
  at::ScalarType type = at::kFloat;
};

const std::vector<optim::ParameterGroup> kGroups{{.patterns = {"second.*"}, .lr_factor = 2}, optim::no_decay()};

const std::vector<Case> kCases{
    {"sgd", maker<optim::SGD>(optim::SGDOptions{.lr = 0.1})},
    {"momentum", maker<optim::SGD>(optim::SGDOptions{.lr = 0.1, .momentum = 0.9, .groups = kGroups})},
    {"adamw", maker<optim::AdamW>(optim::AdamWOptions{.lr = 0.01, .groups = kGroups})},
    {"adamw fp64", maker<optim::AdamW>(optim::AdamWOptions{.lr = 0.01, .amsgrad = true}), at::kDouble},
    {"adamw bf16", maker<optim::AdamW>(optim::AdamWOptions{.lr = 0.01}), at::kBFloat16},
    {"adamw masters", maker<optim::AdamW>(optim::AdamWOptions{.lr = 0.01, .master_weights = true}), at::kBFloat16},
    {"adam", maker<optim::Adam>(optim::AdamOptions{.lr = 0.01})},
    {"adagrad", maker<optim::Adagrad>(optim::AdagradOptions{.lr = 0.01, .initial_accumulator_value = 0.1})},
    {"rmsprop", maker<optim::RMSprop>(optim::RMSpropOptions{.lr = 0.001, .momentum = 0.9})},
    {"lars", maker<optim::LARS>(optim::LARSOptions{.lr = 10, .weight_decay = 1e-3, .groups = kGroups})},
    {"lamb", maker<optim::LAMB>(optim::LAMBOptions{.lr = 0.01, .weight_decay = 0.01, .groups = kGroups})},
    {"lion", maker<optim::Lion>(optim::LionOptions{.lr = 0.001})},
};

at::Tensor loss_of(const at::Tensor& output) { return output.square().mean(); }

at::Tensor input_of(std::uint64_t step, const Communicator& world) { return share(numbers(step, {42, 64}), world); }

void train_step(DataParallel<Wide>& parallel, optim::Optimizer& optimizer, std::uint64_t step,
                const Communicator& world) {
  loss_of(parallel(input_of(step, world))).backward();
  optim::StepOptions how{.check_finite = step == 1};
  if (step % 2 == 0) how.gradient_factor = optim::clip_factor(optim::gradient_norm(parallel.parameters()).norm, 0.2);
  if (step == 3) optim::clip_grad_norm(parallel.parameters(), 0.1);
  if (step == 4) optim::clip_grad_value(parallel.parameters(), 0.01);
  optimizer.step(how);
  EXPECT_TRUE(optimizer.was_finite());
  optimizer.zero_grad();
}

// All elements of an entry of which each rank has a part.
at::Tensor whole(const optim::NamedTensor& entry, const Communicator& world) {
  if (!entry.is_divided()) return entry.tensor.clone();
  at::Tensor all = at::zeros_like(entry.tensor);
  const auto own = [&](const at::Tensor& of) { return of.flatten().narrow(0, entry.part->first, entry.part->count); };
  own(all).copy_(own(entry.tensor));
  return tensor::all_reduce(all, world);
}

// Weights, states and the average of the weights after some steps.
Tensors train(Communicator& world, const Case& one, const DataParallelOptions& options) {
  Wide model(one.type);
  auto parallel = data_parallel(model, world, options);
  const auto optimizer = one.make(parallel.parameters());
  optim::ExponentialMovingAverage average(parallel.parameters(), {.decay = 0.9});
  for (std::uint64_t step = 0; step < 5; ++step) {
    train_step(parallel, *optimizer, step, world);
    average.update();
    if (step != 2) continue;
    const auto swapped = average.swap_in();  // like a validation in the middle
  }
  Tensors result = values_of(model);
  for (const auto& entry : optimizer->state()) result.push_back(whole(entry, world));
  for (const auto& entry : average.state()) result.push_back(whole(entry, world));
  const auto swapped = average.swap_in();
  for (auto& value : values_of(model)) result.push_back(value);
  return result;
}

class ShardedRanks : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(DataParallel, ShardedRanks, ::testing::Values(2, 3, 7));

class EveryShard : public ::testing::TestWithParam<Shard> {};
INSTANTIATE_TEST_SUITE_P(DataParallel, EveryShard, ::testing::ValuesIn(kShards));

TEST_P(ShardedRanks, EveryOptimizerGivesTheBitsOfOwnWeights) {
  for (const Case& one : kCases) {
    const auto own = agreed(GetParam(), [&](Communicator& world) { return train(world, one, {}); });
    for (const Shard shard : kShards) {
      const auto got = agreed(GetParam(), [&](Communicator& world) { return train(world, one, sharing(shard)); });
      EXPECT_TRUE(same_bits(own, got)) << one.name << ", shard " << static_cast<int>(shard) << ", differ by "
                                       << distance(own, got);
    }
  }
}

TEST_P(ShardedRanks, AStateGoesFromOwnToSharedAndBack) {
  const Case& one = kCases[2];
  const auto trained = [&](const std::vector<Shard>& parts) {
    return agreed(GetParam(), [&](Communicator& world) {
      Wide model(one.type);
      std::vector<optim::NamedTensor> state;
      std::uint64_t step = 0;
      for (const Shard shard : parts) {
        auto parallel = data_parallel(model, world, sharing(shard));
        const auto optimizer = one.make(parallel.parameters());
        if (step > 0) optimizer->load_state(state, static_cast<std::int64_t>(step));
        for (int i = 0; i < 3; ++i) train_step(parallel, *optimizer, step++, world);
        state.clear();
        for (const auto& entry : optimizer->state()) state.push_back({entry.name, whole(entry, world)});
        world.barrier();  // all ranks have copied the shared data
        for (auto& parameter : model.parameters()) parameter.set_data(parameter.detach().clone());
      }
      return values_of(model);
    });
  };
  const Tensors own = trained({Shard::kNone, Shard::kNone, Shard::kNone});
  EXPECT_TRUE(same_bits(own, trained({Shard::kNone, Shard::kOptimizer, Shard::kNone})));
  EXPECT_TRUE(same_bits(own, trained({Shard::kGradients, Shard::kOptimizer, Shard::kGradients})));
}

TEST_P(ShardedRanks, SharesCoverEveryRangeInOrderAndDifferByABlock) {
  const auto shares = on_ranks(GetParam(), [&](Communicator& world) -> Tensors {
    Wide model(at::kFloat);
    auto parallel = data_parallel(model, world, sharing(Shard::kOptimizer));
    Tensors result;
    for (const ParameterRange& range : parallel.parameters()) {
      result.push_back(torch::tensor({range.begin(), range.end(), range.values().numel()}, at::kLong));
    }
    return result;
  });
  for (std::size_t range = 0; range < shares.front().size(); ++range) {
    std::int64_t covered = 0;
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    std::int64_t most = 0;
    for (const Tensors& one : shares) {
      const auto* numbers = one[range].const_data_ptr<std::int64_t>();
      EXPECT_EQ(numbers[0], covered);
      covered = numbers[1];
      least = std::min(least, numbers[1] - numbers[0]);
      most = std::max(most, numbers[1] - numbers[0]);
    }
    EXPECT_EQ(covered, shares.front()[range][2].item<std::int64_t>());
    EXPECT_LE(most - least, tensor::kBlockElements + 1000) << "spare elements and small parameters beside a block";
  }
}

// Several threads average and step blocks of a share.
TEST_P(EveryShard, ThreadsOfARankGiveTheSameBits) {
  const auto run = [&](Shard shard, int threads) {
    return agreed(2, [&](Communicator& world) {
      at::set_num_threads(threads);
      DataParallelOptions options = sharing(shard);
      options.share_cores = false;  // the test sets the number of threads
      Tensors result = train(world, kCases[2], options);
      at::set_num_threads(1);
      return result;
    });
  };
  EXPECT_TRUE(same_bits(run(Shard::kNone, 1), run(GetParam(), 2)));
}

// The gradient is assigned anew, like in a program that processes gradients itself.
TEST_P(EveryShard, AGradientThatIsAnotherTensorNowIsAveragedAllTheSame) {
  const auto run = [&](Shard shard, bool asks_norm) {
    return agreed(3, [&](Communicator& world) {
      Wide model(at::kFloat);
      auto parallel = data_parallel(model, world, sharing(shard));
      optim::AdamW optimizer(parallel.parameters(), {.lr = 0.01});
      for (std::uint64_t step = 0; step < 3; ++step) {
        loss_of(parallel(input_of(step, world))).backward();
        for (auto& parameter : model.parameters()) {
          if (parameter.grad().defined()) parameter.mutable_grad() = parameter.grad() * 2;
        }
        if (asks_norm) optim::gradient_norm(parallel.parameters());
        optimizer.step();
        optimizer.zero_grad();
      }
      return values_of(model);
    });
  };
  EXPECT_TRUE(same_bits(run(Shard::kNone, false), run(GetParam(), false)));
  EXPECT_TRUE(same_bits(run(Shard::kNone, true), run(GetParam(), true)));
}

TEST_P(EveryShard, ARankWithoutSamplesSynchronizes) {
  const auto run = [&](Shard shard) {
    return agreed(3, [&](Communicator& world) {
      Wide model(at::kFloat);
      auto parallel = data_parallel(model, world, sharing(shard));
      optim::AdamW optimizer(parallel.parameters(), {.lr = 0.01});
      for (std::uint64_t step = 0; step < 3; ++step) {
        {
          const auto guard = parallel.no_sync();
          loss_of(parallel(input_of(10 + step, world))).backward();
        }
        if (world.rank() == 1) {
          parallel.synchronize();
        } else {
          loss_of(parallel(input_of(step, world))).backward();
        }
        optimizer.step();
        optimizer.zero_grad();
      }
      return values_of(model);
    });
  };
  EXPECT_TRUE(same_bits(run(Shard::kNone), run(GetParam())));
}

// A rank leaves between the two synchronisations of a step, or in the middle of a validation.
TEST_P(EveryShard, ARankThatLeavesIsNamedToThoseThatWaitInAStep) {
  std::latch both(2);  // the end does not reach a backward
  on_ranks(2, [&](Communicator& world) -> Tensors {
    Wide model(at::kFloat);
    auto parallel = data_parallel(model, world, sharing(GetParam()));
    optim::SGD optimizer(parallel.parameters(), {.lr = 0.1});
    optim::ExponentialMovingAverage average(parallel.parameters(), {.decay = 0.9});
    loss_of(parallel(input_of(0, world))).backward();
    both.arrive_and_wait();
    if (world.rank() == 1) {
      world.abort("no more samples");
      return {torch::zeros(1)};
    }
    EXPECT_THROW(optimizer.step(), Aborted);
    EXPECT_THROW((void)average.swap_in(), Aborted);
    return {torch::zeros(1)};
  });
}

TEST_P(EveryShard, AnExceptionWithinAValidationWaitsForNobody) {
  on_ranks(2, [&](Communicator& world) -> Tensors {
    Wide model(at::kFloat);
    auto parallel = data_parallel(model, world, sharing(GetParam()));
    optim::ExponentialMovingAverage average(parallel.parameters(), {.decay = 0.9});
    try {
      const auto swapped = average.swap_in();
      if (world.rank() == 1) throw std::runtime_error("a picture that cannot be read");
      world.barrier({.tag = "end of the validation"});
      ADD_FAILURE() << "rank 1 was not there";
    } catch (const std::exception& error) {
      if (world.rank() == 1) world.abort(error.what());
      EXPECT_THAT(error.what(), HasSubstr("a picture that cannot be read"));
    }
    return {torch::zeros(1)};
  });
}

TEST(Shard, OfSeveralKindsIsRefusedByOneOptimizer) {
  EXPECT_THAT(errors_on(2,
                        [](Communicator& world) {
                          Wide one(at::kFloat);
                          Wide other(at::kFloat);
                          auto shared = data_parallel(one, world, sharing(Shard::kGradients));
                          auto own = data_parallel(other, world);
                          std::vector<ParameterRange> all = shared.parameters();
                          for (const ParameterRange& range : own.parameters()) all.push_back(range);
                          optim::SGD optimizer(all, {.lr = 0.1});
                        }),
              Each(HasSubstr("make one optimizer for each wrapper")));
}

TEST_P(EveryShard, IsRefusedByVerify) {
  EXPECT_THAT(
      errors_on(2,
                [&](Communicator& world) {
                  Mlp model;
                  const auto loss = [&](const at::Tensor& x, const at::Tensor& y) {
                    return torch::mse_loss(model.forward(x), y);
                  };
                  verify(model, world, loss, numbers(1, {4, 4}), numbers(2, {4, 3}), {.parallel = sharing(GetParam())});
                }),
      Each(HasSubstr("cannot each train alone")));
}

TEST_P(EveryShard, WeightsAreOneMemoryAndBeginAsThoseOfRankZero) {
  on_ranks(3, [&](Communicator& world) -> Tensors {
    Wide model(at::kFloat);
    {
      torch::NoGradGuard no_grad;
      model.second->bias.fill_(world.rank());
    }
    auto parallel = data_parallel(model, world, sharing(GetParam()));
    EXPECT_EQ(model.second->bias[0].item<float>(), 0);
    world.barrier();
    if (world.rank() == 1) {
      torch::NoGradGuard no_grad;
      model.second->bias.fill_(7);
    }
    world.barrier();
    EXPECT_EQ(model.second->bias[0].item<float>(), 7);
    return {torch::zeros(1)};
  });
}

TEST_P(EveryShard, AStepOfAnotherOptimizerIsRefused) {
  const auto texts = errors_on(2, [&](Communicator& world) {
    Wide model(at::kFloat);
    auto parallel = data_parallel(model, world, sharing(GetParam()));
    torch::optim::SGD optimizer(model.parameters(), torch::optim::SGDOptions(0.1));
    for (std::uint64_t step = 0; step < 2; ++step) {
      loss_of(parallel(input_of(step, world))).backward();
      optimizer.step();
      optimizer.zero_grad();
    }
  });
  EXPECT_THAT(texts, Each(AllOf(HasSubstr("changed otherwise than by an optimizer of reigen::optim"),
                                HasSubstr("use reigen::optim"))));
}

// Over a network and on GPUs each rank has the mean of its share only, and `.grad` has no values. So LibTorch refuses
// to step with it, and to clip it. With Shard::kOptimizer every rank has all gradients, so any optimizer works.
TEST(Shard, AGradientWithoutValuesCannotBeUsedByMistake) {
  for (const Shard shard : {Shard::kGradients, Shard::kParameters}) {
    const auto on_rank = [shard](Communicator& world) -> Tensors {
      Wide model(at::kFloat);
      auto parallel = data_parallel(model, world, sharing(shard));
      torch::optim::SGD sgd(model.parameters(), torch::optim::SGDOptions(0.1));
      torch::optim::AdamW adam(model.parameters());
      loss_of(parallel(input_of(0, world))).backward();
      EXPECT_THROW(sgd.step(), c10::Error);
      EXPECT_THROW(adam.step(), c10::Error);
      EXPECT_THROW(torch::nn::utils::clip_grad_norm_(model.parameters(), 1.0), c10::Error);
      EXPECT_THROW(torch::nn::utils::clip_grad_value_(model.parameters(), 1.0), c10::Error);
      EXPECT_THROW(model.first->weight.mutable_grad().mul_(0.5), c10::Error);
      return {};
    };
    on_ranks(2, on_rank, on_gpu ? "auto" : "tcp");
  }
}

// Several ways to use gradients before or after a step. The trained model computes what it computes if ranks have whole
// gradients.
TEST(Shard, GradientsWithoutValuesAddUpAreClippedAndZeroed) {
  const auto train = [](Shard shard, int way) {
    const auto on_rank = [=](Communicator& world) -> Tensors {
      Wide model(at::kDouble);
      auto parallel = data_parallel(model, world, sharing(shard));
      optim::SGD optimizer(parallel.parameters(), {.lr = 1e-4, .weight_decay = 0.1});
      for (std::uint64_t step = 0; step < 3; ++step) {
        loss_of(parallel(input_of(step, world))).backward();
        if (way == 0) optim::clip_grad_value(parallel.parameters(), 1e-3);
        if (way == 0) loss_of(parallel(input_of(10 + step, world))).backward();  // added to the clipped mean
        if (way == 1 && step == 1) model.zero_grad(/*set_to_none=*/false);       // the step takes zeros
        if (way == 1 && step == 1) optim::gradient_norm(parallel.parameters());
        optimizer.step();
        model.zero_grad(/*set_to_none=*/way != 2);
      }
      return {parallel(share(numbers(99, {42, 64}), world)).detach()};
    };
    return on_ranks(2, on_rank, on_gpu ? "auto" : "tcp")[0];
  };
  for (const int way : {0, 1, 2}) {
    const Tensors own = train(Shard::kNone, way);
    EXPECT_LE(distance(train(Shard::kGradients, way), own), 1e-12) << way;
    EXPECT_LE(distance(train(Shard::kParameters, way), own), 1e-12) << way;
  }
}

TEST_P(EveryShard, AChangeOnEveryRankBehindAStepOfOursIsRefused) {
  const auto texts = errors_on(2, [&](Communicator& world) {
    Wide model(at::kFloat);
    auto parallel = data_parallel(model, world, sharing(GetParam()));
    optim::SGD optimizer(parallel.parameters(), {.lr = 0.1});
    for (std::uint64_t step = 0; step < 2; ++step) {
      loss_of(parallel(input_of(step, world))).backward();
      optimizer.step();
      optimizer.zero_grad();
      world.barrier();
      torch::NoGradGuard no_grad;
      model.second->bias.mul_(0.99);
      world.barrier();
    }
  });
  EXPECT_THAT(texts, Each(AllOf(HasSubstr("changed otherwise than by an optimizer of reigen::optim"),
                                HasSubstr("every rank tells with note_change() of the range, after a barrier"))));
}

TEST_P(EveryShard, ASkippedStepAValidationWithTheAverageAndAToldChangeAreNone) {
  on_ranks(2, [&](Communicator& world) -> Tensors {
    Wide model(at::kFloat);
    auto parallel = data_parallel(model, world, sharing(GetParam()));
    optim::SGD optimizer(parallel.parameters(), {.lr = 0.1});
    optim::ExponentialMovingAverage average(parallel.parameters(), {.decay = 0.9});
    for (std::uint64_t step = 0; step < 3; ++step) {
      loss_of(parallel(input_of(step, world))).backward();
      if (step != 1) optimizer.step();
      optimizer.zero_grad();
      if (step == 0) continue;  // a forward directly after a step
      auto swapped = average.swap_in();
      swapped.end();
    }
    // One rank changes a weight by hand, and all ranks report the change.
    if (world.rank() == 1) {
      torch::NoGradGuard no_grad;
      model.second->bias.fill_(7);
    }
    world.barrier();
    for (const ParameterRange& range : parallel.parameters()) range.note_change();
    world.barrier();
    loss_of(parallel(input_of(5, world))).backward();
    return {torch::zeros(1)};
  });
}

TEST_P(EveryShard, IsRefusedWithAStrategyThatActsOnWeights) {
  for (const StrategyFactory& strategy : {local_sgd(), adasum()}) {
    EXPECT_THAT(errors_on(2,
                          [&](Communicator& world) {
                            Wide model(at::kFloat);
                            data_parallel(model, world, {.strategy = strategy, .shard = GetParam()});
                          }),
                Each(AllOf(HasSubstr("is not possible here"), HasSubstr("got: strategy"))));
  }
}

TEST_P(EveryShard, IsRefusedForAJoin) {
  EXPECT_THAT(errors_on(2,
                        [&](Communicator& world) {
                          Wide model(at::kFloat);
                          auto parallel = data_parallel(model, world, sharing(GetParam()));
                          Join join(parallel);
                        }),
              Each(HasSubstr("ranks share the weights")));
}

TEST_P(EveryShard, ThatDiffersBetweenRanksIsNamed) {
  EXPECT_THAT(errors_on(2,
                        [&](Communicator& world) {
                          Wide model(at::kFloat);
                          data_parallel(model, world, {.shard = world.rank() == 0 ? Shard::kNone : GetParam()});
                        }),
              Each(HasSubstr("option shard: none")));
}

TEST(ShardGradients, AreRefusedWithAnyStrategy) {
  EXPECT_THAT(errors_on(2,
                        [](Communicator& world) {
                          Wide model(at::kFloat);
                          data_parallel(model, world, {.strategy = plain(), .shard = Shard::kGradients});
                        }),
              Each(AllOf(HasSubstr("shard gradients is not possible here"), HasSubstr("leave the strategy out"))));
}

// The loss is scaled, and in one step a gradient overflows on one rank.
TEST_P(EveryShard, AnOverflowIsSkippedOnAllRanksAsWithOwnWeights) {
  const auto run = [&](Shard shard) {
    return agreed(3, [&](Communicator& world) {
      Wide model(at::kFloat);
      auto parallel = data_parallel(model, world, sharing(shard));
      optim::AdamW optimizer(parallel.parameters(), {.lr = 0.01});
      optim::GradScaler scaler({.init_scale = 1024});
      for (std::uint64_t step = 0; step < 4; ++step) {
        at::Tensor loss = loss_of(parallel(input_of(step, world)));
        if (step == 2 && world.rank() == 1) loss = loss * 1e300 * 1e10;
        scaler.scale(loss).backward();
        EXPECT_EQ(scaler.step(optimizer, parallel.parameters(), {.max_norm = 0.2}), step != 2);
        optimizer.zero_grad();
      }
      return values_of(model);
    });
  };
  EXPECT_TRUE(same_bits(run(Shard::kNone), run(GetParam())));
}

TEST_P(EveryShard, OneRankAloneKeepsItsOwn) {
  Wide model(at::kFloat);
  auto parallel = data_parallel(model, Communicator(), sharing(GetParam()));
  EXPECT_FALSE(parallel.parameters().front().is_divided());
}

}  // namespace
}  // namespace reigen::parallel::shard_test
