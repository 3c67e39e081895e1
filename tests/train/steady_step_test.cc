// A step of a recipe's model on a GPU, after the first ones: the host waits for nothing, the drivers allocate nothing,
// and few kernels of Reigen run. LibTorch's device and CUDA are the stand-ins of tests/fakes/.
#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "base/no_waiting.h"
#include "fakes/cuda/stand_in.h"
#include "reigen/train/decoder_task.h"
#include "reigen/train/mlp_task.h"
#include "reigen/train/program.h"
#include "reigen/train/resnet18_task.h"
#include "train/small_run.h"

namespace reigen::train {
namespace {

namespace stand_in = testing::stand_in;

constexpr std::int64_t kWarmUp = 5;  // steps
constexpr std::int64_t kSteps = 4;   // of a window
constexpr std::size_t kWindows = 2;
constexpr std::int64_t kBackwards = 2;  // of a step
// A step reads what ranks have added up of an earlier step. It waits for this call if another rank's host is so far
// behind.
constexpr std::int64_t kLateCalls = 1;

// In one window.
struct Calls {
  std::int64_t waits = 0;
  std::int64_t waits_for_ranks = 0;  // of the host, in calls between ranks
  std::int64_t allocations = 0;
  std::int64_t pinned = 0;
  std::int64_t sums = 0;
  std::int64_t updates = 0;
  std::int64_t norms = 0;
  std::int64_t layers = 0;
};
Calls calls_of(int device) {
  const stand_in::Counts& counts = stand_in::counts(device);
  return {.waits = counts.waits,
          .waits_for_ranks = base::waits_of_this_thread(),
          .allocations = counts.allocations,
          .pinned = counts.pinned,
          .sums = counts.sums,
          .updates = counts.updates,
          .norms = counts.norms,
          .layers = counts.layers};
}

// The task of a recipe with few test samples, which notes the calls at the first loss of each window.
class CountedTask final : public Task, public DataModule {
 public:
  CountedTask(Training recipe, std::int64_t losses_a_step)
      : recipe_(std::move(recipe)), losses_a_step_(losses_a_step) {}

  torch::nn::Module& module() override { return recipe_.task->module(); }
  std::vector<nn::Unit> units() override { return recipe_.task->units(); }
  void initialize(std::uint64_t seed) override { recipe_.task->initialize(seed); }
  data::DatasetPtr training() override { return recipe_.data->training(); }
  data::DatasetPtr validation() override {
    if (!validation_) {
      const data::Samples few = recipe_.data->validation()->gather(std::vector<std::int64_t>{0, 1});
      validation_ = data::in_memory(few.input, few.target, "few");
    }
    return validation_;
  }
  at::Tensor training_step(const data::Samples& batch) override {
    bool is_due = false;
    if (losses_ % (kSteps * losses_a_step_) == kWarmUp * losses_a_step_ % (kSteps * losses_a_step_) &&
        losses_ >= kWarmUp * losses_a_step_) {
      noted_.push_back(calls_of(batch.input.device().index()));
      is_due = true;
    }
    ++losses_;
    const at::Tensor loss = recipe_.task->training_step(batch);
    if (is_due) {
      // Backward may run on another thread than forward.
      loss.register_hook([this](const at::Tensor&) { in_backward_.push_back(base::waits_of_this_thread()); });
    }
    return loss;
  }

  std::vector<Calls> windows() const {
    std::vector<Calls> windows;
    for (std::size_t i = 1; i < noted_.size(); ++i) {
      windows.push_back({.waits = noted_[i].waits - noted_[i - 1].waits,
                         .waits_for_ranks = noted_[i].waits_for_ranks - noted_[i - 1].waits_for_ranks +
                                            in_backward_[i] - in_backward_[i - 1],
                         .allocations = noted_[i].allocations - noted_[i - 1].allocations,
                         .pinned = noted_[i].pinned - noted_[i - 1].pinned,
                         .sums = noted_[i].sums - noted_[i - 1].sums,
                         .updates = noted_[i].updates - noted_[i - 1].updates,
                         .norms = noted_[i].norms - noted_[i - 1].norms,
                         .layers = noted_[i].layers - noted_[i - 1].layers});
    }
    return windows;
  }

 private:
  Training recipe_;
  std::int64_t losses_a_step_;
  data::DatasetPtr validation_;
  std::int64_t losses_ = 0;
  std::vector<Calls> noted_;
  std::vector<std::int64_t> in_backward_;  // waits for other ranks of the thread that runs backward
};

using MakeTask = Training (*)();
Training mlp() { return as_both(std::make_shared<MlpTask>(MlpTaskOptions{.layers = 3, .dim = 48})); }
Training resnet18() {
  return as_both(std::make_shared<ResNet18Task>(ResNet18TaskOptions{.width = 4, .norm_batch = 1}));
}
Training gpt() {
  return as_both(std::make_shared<GptTask>(
      GptTaskOptions{.model = {.vocab = 0, .layers = 2, .dim = 16, .heads = 2, .context = 8}}));
}
struct Model {
  const char* name;
  MakeTask make;
  std::int64_t layers = 0;  // calls for fused layers in a forward and backward
};
// Each of the 2 layers of gpt has two norms (forward, backward, sums) and a GELU (forward, backward), the head has a
// norm, then come loss, its factor, and the embedding's backward.
constexpr std::int64_t kOfGpt = 2 * (2 * 3 + 2) + 3 + 2 + 1;
// Each of the 20 batch norms of ResNet-18 has four calls (statistics, forward, sums, backward). The 5 norms of the last
// stage have one value for each channel of a picture here, and so no statistics.
constexpr std::int64_t kOfResNet18 = 15 * 4 + 5 * 3;

using Case = std::tuple<Model, int, const char*>;  // model, ranks, shard
std::string name_of(const ::testing::TestParamInfo<Case>& one) {
  const auto& [model, ranks, shard] = one.param;
  return std::string(model.name) + std::to_string(ranks) + shard;
}

class SteadyStepTest : public TrainerTest, public ::testing::WithParamInterface<Case> {};
// Alone a rank has nothing to share, so two stages are enough.
std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Model& model : {Model{"mlp", mlp}, Model{"resnet18", resnet18, kOfResNet18}, Model{"gpt", gpt, kOfGpt}}) {
    for (const int ranks : {1, 2, 4}) {
      for (const char* shard : {"none", "optimizer", "gradients", "parameters"}) {
        const std::string name = shard;
        if (ranks > 1 || name == "none" || name == "parameters") all.emplace_back(model, ranks, shard);
      }
    }
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Models, SteadyStepTest, ::testing::ValuesIn(cases()), name_of);

// The windows of each rank.
std::vector<std::vector<Calls>> train(int ranks, MakeTask make, const Config& run) {
  stand_in::hide_memory();
  std::vector<std::vector<Calls>> windows(static_cast<std::size_t>(ranks));
  const auto on_rank = [&](Communicator& world) {
    c10::OptionalStreamGuard guard;
    const at::Device gpu(at::kCUDA, static_cast<c10::DeviceIndex>(world.device().index));
    guard.reset_stream(c10::impl::VirtualGuardImpl(at::kCUDA).getNewStream(gpu));
    CountedTask task(make(), kBackwards);
    Trainer(task, world, {.config = run, .write = [](const std::string&) {}}).fit();
    windows[static_cast<std::size_t>(world.rank())] = task.windows();
  };
  run_threads(ranks, on_rank, {.device = Device::cuda()});
  return windows;
}

Config short_run(Config run, int ranks) {
  run.train.precision = "fp32";
  run.train.device = "cuda";
  run.train.global_batch = kBackwards * ranks;
  run.train.micro_batch = 1;
  run.train.epochs = 1;
  run.train.max_steps = kWarmUp + kSteps * static_cast<std::int64_t>(kWindows) + 2;
  return run;
}

TEST_P(SteadyStepTest, WaitsForNothingAndAllocatesNothing) {
  const auto& [model, ranks, shard] = GetParam();
  Config run = short_run(config("run"), ranks);
  run.train.clip_norm = 0.1;
  run.parallel.shard = shard;
  const bool by_units = ranks > 1 && run.parallel.shard != "none" && run.parallel.shard != "optimizer";
  const std::int64_t units = static_cast<std::int64_t>(model.make().task->units().size());
  // A sum for each bucket; with shares one for each unit, and for the parameters of no unit, in each backward.
  const std::int64_t sums = ranks == 1 ? 0 : by_units ? kBackwards * (units + 1) : 1;
  // Ranks with shares add up the squares of their shares.
  const std::int64_t sums_of_norm = ranks > 1 && run.parallel.shard != "none" ? 1 : 0;
  const std::int64_t layers = model.layers;
  constexpr std::int64_t kUpdates = 1;  // of the one range
  constexpr std::int64_t kNorm = 2;     // squares, and what they give
  std::int64_t updates = 0;             // of all ranks: a rank may have an empty share
  std::int64_t norms = 0;
  for (const std::vector<Calls>& windows : train(ranks, model.make, run)) {
    ASSERT_EQ(windows.size(), kWindows);
    std::int64_t pinned = 0;
    for (const Calls& calls : windows) {
      EXPECT_EQ(calls.waits, 0);
      EXPECT_LE(calls.waits_for_ranks, kSteps * kLateCalls);
      EXPECT_EQ(calls.allocations, 0);
      EXPECT_LE(calls.sums, kSteps * (sums + sums_of_norm));
      EXPECT_LE(calls.updates, kSteps * kUpdates);
      EXPECT_LE(calls.norms, kSteps * kNorm);
      EXPECT_EQ(calls.layers, kSteps * kBackwards * layers);
      pinned += calls.pinned;
      updates += calls.updates;
      norms += calls.norms;
    }
    // LibTorch keeps as many pinned blocks as were in use at once, and how many are depends on time. So a step may
    // still need one more than all steps before it, but not every second step.
    EXPECT_LT(pinned, kSteps * static_cast<std::int64_t>(kWindows) / 2);
  }
  const std::int64_t least = ranks == 1 || run.parallel.shard == "none" ? ranks : 1;
  EXPECT_GE(updates, least * kSteps * static_cast<std::int64_t>(kWindows) * kUpdates);
  EXPECT_GE(norms, least * kSteps * static_cast<std::int64_t>(kWindows) * kNorm);
}

// Strategies that combine gradients without messages between two ranks.
TEST_F(TrainerTest, StrategiesOfGradientsWaitForNothing) {
  const std::vector<parallel::AnyStrategy> strategies = {parallel::Bf16Options{}, parallel::TopKOptions{.share = 0.3},
                                                         parallel::OneBitOptions{.start_step = 1}};
  for (const parallel::AnyStrategy& strategy : strategies) {
    Config run = short_run(config(strategy.name), 2);
    run.parallel.shard = "none";
    run.parallel.strategy = strategy;
    for (const std::vector<Calls>& windows : train(2, mlp, run)) {
      ASSERT_EQ(windows.size(), kWindows);
      for (const Calls& calls : windows) {
        EXPECT_EQ(calls.waits, 0) << strategy.name;
        EXPECT_EQ(calls.allocations, 0) << strategy.name;
      }
    }
  }
}

// What the host must know at once, it waits for.
using NoSteadyStepTest = TrainerTest;
TEST_F(NoSteadyStepTest, WaitsForStepsThatItMaySkip) {
  Config run = short_run(config("run"), 2);
  run.train.not_finite = "skip";
  for (const std::vector<Calls>& windows : train(2, mlp, run)) {
    ASSERT_EQ(windows.size(), kWindows);
    for (const Calls& calls : windows) EXPECT_GE(calls.waits, 2 * kSteps);  // for the norm and the loss
  }
}

}  // namespace
}  // namespace reigen::train
