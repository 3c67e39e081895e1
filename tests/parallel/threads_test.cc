// The number of threads with which LibTorch computes in a rank, and which setting decides it.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <functional>
#include <optional>
#include <string>

#include "base/machine/cores.h"
#include "comm/core_share_of.h"
#include "harness/torch.h"
#include "parallel/oracle.h"
#include "reigen/parallel/distributed_optimizer.h"
#include "reigen/tensor/compute_threads.h"

namespace reigen::parallel::threads_test {
namespace {

using namespace testing_oracle;  // NOLINT: the vocabulary of these tests

// Runs a test without the variables. At the end it restores them and LibTorch's number of threads.
class Threads : public ::testing::Test {
 protected:
  void SetUp() override {
    for (std::size_t i = 0; i < 2; ++i) {
      if (const char* value = ::getenv(kVariables[i])) before_[i] = value;
      ::unsetenv(kVariables[i]);
    }
  }
  void TearDown() override {
    for (std::size_t i = 0; i < 2; ++i) {
      ::unsetenv(kVariables[i]);
      if (before_[i]) ::setenv(kVariables[i], before_[i]->c_str(), 1);
    }
    share_cores(Communicator(), chosen());  // forgets a number that the test chose
    at::set_num_threads(threads_);
  }
  // A number of threads that nothing chooses by default.
  static int chosen() { return base::find_cores().online + 1; }
  static int all_processors() { return base::find_cores().online; }

  static constexpr const char* kVariables[] = {"OMP_NUM_THREADS", "MKL_NUM_THREADS"};
  std::optional<std::string> before_[2];
  int threads_ = at::get_num_threads();
};

void on_threads(int ranks, const std::function<void(Communicator&)>& body) {
  run_threads(ranks, body, {.timeout = std::chrono::seconds(60)});
}

// Like a program under torchrun, which sets 1.
TEST_F(Threads, ANumberOfTheProgramStaysAboveTheVariables) {
  ::setenv("OMP_NUM_THREADS", "1", 1);
  for (const int threads : {2, 3, all_processors(), chosen()}) {
    at::set_num_threads(threads);
    Mlp model;
    auto parallel = data_parallel(model, Communicator());
    EXPECT_EQ(at::get_num_threads(), threads);
  }
}

TEST_F(Threads, ANumberOfTheProgramStaysWithoutVariables) {
  on_threads(2, [](Communicator& world) {
    at::set_num_threads(chosen());
    Mlp model;
    auto parallel = data_parallel(model, world);
    EXPECT_EQ(at::get_num_threads(), chosen());
  });
}

TEST_F(Threads, WhatLibTorchTakesByItselfFallsToTheShare) {
  on_threads(2, [](Communicator& world) {
    at::set_num_threads(all_processors());
    world.barrier();
    const int share = comm::core_share_of(world).threads;
    EXPECT_LE(share, std::max(1, all_processors() / 2));
    Mlp model;
    DistributedOptimizer kept(torch::optim::SGD(model.parameters(), 0.1), model, world, {.share_cores = false});
    EXPECT_EQ(at::get_num_threads(), all_processors());
    world.barrier();
    Mlp other;
    DistributedOptimizer optimizer(torch::optim::SGD(other.parameters(), 0.1), other, world);
    EXPECT_EQ(at::get_num_threads(), share);
  });
}

TEST_F(Threads, TheCallersChoiceStays) {
  on_threads(2, [](Communicator& world) {
    share_cores(world, all_processors());
    EXPECT_EQ(at::get_num_threads(), all_processors());
    share_cores(world);
    EXPECT_EQ(at::get_num_threads(), all_processors());
  });
}

TEST_F(Threads, RanksAgreeOnTheLeast) {
  on_threads(3, [](Communicator& world) {
    at::set_num_threads(all_processors());
    world.barrier();
    if (world.rank() == 2) at::set_num_threads(1);
    share_cores(world);
    EXPECT_EQ(at::get_num_threads(), 1);
  });
}

TEST_F(Threads, APartOfTheRanksSharesWithAllOfThem) {
  on_threads(4, [](Communicator& world) {
    const auto half = world.split(world.rank() % 2);
    const auto alone = world.split(world.rank());
    for (const Communicator& group : {world, *half, *alone}) {
      EXPECT_EQ(comm::core_share_of(group).ranks, 4) << group.name();
      EXPECT_EQ(comm::core_share_of(group).threads, comm::core_share_of(world).threads) << group.name();
    }
  });
  EXPECT_EQ(comm::core_share_of(Communicator()).ranks, 1);
}

// The norm is summed by blocks that depend on the number of threads.
TEST_F(Threads, RanksThatClipStayEqual) {
  on_threads(2, [](Communicator& world) {
    at::set_num_threads(all_processors());
    world.barrier();
    torch::nn::Linear model(400, 400);
    auto parallel = data_parallel(model, world);
    torch::optim::SGD optimizer(model->parameters(), 0.1);
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      parallel.prepare_forward();
      const auto seed = static_cast<std::uint64_t>(10 * step + world.rank());
      model->forward(numbers(seed, {4, 400}).to(at::kFloat)).square().sum().backward();
      torch::nn::utils::clip_grad_norm_(model->parameters(), 0.5);
      optimizer.step();
    }
    parallel.prepare_forward();
    model->forward(numbers(1, {4, 400}).to(at::kFloat)).sum().backward();  // compares the last step's weights
  });
}

}  // namespace
}  // namespace reigen::parallel::threads_test
