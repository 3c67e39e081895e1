// Where a backward is: the units that it enters, and the units that it has finished.
#include "parallel/watch/unit_watch.h"

#include <gmock/gmock.h>

#include "harness/torch.h"
#include "parallel/divided_training.h"

namespace reigen::parallel::unit_watch_test {
namespace {

using namespace testing_divided;  // NOLINT: the vocabulary of these tests
using ::testing::ElementsAre;

struct Chain : torch::nn::Module {
  Chain() {
    for (const char* name : {"a", "b", "c"}) {
      list.emplace_back(name, register_module(name, std::make_shared<Layer>(4, 3, 4)));
    }
    fill(*this);
  }
  at::Tensor forward(const at::Tensor& x) { return nn::fold(list, x); }
  std::vector<nn::Unit> list;
};

class UnitWatchTest : public ::testing::Test {
 protected:
  UnitWatchTest() : watch_(std::make_shared<UnitWatch>(model_.list)) {
    watch_->attach([this](std::size_t unit) {
      std::string line = model_.list[unit].name() + ":";
      for (std::size_t i = 0; i < 3; ++i) {
        if (watch_->is_behind(i)) line += " " + model_.list[i].name();
        // In brackets: passed for now. The unit that is being entered counts too.
        if (watch_->has_passed(i) != watch_->is_behind(i)) line += " (" + model_.list[i].name() + ")";
      }
      lines_.push_back(line);
    });
  }
  at::Tensor forward(std::uint64_t seed) {
    watch_->begin_forward();
    return model_.forward(numbers(seed, {2, 4})).sum();
  }
  std::vector<std::string> backward(const at::Tensor& loss) {
    lines_.clear();
    loss.backward();
    watch_->end_backward();
    return lines_;
  }

  Chain model_;
  std::shared_ptr<UnitWatch> watch_;
  std::vector<std::string> lines_;
};

TEST_F(UnitWatchTest, ABackwardEntersUnitsFromTheLastAndHasThoseBeforeBehindIt) {
  const at::Tensor loss = forward(1);
  EXPECT_THAT(backward(loss), ElementsAre("c:", "b: c", "a: b c"));
}

// Like the stages of a pipeline: one backward for each forward, in the order of the forwards or in reverse.
TEST_F(UnitWatchTest, EachOfSeveralMicroBatchesInFlightKnowsWhatIsBehindItsBackward) {
  at::Tensor first = forward(1);
  at::Tensor second = forward(2);
  EXPECT_THAT(backward(first), ElementsAre("c:", "b: c", "a: b c"));
  at::Tensor third = forward(3);
  at::Tensor fourth = forward(4);
  EXPECT_THAT(backward(fourth), ElementsAre("c:", "b: c", "a: b c"));
  EXPECT_THAT(backward(second), ElementsAre("c:", "b: c", "a: b c"));
  EXPECT_THAT(backward(third), ElementsAre("c:", "b: c", "a: b c"));
}

// A unit is not finished while the backward still has to go through its other call.
TEST_F(UnitWatchTest, ABackwardThroughTwoMicroBatchesHasAUnitBehindItAfterBoth) {
  const at::Tensor first = forward(1);
  const at::Tensor second = forward(2);
  const at::Tensor other = forward(3);
  EXPECT_THAT(backward(first + second),
              ElementsAre("c:", "b: (c)", "a: (b) (c)", "c: (a) (b) (c)", "b: (a) (b) c", "a: (a) b c"));
  EXPECT_THAT(backward(other), ElementsAre("c:", "b: c", "a: b c"));
}

// A forward without gradients has no effect on the watch.
TEST_F(UnitWatchTest, AForwardWithoutGradientsIsNoMicroBatch) {
  const at::Tensor loss = forward(1);
  {
    const at::NoGradGuard no_grad;
    forward(2);
  }
  EXPECT_THAT(backward(loss), ElementsAre("c:", "b: c", "a: b c"));
}

TEST_F(UnitWatchTest, AUnitThatIsComputedAgainIsEnteredOnceBeforeThat) {
  const auto checkpoint = nn::activation_checkpoint(model_.list);
  const at::Tensor first = forward(1);
  const at::Tensor second = forward(2);
  EXPECT_THAT(backward(first), ElementsAre("c:", "b: c", "a: b c"));
  EXPECT_THAT(backward(second), ElementsAre("c:", "b: c", "a: b c"));
}

// The backward of a recomputed unit enters the units within it.
TEST(UnitWatchInside, PartsOfWhatIsComputedAgainAreEnteredAfterIt) {
  Chain model;
  std::vector<nn::Unit> units{nn::Unit("all", std::make_shared<torch::nn::Module>(),
                                       [&](const nn::Carry& input) { return nn::fold(model.list, input); })};
  const auto checkpoint = nn::activation_checkpoint(units);
  units.insert(units.end(), model.list.begin(), model.list.end());
  const auto watch = std::make_shared<UnitWatch>(units);
  std::vector<std::string> lines;
  watch->attach([&](std::size_t unit) {
    std::string line = units[unit].name() + ":";
    for (std::size_t i = 0; i < units.size(); ++i) {
      if (watch->is_behind(i)) line += " " + units[i].name();
    }
    lines.push_back(line);
  });
  for (std::uint64_t step = 0; step < 2; ++step) {
    watch->begin_forward();
    const at::Tensor loss = nn::call(units[0], nn::Carry{numbers(step, {2, 4})}).front().sum();
    lines.clear();
    loss.backward();
    watch->end_backward();
    EXPECT_THAT(lines, ElementsAre("all:", "c:", "b: c", "a: b c"));
  }
}

// Micro-batches are interleaved as in a pipeline schedule: forwards run ahead of backwards, gradients add up, and the
// last backward averages. Weights are gathered and released. The result must equal that of ranks that hold all weights.
TEST(MicroBatches, InFlightGiveTheGradientsOfOneAfterTheOther) {
  const auto train = [](Communicator& world, Shard shard, bool ahead, bool recomputes) {
    Net model(at::kDouble);
    std::optional<nn::ActivationCheckpoint> checkpoint;
    if (recomputes) checkpoint.emplace(nn::activation_checkpoint(model.units()));
    auto parallel = data_parallel(model, world, options_of({.shard = shard}, model, world));
    const auto optimizer = maker<optim::SGD>(optim::SGDOptions{.lr = 0.1})(parallel.parameters());
    for (std::uint64_t step = 0; step < 3; ++step) {
      std::vector<at::Tensor> losses;
      const auto forward = [&](std::uint64_t i) {
        losses.push_back(loss_of(parallel(input_of(step * 10 + i, world))));
      };
      {
        const NoSync only_adds_up = parallel.no_sync();
        forward(0);
        if (ahead) forward(1);
        losses[0].backward();
        if (!ahead) forward(1);
        if (ahead) forward(2);
        losses[1].backward();
      }
      if (!ahead) forward(2);
      losses[2].backward();
      optimizer->step();
      optimizer->zero_grad();
    }
    parallel.gather_weights();
    return values_of(model);
  };
  for (const bool recomputes : {false, true}) {
    const Tensors own =
        agreed_over("tcp", 2, [&](Communicator& world) { return train(world, Shard::kNone, false, recomputes); });
    for (const Shard shard : {Shard::kNone, Shard::kGradients, Shard::kParameters}) {
      const Tensors got =
          agreed_over("tcp", 2, [&](Communicator& world) { return train(world, shard, true, recomputes); });
      EXPECT_LT(distance(got, own), 1e-12) << to_text(shard) << (recomputes ? ", computed again" : "");
    }
  }
}

}  // namespace
}  // namespace reigen::parallel::unit_watch_test
