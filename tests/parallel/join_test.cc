// Ranks with different numbers of batches: every sample counts, no rank waits for ever, and all end with the same
// model.
#include <gmock/gmock.h>

#include <numeric>

#include "harness/torch.h"
#include "parallel/oracle.h"
#include "reigen/nn/sync_batch_norm.h"
#include "reigen/parallel/distributed_optimizer.h"
#include "reigen/parallel/join.h"
#include "reigen/parallel/strategies.h"

namespace reigen::parallel::join_test {
namespace {

using namespace testing_oracle;  // NOLINT: the vocabulary of these tests
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

using Counts = std::vector<int>;  // batches of each rank

at::Tensor loss_of(const at::Tensor& output) { return output.square().mean(); }

at::Tensor batch_of(int rank, int step) { return numbers(static_cast<std::uint64_t>(100 * rank + step), {6, 4}); }

int count_of(const Counts& counts, const Communicator& world) { return counts[static_cast<std::size_t>(world.rank())]; }

// Trains in one process. Every step uses the sum of the gradients of the existing batches, divided as `divide_by` says.
template <class Optimizer, class Options>
Tensors alone(const Counts& counts, DivideBy divide_by, const Options& options) {
  Mlp model;
  Optimizer optimizer(model.parameters(), options);
  for (int step = 0; step < *std::max_element(counts.begin(), counts.end()); ++step) {
    optimizer.zero_grad();
    const auto training = std::count_if(counts.begin(), counts.end(), [&](int count) { return step < count; });
    const double ranks =
        divide_by == DivideBy::kAllRanks ? static_cast<double>(counts.size()) : static_cast<double>(training);
    for (int rank = 0; rank < static_cast<int>(counts.size()); ++rank) {
      if (step < counts[static_cast<std::size_t>(rank)]) {
        (loss_of(model.forward(batch_of(rank, step))) / ranks).backward();
      }
    }
    optimizer.step();
  }
  return values_of(model);
}

class Uneven : public ::testing::TestWithParam<std::tuple<Counts, DivideBy, double, bool>> {
 protected:
  Counts counts() const { return std::get<0>(GetParam()); }
  DivideBy divide_by() const { return std::get<1>(GetParam()); }
  DataParallelOptions options() const {
    return {.bucket_mb = std::get<2>(GetParam()), .overlap = std::get<3>(GetParam())};
  }
};

INSTANTIATE_TEST_SUITE_P(Join, Uneven,
                         ::testing::Combine(::testing::Values(Counts{4, 4}, Counts{2, 5}, Counts{5, 0}, Counts{3, 1, 2},
                                                              Counts{0, 0, 4}, Counts{1, 4, 0, 2}, Counts{0, 0}),
                                            ::testing::Values(DivideBy::kAllRanks, DivideBy::kTrainingRanks),
                                            ::testing::Values(0.0, 25.0), ::testing::Bool()));

TEST_P(Uneven, GivesTheWeightsAndTheStateOfOneProcess) {
  const Tensors got = agreed(static_cast<int>(counts().size()), [&](Communicator& world) {
    Mlp model;
    auto parallel = data_parallel(model, world, options());
    optim::AdamW optimizer(parallel.parameters(), {.lr = 0.01});
    Join join(parallel, {.divide_by = divide_by()});
    for (int step = 0; step < count_of(counts(), world); ++step) {
      optimizer.zero_grad();
      loss_of(parallel(batch_of(world.rank(), step))).backward();
      optimizer.step();
    }
    join.finish([&] { optimizer.step(); });
    Tensors result = values_of(model);
    // The optimizer's state decides the next steps, so they check it.
    for (int step = 50; step < 53; ++step) {
      optimizer.zero_grad();
      loss_of(parallel(batch_of(world.rank(), step))).backward();
      optimizer.step();
    }
    const Tensors later = values_of(model);
    EXPECT_GT(distance(result, later), 0);
    result.insert(result.end(), later.begin(), later.end());
    return result;
  });
  const Tensors at_end(got.begin(), got.begin() + static_cast<std::ptrdiff_t>(got.size() / 2));
  EXPECT_LE(distance(at_end, alone<torch::optim::AdamW>(counts(), divide_by(), torch::optim::AdamWOptions(0.01))),
            1e-9);
}

TEST_P(Uneven, WithoutTheStepWeightsComeAtTheEnd) {
  const Tensors got = agreed(static_cast<int>(counts().size()), [&](Communicator& world) {
    Mlp model;
    auto parallel = data_parallel(model, world, options());
    torch::optim::SGD optimizer(model.parameters(), torch::optim::SGDOptions(0.1));
    Join join(parallel, {.divide_by = divide_by()});
    for (int step = 0; step < count_of(counts(), world); ++step) {
      loss_of(parallel(batch_of(world.rank(), step))).backward();
      optimizer.step();
      optimizer.zero_grad(false);
    }
    join.finish();
    return values_of(model);
  });
  EXPECT_LE(distance(got, alone<torch::optim::SGD>(counts(), divide_by(), torch::optim::SGDOptions(0.1))), 1e-12);
}

struct Normed : torch::nn::Module {
  Normed() {
    norm = register_module("norm", torch::nn::BatchNorm1d(4));
    last = register_module("last", torch::nn::Linear(4, 3));
    to(at::kDouble);
    fill(*this);
  }
  at::Tensor forward(const at::Tensor& x) { return last(norm(x)); }
  torch::nn::BatchNorm1d norm{nullptr};
  torch::nn::Linear last{nullptr};
};

Tensors buffers_after(const Counts& counts, BufferPolicy policy) {
  return agreed(static_cast<int>(counts.size()), [&](Communicator& world) {
    Normed model;
    auto parallel = data_parallel(model, world, {.buffers = policy});
    optim::SGD optimizer(parallel.parameters(), {.lr = 0.1});
    Join join(parallel);
    for (int step = 0; step < count_of(counts, world); ++step) {
      optimizer.zero_grad();
      loss_of(parallel(batch_of(world.rank(), step))).backward();
      optimizer.step();
    }
    join.finish([&] { optimizer.step(); });
    Tensors result = buffers_of(model);
    for (const at::Tensor& value : values_of(model)) result.push_back(value);
    return result;
  });
}

// The statistics of the inputs, which do not depend on the weights.
at::Tensor updated(const at::Tensor& mean, int rank, int step) {
  return 0.9 * mean + 0.1 * batch_of(rank, step).mean(0);
}

TEST(JoinBuffers, AreThoseOfTheFirstRankThatTrains) {
  const Tensors got = buffers_after({1, 3, 2}, BufferPolicy::kBroadcast);
  const at::Tensor mean = updated(updated(updated(torch::zeros({4}, at::kDouble), 0, 0), 1, 1), 1, 2);
  // Rank 0's first batch is not included, because all ranks take rank 1's buffers when the second forward begins.
  const at::Tensor of_rank_1 = updated(updated(updated(torch::zeros({4}, at::kDouble), 1, 0), 1, 1), 1, 2);
  EXPECT_LE((got[0] - of_rank_1).abs().max().item<double>(), 1e-14);
  EXPECT_GT((got[0] - mean).abs().max().item<double>(), 1e-4);
  EXPECT_EQ(got[2].item<std::int64_t>(), 3);
}

TEST(JoinBuffers, AreAveragedOverTheRanksThatMadeTheForward) {
  const Tensors got = buffers_after({1, 3, 2}, BufferPolicy::kAverage);
  at::Tensor mean = torch::zeros({4}, at::kDouble);
  mean = (updated(mean, 0, 0) + updated(mean, 1, 0) + updated(mean, 2, 0)) / 3;
  mean = (updated(mean, 1, 1) + updated(mean, 2, 1)) / 2;
  mean = updated(mean, 1, 2);
  EXPECT_LE((got[0] - mean).abs().max().item<double>(), 1e-14);
  EXPECT_EQ(got[2].item<std::int64_t>(), 3);
}

TEST(JoinBuffers, SeveralForwardsBeforeABackward) {
  const Counts counts{1, 3};
  agreed(2, [&](Communicator& world) {
    Normed model;
    auto parallel = data_parallel(model, world);
    optim::SGD optimizer(parallel.parameters(), {.lr = 0.1});
    Join join(parallel);
    for (int step = 0; step < count_of(counts, world); ++step) {
      optimizer.zero_grad();
      const at::Tensor one = loss_of(parallel(batch_of(world.rank(), step)));
      const at::Tensor other = loss_of(parallel(batch_of(world.rank(), step + 10)));
      (one + other).backward();
      optimizer.step();
    }
    join.finish([&] { optimizer.step(); });
    EXPECT_EQ(buffers_of(model)[2].item<std::int64_t>(), 6);
    return values_of(model);
  });
}

TEST(Join, AccumulationIsNotAnnounced) {
  for (const bool by_option : {false, true}) {
    agreed(3, [&](Communicator& world) {
      Mlp model;
      auto parallel = data_parallel(model, world, {.backwards_per_reduction = by_option ? 2 : 1});
      optim::SGD optimizer(parallel.parameters(), {.lr = 0.1});
      Join join(parallel);
      for (int step = 0; step < 1 + world.rank(); ++step) {
        optimizer.zero_grad();
        if (by_option) {
          loss_of(parallel(batch_of(world.rank(), step))).backward();
        } else {
          const auto guard = parallel.no_sync();
          loss_of(parallel(batch_of(world.rank(), step))).backward();
        }
        loss_of(parallel(batch_of(world.rank(), step + 10))).backward();
        optimizer.step();
      }
      join.finish([&] { optimizer.step(); });
      return values_of(model);
    });
  }
}

// Gradients that a rank has only added up are dropped, or count if the rank calls synchronize().
TEST(Join, SynchronizeTakesWhatWasAddedUp) {
  for (const bool keeps : {false, true}) {
    const Tensors got = agreed(2, [&](Communicator& world) {
      Mlp model;
      auto parallel = data_parallel(model, world);
      optim::SGD optimizer(parallel.parameters(), {.lr = 0.1});
      Join join(parallel);
      if (world.rank() == 0) {
        {
          const auto guard = parallel.no_sync();
          loss_of(parallel(batch_of(0, 0))).backward();
        }
        if (keeps) {
          parallel.synchronize();
          optimizer.step();
        }
      } else {
        loss_of(parallel(batch_of(1, 0))).backward();
        optimizer.step();
      }
      join.finish([&] { optimizer.step(); });
      return values_of(model);
    });
    const Counts counts = keeps ? Counts{1, 1} : Counts{0, 1};
    EXPECT_LE(distance(got, alone<torch::optim::SGD>(counts, DivideBy::kAllRanks, torch::optim::SGDOptions(0.1))),
              1e-12)
        << keeps;
  }
}

TEST(Join, WorksWithEveryStrategyOfGradients) {
  for (const StrategyFactory& strategy : {plain(), compressed(at::kBFloat16), power_sgd({}), top_k({}), one_bit({}),
                                          adasum({.of = AdasumOf::kGradients})}) {
    agreed(4, [&](Communicator& world) {
      Mlp model(at::kFloat);
      auto parallel = data_parallel(model, world, {.strategy = strategy});
      optim::AdamW optimizer(parallel.parameters(), {.lr = 0.01});
      for (int epoch = 0; epoch < 2; ++epoch) {
        Join join(parallel);
        for (int step = 0; step < 2 + 2 * world.rank(); ++step) {
          optimizer.zero_grad();
          loss_of(parallel(batch_of(world.rank(), step).to(at::kFloat))).backward();
          optimizer.step();
        }
        join.finish([&] { optimizer.step(); });
      }
      return values_of(model);
    });
  }
}

// The loop clears gradients after the step, over two epochs. Gradients that ended ranks received must not remain.
TEST(Join, NoGradientIsLeftForTheNextEpoch) {
  const Tensors got = agreed(2, [&](Communicator& world) {
    Mlp model;
    auto parallel = data_parallel(model, world);
    optim::SGD optimizer(parallel.parameters(), {.lr = 0.1, .momentum = 0.9});
    for (int epoch = 0; epoch < 2; ++epoch) {
      Join join(parallel);
      for (int step = 0; step < 1 + 2 * world.rank(); ++step) {
        loss_of(parallel(batch_of(world.rank(), step))).backward();
        optimizer.step();
        optimizer.zero_grad();
      }
      join.finish([&] { optimizer.step(); });
      for (const at::Tensor& gradient : gradients_of(model)) EXPECT_FALSE(gradient.defined());
    }
    return values_of(model);
  });
  Mlp model;
  torch::optim::SGD optimizer(model.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  for (int step = 0; step < 6; ++step) {
    optimizer.zero_grad();
    if (step % 3 == 0) (loss_of(model.forward(batch_of(0, 0))) / 2).backward();
    (loss_of(model.forward(batch_of(1, step % 3))) / 2).backward();
    optimizer.step();
  }
  EXPECT_LE(distance(got, values_of(model)), 1e-12);
}

TEST(Join, AnOptimizerOfHorovodsKindGoesOnWithoutTheStep) {
  agreed(2, [&](Communicator& world) {
    Mlp model;
    DistributedOptimizer optimizer(torch::optim::SGD(model.parameters(), torch::optim::SGDOptions(0.1)), model, world);
    for (int epoch = 0; epoch < 2; ++epoch) {
      Join join(optimizer.parallel());
      for (int step = 0; step < 1 + world.rank(); ++step) {
        optimizer.zero_grad();
        loss_of(model.forward(batch_of(world.rank(), step))).backward();
        optimizer.step();
      }
      join.finish();
    }
    return values_of(model);
  });
}

TEST(Join, WorksAroundAnOptimizerOfHorovodsKind) {
  const Counts counts{3, 1, 2};
  const Tensors got = agreed(3, [&](Communicator& world) {
    Mlp model;
    DistributedOptimizer optimizer(torch::optim::SGD(model.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9)),
                                   model, world);
    Join join(optimizer.parallel());
    for (int step = 0; step < count_of(counts, world); ++step) {
      optimizer.zero_grad();
      loss_of(model.forward(batch_of(world.rank(), step))).backward();
      optimizer.step();
    }
    join.finish([&] { optimizer.step(); });
    return values_of(model);
  });
  EXPECT_LE(
      distance(got, alone<torch::optim::SGD>(counts, DivideBy::kAllRanks, torch::optim::SGDOptions(0.1).momentum(0.9))),
      1e-12);
}

std::vector<std::string> early_ends(const DataParallelOptions& options, bool normed) {
  std::vector<std::string> texts(3, "no error");
  on_ranks(3, [&](Communicator& world) -> Tensors {
    Mlp mlp;
    Normed with_norm;
    torch::nn::Module& module = normed ? static_cast<torch::nn::Module&>(with_norm) : mlp;
    DataParallelBase parallel(module, world, options);
    try {
      Join join(parallel, {.throw_on_early_end = true});
      for (int step = 0; step < (world.rank() == 1 ? 2 : 4); ++step) {
        parallel.prepare_forward();
        const at::Tensor input = batch_of(world.rank(), step);
        loss_of(normed ? with_norm.forward(input) : mlp.forward(input)).backward();
      }
      join.finish();
    } catch (const EarlyEnd& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::kStopped);
      texts[static_cast<std::size_t>(world.rank())] = error.what();
    }
    // All ranks can go on together.
    module.zero_grad();
    parallel.prepare_forward();
    const at::Tensor input = batch_of(world.rank(), 9);
    loss_of(normed ? with_norm.forward(input) : mlp.forward(input)).backward();
    return gradients_of(module);
  });
  return texts;
}

TEST(Join, EndsForAllWhereThatIsAskedFor) {
  for (const bool normed : {false, true}) {
    for (const bool overlap : {false, true}) {
      EXPECT_THAT(early_ends({.overlap = overlap}, normed),
                  Each(AllOf(HasSubstr("rank 1 of 3 has no more data"), HasSubstr("2 that train"))))
          << normed << overlap;
    }
  }
}

TEST(Join, RefusesWhatItCannotKeep) {
  EXPECT_THAT(errors_on(2,
                        [](Communicator& world) {
                          Mlp model;
                          auto parallel = data_parallel(model, world, {.strategy = local_sgd({.every = 2})});
                          Join join(parallel);
                        }),
              Each(AllOf(HasSubstr("local_sgd"), HasSubstr("acts on weights"))));
  EXPECT_THAT(errors_on(2,
                        [](Communicator& world) {
                          Mlp model;
                          auto parallel = data_parallel(model, world, {.strategy = adasum()});
                          Join join(parallel);
                        }),
              Each(AllOf(HasSubstr("adasum of steps"), HasSubstr("acts on weights"))));
  const StrategyFactory sums = adasum({.of = AdasumOf::kGradients});
  EXPECT_THAT(errors_on(2,
                        [&](Communicator& world) {
                          Mlp model;
                          auto parallel = data_parallel(model, world, {.strategy = sums});
                          Join join(parallel, {.divide_by = DivideBy::kTrainingRanks});
                        }),
              Each(AllOf(HasSubstr("adasum"), HasSubstr("kTrainingRanks"))));
  EXPECT_THAT(errors_on(2,
                        [&](Communicator& world) {
                          Mlp model;
                          DistributedOptimizer optimizer(torch::optim::SGD(model.parameters(), 0.1), model, world,
                                                         {.strategy = sums, .gradient_predivide_factor = 2});
                          Join join(optimizer.parallel(), {.divide_by = DivideBy::kTrainingRanks});
                        }),
              Each(AllOf(HasSubstr("adasum"), HasSubstr("kTrainingRanks"))));
  EXPECT_THAT(errors_on(2,
                        [](Communicator& world) {
                          torch::nn::Sequential model(torch::nn::Linear(4, 4),
                                                      nn::SyncBatchNorm(4, world.split(0).value()));
                          auto parallel = data_parallel(model, world);
                          Join join(parallel);
                        }),
              Each(HasSubstr("the model has a SyncBatchNorm")));
  EXPECT_THAT(errors_on(2,
                        [](Communicator& world) {
                          Mlp model;
                          auto parallel = data_parallel(model, world);
                          Join join(parallel);
                          Join other(parallel);
                        }),
              Each(HasSubstr("another Join of this wrapper lives")));
  EXPECT_THAT(errors_on(2,
                        [](Communicator& world) {
                          Mlp model;
                          auto parallel = data_parallel(model, world);
                          Join join(parallel);
                          join.finish();
                          join.finish();
                        }),
              Each(HasSubstr("finish() was called twice")));
}

TEST(Join, RanksThatTrainMustDoTheSame) {
  std::vector<std::string> texts(3, "no error");
  on_ranks(3, [&](Communicator& world) -> Tensors {
    Normed model;
    auto parallel = data_parallel(model, world);
    try {
      Join join(parallel);
      if (world.rank() > 0) {
        const at::Tensor loss = loss_of(parallel(batch_of(world.rank(), 0)));
        if (world.rank() == 1) parallel.prepare_forward();
        loss.backward();
      }
      join.finish();
    } catch (const CollectiveMismatch& error) {
      texts[static_cast<std::size_t>(world.rank())] = error.what();
    }
    return {torch::zeros(1)};
  });
  EXPECT_THAT(texts, Each(AllOf(HasSubstr("rank 1 begins a forward"), HasSubstr("rank 2 averages gradients"))));
}

}  // namespace
}  // namespace reigen::parallel::join_test
