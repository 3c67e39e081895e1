// Runs with a strategy: they learn, and a run that is resumed from a checkpoint equals one without a stop.
#include <atomic>
#include <chrono>
#include <thread>

#include "config/checks.h"
#include "reigen/parallel/strategies.h"
#include "train/small_run.h"

namespace reigen::train {
namespace {

// The strategies whose steps do not depend on the time at which messages arrive.
std::vector<parallel::AnyStrategy> settled_strategies() {
  using namespace parallel;
  return {Fp16Options{},
          Bf16Options{},
          PowerSgdOptions{.rank = 1, .start_step = 2},
          TopKOptions{.share = 0.3},
          OneBitOptions{.start_step = 1},
          AdasumOptions{},
          LocalSgdOptions{.every = 3},
          LocalSgdOptions{.every = 2, .start_step = 3},
          HierarchicalSgdOptions{.group_size = 2, .every = 1, .global_every = 2},
          DilocoOptions{.every = 3},
          GossipOptions{},
          GossipOptions{.topology = Topology::kExponential},
          AsyncGossipOptions{.staleness = 0},
          StaleSynchronousOptions{.staleness = 0}};
}

class StrategyRun : public TrainerTest {
 protected:
  Config with(const parallel::AnyStrategy& strategy, const std::string& directory) const {
    Config result = config(directory);
    result.parallel.strategy = strategy;
    return result;
  }
  // Makes three steps, and then three more from their checkpoint with `outer_lr`.
  void go_on(Config run, double outer_lr) {
    run.train.max_steps = 3;
    fit(2, run);
    run.train.max_steps = 6;
    run.run.resume = "true";
    run.parallel.strategy.set("outer_lr", std::to_string(outer_lr));
    fit(2, run);
  }
};

// On three ranks the mean of equal numbers may differ from these numbers. The last step before the stop is within an
// epoch or at its end.
TEST_F(StrategyRun, GoingOnIsBitwiseTheUninterruptedRun) {
  struct Way {
    int ranks;
    std::int64_t every, stop;
    std::string precision;
  };
  int number = 0;
  for (const parallel::AnyStrategy& strategy : settled_strategies()) {
    for (const Way& way : {Way{2, 2, 4, "fp64"}, Way{3, 3, 3, "fp32"}, Way{4, 3, 6, "fp32"}}) {
      if (strategy.name == "adasum" && way.ranks == 3) continue;  // adasum needs a power of 2
      const std::string name = strategy.name + std::to_string(++number);
      SCOPED_TRACE(name);
      Config whole = with(strategy, "whole_" + name);
      whole.checkpoint.every_steps = way.every;  // a checkpoint makes ranks that differ equal
      whole.train.precision = way.precision;
      whole.train.clip_norm = 0.5;
      whole.optim.ema_decay = 0.9;
      fit(way.ranks, whole);
      Config first = whole;
      first.run.dir = (root_ / ("parts_" + name)).string();
      first.train.max_steps = way.stop;
      fit(way.ranks, first);
      Config second = first;
      second.train.max_steps = 0;
      second.run.resume = "true";
      fit(way.ranks, second);
      EXPECT_THAT(output_, HasSubstr("going on after step " + std::to_string(way.stop)));
      EXPECT_EQ(losses("parts_" + name), losses("whole_" + name));
      EXPECT_EQ(model("parts_" + name), model("whole_" + name));
    }
  }
}

TEST_F(StrategyRun, AnotherOptionOfTheStrategyBeginsAnewAndSaysSo) {
  go_on(with(parallel::DilocoOptions{.every = 3, .outer_lr = 0.7}, "run"), 0.5);
  EXPECT_THAT(output_,
              HasSubstr("note: parallel.outer_lr is 0.5; it was 0.7, so what the strategy remembered is dropped"));
}

TEST_F(StrategyRun, AnOptionThatIsWrittenAsItWasWithoutKeepsWhatTheStrategyRemembers) {
  parallel::AnyStrategy diloco;
  diloco.name = "diloco";
  EXPECT_TRUE(diloco.set("every", "3"));
  go_on(with(diloco, "run"), 0.7);
  EXPECT_THAT(output_, AllOf(HasSubstr("going on after step 3"), Not(HasSubstr("remembered"))));
}

TEST_F(StrategyRun, WhichActOnWeightsIsKnownByName) {
  std::vector<std::string> found;
  for (const std::string& name : parallel::AnyStrategy::names()) {
    parallel::AnyStrategy strategy;
    strategy.name = name;
    const bool acts = config::acts_on_weights(strategy);
    EXPECT_EQ(acts, parallel::strategy_of(strategy).weights != nullptr) << name;
    if (acts) found.push_back(name);
  }
  EXPECT_THAT(found, ::testing::ElementsAre("adasum", "local_sgd", "hierarchical_sgd", "diloco", "gossip",
                                            "async_gossip", "stale_synchronous"));
}

TEST_F(StrategyRun, AStopBetweenCheckpointsSaysThatItBroughtRanksTogether) {
  const auto stop = [](int rank, SmallTask&, TrainerOptions& options) {
    if (rank == 1) options.stop_requested = [] { return true; };
  };
  fit(2, with(parallel::TopKOptions{}, "remembers"), stop);
  EXPECT_THAT(output_, HasSubstr("note: to be saved, ranks were brought together after step 1"));
  fit(2, with(parallel::PlainOptions{}, "plain"), stop);
  EXPECT_THAT(output_, Not(HasSubstr("brought together")));
}

// Rank 1 is slow. Only the strategy may limit how far rank 0 runs ahead, and no sum of losses may do so.
TEST_F(StrategyRun, NoSumOfLossesKeepsRanksTogether) {
  for (const parallel::AnyStrategy& strategy :
       {parallel::AnyStrategy(parallel::AsyncGossipOptions{.staleness = 4}),
        parallel::AnyStrategy(parallel::StaleSynchronousOptions{.staleness = 4})}) {
    std::atomic<std::int64_t> steps_of_last = 0;
    std::atomic<std::int64_t> furthest = 0;
    Config run = with(strategy, strategy.name);
    run.train.clip_norm = 1;
    const FitResult result = fit(2, run, [&](int rank, SmallTask& task, TrainerOptions&) {
      task.before_call = [&, rank](std::int64_t call) {
        if (rank == 1) {
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
          steps_of_last = call;
        } else {
          furthest = std::max(furthest.load(), call - steps_of_last.load());
        }
      };
    });
    EXPECT_EQ(result.steps, 9);
    EXPECT_EQ(read_steps(strategy.name), (std::vector<std::int64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9}));
    EXPECT_GE(furthest, 3) << strategy.name;
  }
}

TEST_F(StrategyRun, SharedWeightsGiveTheBitsOfOwnOnesAndGoOnFromTheirCheckpoints) {
  const auto bits = [&](const std::string& name, const char* file) {
    std::ifstream in(root_ / name / file, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  const auto run = [&](const std::string& name, const std::string& shard, std::int64_t steps = 0) {
    Config one = config(name);
    one.parallel.shard = shard;
    one.optim.ema_decay = 0.9;
    one.train.clip_norm = 0.5;
    one.checkpoint.every_steps = 2;
    one.train.max_steps = steps;
    if (fs::exists(root_ / name)) one.run.resume = "true";
    fit(3, one);
  };
  run("own", "none");
  run("shared", "optimizer");
  run("shared_gradients", "gradients");
  run("chosen", "auto");
  EXPECT_EQ(summary("own")["shard"], "none");
  EXPECT_EQ(summary("shared")["shard"], "optimizer");
  EXPECT_EQ(summary("chosen")["shard"], "gradients");
  const std::map<std::string, std::string> parts{
      {"none", "gradients"}, {"optimizer", "none"}, {"gradients", "optimizer"}};
  for (const auto& [first, second] : parts) {
    const std::string name = "parts_" + first;
    run(name, first, 4);
    run(name, second);
    EXPECT_THAT(output_, HasSubstr("going on after step 4"));
  }
  for (const char* name :
       {"shared", "shared_gradients", "chosen", "parts_none", "parts_optimizer", "parts_gradients"}) {
    EXPECT_EQ(losses(name), losses("own")) << name;
    for (const char* file : {"model.safetensors", "model_ema.safetensors"}) {
      EXPECT_FALSE(bits(name, file).empty());
      EXPECT_EQ(bits(name, file), bits("own", file)) << name << ' ' << file;
    }
  }
}

TEST_F(StrategyRun, LearnsOnTwoAndOnFourRanks) {
  Config plain = config("plain");
  // All batches are whole, because adasum does not divide by the ranks' numbers of samples.
  const auto longer = [](Config& config) {
    config.train.epochs = 20;
    config.train.global_batch = 64;
    config.data.limit = 192;
  };
  longer(plain);
  fit(2, plain);
  const double expected = summary("plain")["test_accuracy"];
  auto all = settled_strategies();
  all.push_back(parallel::AsyncGossipOptions{});
  all.push_back(parallel::StaleSynchronousOptions{});
  int number = 0;
  for (const parallel::AnyStrategy& strategy : all) {
    for (const int ranks : {2, 4}) {
      const std::string name = strategy.name + std::to_string(++number);
      Config one = with(strategy, name);
      longer(one);
      fit(ranks, one);
      EXPECT_GT(summary(name)["test_accuracy"], expected - 0.1) << name << " on " << ranks << " ranks";
      EXPECT_EQ(summary(name)["strategy"], strategy.name);
      EXPECT_GT(summary(name)["bytes_given"], 0);
    }
  }
}

TEST_F(StrategyRun, AnotherStrategyMayGoOn) {
  Config first = with(parallel::TopKOptions{}, "run");
  first.train.max_steps = 4;
  fit(2, first);
  Config second = with(parallel::DilocoOptions{.every = 2}, "run");
  second.run.resume = "true";
  EXPECT_EQ(fit(2, second).steps, 9);
}

// If the gradient of one rank is infinite, all ranks end, although no other rank has seen this gradient.
TEST_F(StrategyRun, AGradientThatIsNoNumberStopsAllRanks) {
  Config local = with(parallel::LocalSgdOptions{.every = 100}, "run");
  local.train.clip_norm = 1;
  const auto poison = [](int rank, SmallTask& task, TrainerOptions&) {
    if (rank == 1) task.poison_gradient_call = 3;
  };
  EXPECT_EQ(failure(3, local, poison), ExitCode::kNotANumber);
  EXPECT_THAT(failure_text_, AllOf(HasSubstr("gradient norm of step 3"), HasSubstr("; rank 1: gradient of fc2.bias")));
}

}  // namespace
}  // namespace reigen::train
