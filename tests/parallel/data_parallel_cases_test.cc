// The cases that make data parallelism hard: parameters that some or all ranks leave out, that are shared or frozen,
// several forwards or backwards, accumulation, exceptions, ranks without samples.
#include <gmock/gmock.h>

#include "harness/torch.h"
#include "parallel/oracle.h"
#include "parallel/recompute.h"

namespace reigen::parallel::data_parallel_cases_test {
namespace {

using namespace testing_oracle;  // NOLINT: the vocabulary of these tests

at::Tensor loss_of(const at::Tensor& output) { return output.square().mean(); }

const std::vector<DataParallelOptions> kOptions{
    {}, {.bucket_mb = 0}, {.overlap = false}, {.bucket_mb = 0, .overlap = false}};

// Eight branches of one parameter each. A forward uses the given branches, with a factor.
using Indices = std::vector<int>;

struct Branches : torch::nn::Module {
  Branches() {
    for (int i = 0; i < 8; ++i) {
      branches.push_back(register_parameter("branch" + std::to_string(i),
                                            torch::full({3}, 1.0, at::TensorOptions(at::kDouble).device(here))));
    }
  }
  at::Tensor forward(const std::vector<int>& used, double scale) {
    at::Tensor sum = torch::zeros({3}, at::TensorOptions(at::kDouble).device(here));
    for (const int i : used) sum = sum + branches[static_cast<std::size_t>(i)] * (scale * (i + 1));
    return sum;
  }
  double gradient(int i) const {
    const at::Tensor& one = branches[static_cast<std::size_t>(i)].grad();
    return one.defined() ? one[0].item<double>() : -1;
  }
  std::vector<at::Tensor> branches;
};

TEST(Unused, OnSomeRanksCountsAsZero) {
  for (const auto& options : kOptions) {
    agreed(3, [&](Communicator& world) {
      Branches model;
      auto parallel = data_parallel(model, world, options);
      // Rank r uses branch r and branch 5. No rank uses 3, 4, 6, 7.
      parallel(Indices{world.rank(), 5}, 3.0).sum().backward();
      for (const int i : {0, 1, 2}) EXPECT_DOUBLE_EQ(model.gradient(i), i + 1) << i;
      EXPECT_DOUBLE_EQ(model.gradient(5), 18);
      for (const int i : {3, 4, 6, 7}) EXPECT_EQ(model.gradient(i), -1) << "stays undefined";
      return gradients_of(model);
    });
  }
}

TEST(Unused, EverywhereIsLeftAloneByOurOptimizer) {
  agreed(2, [](Communicator& world) {
    Branches model;
    auto parallel = data_parallel(model, world);
    optim::AdamW optimizer(parallel.parameters(), {.lr = 0.1, .weight_decay = 0.5});
    for (int step = 0; step < 3; ++step) {
      parallel(Indices{world.rank()}, 1.0).sum().backward();
      optimizer.step();
      optimizer.zero_grad();
    }
    EXPECT_NE(model.branches[0][0].item<double>(), 1.0);
    EXPECT_NE(model.branches[1][0].item<double>(), 1.0);
    for (std::size_t i = 2; i < 8; ++i) EXPECT_EQ(model.branches[i][0].item<double>(), 1.0) << "no weight decay either";
    return values_of(model);
  });
}

TEST(Unused, OnesThatChangeEveryStepMatchTheWholeBatch) {
  for (const auto& options : kOptions) {
    Branches reference;
    torch::optim::AdamW reference_optimizer(reference.parameters(), torch::optim::AdamWOptions(0.05));
    const auto used = [](int step, int rank) {
      std::vector<int> result;
      for (int i = 0; i < 8; ++i) {
        if ((step * 7 + rank * 3 + i * i) % 4 == 0) result.push_back(i);
      }
      return result;
    };
    for (int step = 0; step < 12; ++step) {
      at::Tensor loss = torch::zeros({}, at::kDouble);
      for (int rank = 0; rank < 3; ++rank) loss = loss + reference.forward(used(step, rank), 1.0).square().sum() / 3;
      if (loss.requires_grad()) loss.backward();
      reference_optimizer.step();
      reference_optimizer.zero_grad();
    }
    const auto got = agreed(3, [&](Communicator& world) {
      Branches model;
      auto parallel = data_parallel(model, world, options);
      optim::AdamW optimizer(parallel.parameters(), {.lr = 0.05});
      for (int step = 0; step < 12; ++step) {
        const auto loss = parallel(used(step, world.rank()), 1.0).square().sum();
        if (loss.requires_grad()) {
          loss.backward();
        } else {
          parallel.synchronize();
        }
        optimizer.step();
        optimizer.zero_grad();
      }
      return values_of(model);
    });
    EXPECT_LE(distance(got, values_of(reference)), 1e-12);
  }
}

TEST(Unused, ARankWithoutSamplesSynchronizes) {
  const at::Tensor batch = numbers(1, {4, 4});
  Mlp reference;
  (reference.forward(batch).square().sum() / 4).backward();
  for (const auto& options : kOptions) {
    const auto got = agreed(3, [&](Communicator& world) {
      Mlp model;
      auto parallel = data_parallel(model, world, options);
      for (int step = 0; step < 3; ++step) {
        model.zero_grad();
        if (world.rank() == 2) {
          parallel.synchronize();
        } else {
          // Two of three ranks have samples, so each mean is multiplied by 3/2.
          const auto mine = batch.chunk(2)[static_cast<std::size_t>(world.rank())].to(here);
          (parallel(mine).square().sum() * 3 / 4).backward();
        }
      }
      return gradients_of(model);
    });
    EXPECT_LE(distance(got, gradients_of(reference)), 1e-14);
  }
}

struct TiedFrozen : torch::nn::Module {
  TiedFrozen() {
    weight = register_parameter("weight", torch::ones({4, 4}));
    register_parameter("same_weight", weight);
    frozen = register_parameter("frozen", torch::ones({4, 4}), /*requires_grad=*/false);
    bias = register_parameter("bias", torch::ones({4}));
    fill(*this);
    frozen.set_requires_grad(false);
  }
  at::Tensor forward(const at::Tensor& x) {
    return torch::tanh(torch::tanh(x.mm(weight) + bias).mm(frozen)).mm(weight) + bias;
  }
  at::Tensor weight, frozen, bias;
};

TEST(Cases, TiedFrozenAndTwiceUsedParameters) {
  const at::Tensor batch = numbers(1, {6, 4});
  TiedFrozen reference;
  loss_of(reference.forward(batch)).backward();
  for (const auto& options : kOptions) {
    const auto got = agreed(3, [&](Communicator& world) {
      TiedFrozen model;
      model.frozen.data().add_(world.rank());
      auto parallel = data_parallel(model, world, options);
      EXPECT_EQ(parallel.parameters()[0].size(), 2U);
      loss_of(parallel(share(batch, world))).backward();
      EXPECT_FALSE(model.frozen.grad().defined());
      return gradients_of(model);
    });
    EXPECT_LE(distance(got, gradients_of(reference)), 1e-14);
  }
}

TEST(Cases, AccumulationWithoutSynchronisationIsTheLargeBatch) {
  const at::Tensor batch = numbers(1, {18, 4});
  Mlp reference;
  loss_of(reference.forward(batch)).backward();
  for (const auto& options : kOptions) {
    const auto got = agreed(3, [&](Communicator& world) {
      Mlp model;
      auto parallel = data_parallel(model, world, options);
      for (int step = 0; step < 3; ++step) {
        model.zero_grad();
        const auto parts = share(batch, world).chunk(3);
        {
          auto guard = parallel.no_sync();
          (loss_of(parallel(parts[0])) / 3).backward();
          auto inner = parallel.no_sync();
          (loss_of(parallel(parts[1])) / 3).backward();
        }
        (loss_of(parallel(parts[2])) / 3).backward();
      }
      return gradients_of(model);
    });
    EXPECT_LE(distance(got, gradients_of(reference)), 1e-14);
  }
}

TEST(Cases, AParameterUsedOnlyWhileAccumulatingIsAveraged) {
  for (const auto& options : kOptions) {
    agreed(2, [&](Communicator& world) {
      Branches model;
      auto parallel = data_parallel(model, world, options);
      {
        auto guard = parallel.no_sync();
        parallel(Indices{world.rank()}, 2.0).sum().backward();
        EXPECT_EQ(model.gradient(1 - world.rank()), -1) << "nothing was sent";
      }
      parallel(Indices{5}, 1.0).sum().backward();
      EXPECT_DOUBLE_EQ(model.gradient(0), 1);
      EXPECT_DOUBLE_EQ(model.gradient(1), 2);
      EXPECT_DOUBLE_EQ(model.gradient(5), 6);
      return gradients_of(model);
    });
  }
}

TEST(Cases, SynchronisedBackwardsMayAccumulate) {
  const at::Tensor batch = numbers(1, {12, 4});
  Mlp reference;
  loss_of(reference.forward(batch)).backward();
  loss_of(reference.forward(batch * 2)).backward();
  for (const auto& options : kOptions) {
    const auto got = agreed(2, [&](Communicator& world) {
      Mlp model;
      auto parallel = data_parallel(model, world, options);
      loss_of(parallel(share(batch, world))).backward();
      loss_of(parallel(share(batch * 2, world))).backward();
      return gradients_of(model);
    });
    EXPECT_LE(distance(got, gradients_of(reference)), 1e-14);
  }
}

TEST(Cases, SeveralForwardsBeforeOneBackwardAndTheOtherWayRound) {
  const at::Tensor batch = numbers(1, {12, 4});
  Mlp reference;
  (loss_of(reference.forward(batch)) + loss_of(reference.forward(batch * 2))).backward();
  for (const auto& options : kOptions) {
    const auto one_backward = agreed(2, [&](Communicator& world) {
      Mlp model;
      auto parallel = data_parallel(model, world, options);
      const auto first = loss_of(parallel(share(batch, world)));
      (first + loss_of(parallel(share(batch * 2, world)))).backward();
      return gradients_of(model);
    });
    EXPECT_LE(distance(one_backward, gradients_of(reference)), 1e-14);
    const auto one_graph = agreed(2, [&](Communicator& world) {
      Mlp model;
      auto parallel = data_parallel(model, world, options);
      const auto first = loss_of(parallel(share(batch, world)));
      const auto second = loss_of(parallel(share(batch * 2, world)));
      first.backward({}, /*keep_graph=*/true);
      second.backward();
      return gradients_of(model);
    });
    EXPECT_LE(distance(one_graph, gradients_of(reference)), 1e-14);
  }
}

// Backward passes the gradient on, or throws an exception.
struct MayThrow : torch::autograd::Function<MayThrow> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, bool throws) {
    context->saved_data["throws"] = throws;
    return x.clone();
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               const torch::autograd::tensor_list& gradients) {
    if (context->saved_data["throws"].toBool()) throw std::runtime_error("planned");
    return {gradients[0], at::Tensor()};
  }
};

struct Throwing : Mlp {
  at::Tensor forward(const at::Tensor& x, int where) {
    if (where == 1) throw std::runtime_error("planned");
    const at::Tensor inner = MayThrow::apply(torch::tanh(first(x)), where == 2);
    return third(torch::tanh(second(inner)));
  }
};

TEST(Cases, TrainingGoesOnAfterAnExceptionOnAllRanks) {
  const at::Tensor batch = numbers(1, {12, 4});
  Mlp reference;
  loss_of(reference.forward(batch)).backward();
  for (const auto& options : kOptions) {
    for (const int where : {1, 2}) {
      const auto got = agreed(2, [&](Communicator& world) {
        Throwing model;
        auto parallel = data_parallel(model, world, options);
        for (int attempt = 0; attempt < 2; ++attempt) {
          EXPECT_THROW(loss_of(parallel(share(batch, world), where)).backward(), std::runtime_error);
          model.zero_grad();
          loss_of(parallel(share(batch, world), 0)).backward();
          if (attempt == 0) model.zero_grad();
        }
        // This also works without a forward through the wrapper in between.
        model.zero_grad();
        EXPECT_THROW(loss_of(model.forward(share(batch, world), 2)).backward(), std::runtime_error);
        model.zero_grad();
        loss_of(model.forward(share(batch, world), 0)).backward();
        return gradients_of(model);
      });
      EXPECT_LE(distance(got, gradients_of(reference)), 1e-14) << where;
    }
  }
}

TEST(Cases, AFailureOnOneRankOnlyIsNamedNotWaitedFor) {
  std::string text;
  const auto run = [&](Communicator& world) {
    at::set_num_threads(1);
    Throwing model;
    auto parallel = data_parallel(model, world, {.bucket_mb = 0});
    for (int step = 0; step < 3; ++step) {
      try {
        loss_of(parallel(numbers(1, {12, 4}), step == 1 && world.rank() == 1 ? 2 : 0)).backward();
      } catch (const std::runtime_error& error) {
        if (std::string(error.what()) != "planned") throw;
      }
      model.zero_grad();
    }
  };
  try {
    run_threads(2, run, {.timeout = std::chrono::seconds(60)});
  } catch (const CollectiveMismatch& error) {
    text = error.what();
  }
  EXPECT_THAT(text, ::testing::AllOf(::testing::HasSubstr("step 1 bucket"), ::testing::HasSubstr("step 2 bucket")));
}

TEST(Cases, BackwardWithAGraphWorks) {
  const at::Tensor batch = numbers(1, {12, 4});
  Mlp reference;
  for (int step = 0; step < 2; ++step) loss_of(reference.forward(batch)).backward();
  for (const auto& options : kOptions) {
    const auto got = agreed(2, [&](Communicator& world) {
      Mlp model;
      auto parallel = data_parallel(model, world, options);
      for (int step = 0; step < 2; ++step) {
        loss_of(parallel(share(batch, world))).backward({}, /*keep_graph=*/true, /*create_graph=*/true);
      }
      return gradients_of(model);
    });
    EXPECT_LE(distance(got, gradients_of(reference)), 1e-14);
  }
}

struct Checkpointed : Mlp {
  at::Tensor forward(const at::Tensor& x) {
    middle = [this](const at::Tensor& y) { return torch::tanh(second(y)); };
    return third(Recompute::apply(torch::tanh(first(x)), reinterpret_cast<std::int64_t>(&middle)));
  }
  std::function<at::Tensor(const at::Tensor&)> middle;
};

TEST(Cases, AnInnerBackwardDoesNotEndTheStep) {
  const at::Tensor batch = numbers(1, {12, 4});
  Mlp reference;
  loss_of(reference.forward(batch)).backward();
  for (const auto& options : kOptions) {
    const auto got = agreed(2, [&](Communicator& world) {
      Checkpointed model;
      auto parallel = data_parallel(model, world, options);
      for (int step = 0; step < 3; ++step) {
        model.zero_grad();
        loss_of(parallel(share(batch, world))).backward();
      }
      return gradients_of(model);
    });
    EXPECT_LE(distance(got, gradients_of(reference)), 1e-14);
  }
}

TEST(Cases, SparseGradientsAreMadeDense) {
  struct Lookup : torch::nn::Module {
    Lookup() {
      table = register_module("table", torch::nn::Embedding(torch::nn::EmbeddingOptions(6, 3).sparse(true)));
      fill(*this);
    }
    at::Tensor forward(const at::Tensor& x) { return table(x); }
    torch::nn::Embedding table{nullptr};
  };
  const auto got = agreed(2, [](Communicator& world) {
    Lookup model;
    auto parallel = data_parallel(model, world);
    parallel(torch::tensor({world.rank(), 4}).to(here)).sum().backward();
    return gradients_of(model);
  });
  const auto rows = torch::tensor({0.5, 0.5, 0.0, 0.0, 1.0, 0.0}, at::kDouble);
  EXPECT_TRUE(got[0].equal(rows.view({6, 1}).expand({6, 3})));
}

TEST(Cases, GradientsThatTheUserReplacesAreTaken) {
  agreed(2, [](Communicator& world) {
    Branches model;
    auto parallel = data_parallel(model, world);
    parallel(Indices{0}, 1.0).sum().backward();
    model.branches[0].mutable_grad() = model.branches[0].grad() * (world.rank() + 1.0);
    model.branches[1].mutable_grad() =
        torch::full({3}, 10.0 * world.rank(), at::TensorOptions(at::kDouble).device(here));
    parallel(Indices{0}, 1.0).sum().backward();
    EXPECT_DOUBLE_EQ(model.gradient(0), 1.5 + 1);
    EXPECT_DOUBLE_EQ(model.gradient(1), 5);
    return gradients_of(model);
  });
}

struct Normed : torch::nn::Module {
  Normed() {
    norm = register_module("norm", torch::nn::BatchNorm1d(3));
    linear = register_module("linear", torch::nn::Linear(3, 2));
    fill(*this, at::kFloat);
  }
  at::Tensor forward(const at::Tensor& x) { return linear(norm(x)); }
  torch::nn::BatchNorm1d norm{nullptr};
  torch::nn::Linear linear{nullptr};
};

TEST(Buffers, AreRankZerosAtEveryTrainingForward) {
  for (const auto policy : {parallel::BufferPolicy::kBroadcast, parallel::BufferPolicy::kOwn}) {
    const auto results = on_ranks(2, [&](Communicator& world) -> Tensors {
      Normed model;
      auto parallel = data_parallel(model, world, {.buffers = policy});
      const auto input = numbers(1, {5, 3}).to(at::kFloat) + world.rank();
      for (int step = 0; step < 3; ++step) parallel(input).square().sum().backward();
      const auto before = model.norm->running_mean.clone();
      model.eval();
      parallel(input);
      EXPECT_TRUE(model.norm->running_mean.equal(before)) << "evaluation sends nothing";
      model.train();
      parallel.prepare_forward();
      return {model.norm->running_mean.clone(), model.norm->num_batches_tracked.clone()};
    });
    EXPECT_EQ(same_bits(results[0], results[1]), policy == parallel::BufferPolicy::kBroadcast);
    EXPECT_EQ(results[1][1].item<std::int64_t>(), 3);
  }
}

TEST(Buffers, TwoForwardsBeforeABackwardWork) {
  agreed(2, [](Communicator& world) {
    Normed model;
    auto parallel = data_parallel(model, world);
    const auto input = numbers(1, {5, 3}).to(at::kFloat) + world.rank();
    const auto first = parallel(input).square().sum();
    (first + parallel(input * 2).square().sum()).backward();
    return gradients_of(model);
  });
}

// A validation through the wrapper does not broadcast buffers, so the next step must still do so.
TEST(Buffers, ARankWithoutSamplesTakesPartAfterAValidation) {
  agreed(2, [](Communicator& world) {
    Normed model;
    auto parallel = data_parallel(model, world);
    for (int step = 0; step < 3; ++step) {
      model.eval();
      {
        const at::NoGradGuard no_grad;
        parallel(numbers(1, {5, 3}).to(at::kFloat));
      }
      model.train();
      if (world.rank() == 1) {
        parallel.synchronize();
      } else {
        parallel(numbers(1, {5, 3}).to(at::kFloat)).square().sum().backward();
      }
    }
    parallel.prepare_forward();
    return gradients_of(model);
  });
}

TEST(Buffers, ARankWithoutSamplesTakesPart) {
  agreed(2, [](Communicator& world) {
    Normed model;
    auto parallel = data_parallel(model, world);
    for (int step = 0; step < 3; ++step) {
      if (world.rank() == 1) {
        parallel.synchronize();
      } else {
        parallel(numbers(1, {5, 3}).to(at::kFloat)).square().sum().backward();
      }
    }
    parallel.prepare_forward();
    Tensors result = gradients_of(model);
    result.push_back(model.norm->running_mean.clone());
    return result;
  });
}

TEST(Wrapping, AgainAfterTheFirstWrapperIsGone) {
  const at::Tensor batch = numbers(1, {12, 4});
  Mlp reference;
  loss_of(reference.forward(batch)).backward();
  const auto got = agreed(2, [&](Communicator& world) {
    Mlp model;
    { auto first = data_parallel(model, world); }
    loss_of(model.forward(share(batch, world))).backward();  // no gradient is sent, and no rank waits
    model.zero_grad();
    auto parallel = data_parallel(model, world);
    loss_of(parallel(share(batch, world))).backward();
    return gradients_of(model);
  });
  EXPECT_LE(distance(got, gradients_of(reference)), 1e-14);
}

struct CountingHook : torch::autograd::PostAccumulateGradHook {
  explicit CountingHook(int& count) : count_(count) {}
  void operator()(const torch::autograd::Variable&) override { ++count_; }
  int& count_;
};

TEST(Wrapping, AUsersHookIsCalledDuringAndAfter) {
  agreed(2, [](Communicator& world) {
    Branches model;
    int count = 0;
    torch::autograd::impl::set_post_acc_grad_hooks(model.branches[0], std::make_unique<CountingHook>(count));
    {
      auto parallel = data_parallel(model, world);
      parallel(Indices{0, 1}, world.rank() + 1.0).sum().backward();
      EXPECT_EQ(count, 1);
      EXPECT_DOUBLE_EQ(model.gradient(0), 1.5);
    }
    model.forward({0}, 1.0).sum().backward();
    EXPECT_EQ(count, 2);
    torch::autograd::impl::set_post_acc_grad_hooks(model.branches[0], nullptr);
    return values_of(model);
  });
}

TEST(Cases, RandomUseOnFourRanksNeverHangs) {
  for (const bool overlap : {true, false}) {
    agreed(4, [&](Communicator& world) {
      Branches model;
      auto parallel = data_parallel(model, world, {.bucket_mb = 0, .overlap = overlap});
      optim::SGD optimizer(parallel.parameters(), {.lr = 0.01, .momentum = 0.9});
      std::uint32_t state = 12345U + static_cast<std::uint32_t>(world.rank());
      for (int step = 0; step < 60; ++step) {
        std::vector<int> used;
        for (int i = 0; i < 8; ++i) {
          state = state * 1664525U + 1013904223U;
          if (state >> 31 != 0) used.push_back(i);
        }
        const auto loss = parallel(used, 0.5).square().sum();
        if (loss.requires_grad()) {
          loss.backward();
        } else {
          parallel.synchronize();
        }
        optimizer.step();
        if (step % 3 != 0) optimizer.zero_grad();
      }
      return values_of(model);
    });
  }
}

}  // namespace
}  // namespace reigen::parallel::data_parallel_cases_test
