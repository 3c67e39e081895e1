#include "train/model/memory_fit.h"

#include <torch/nn/modules/linear.h>

#include <mutex>

#include "train/model/out_of_memory.h"
#include "train/model/parallel_options.h"
#include "train/optimizer/optimization.h"
#include "train/run/agree.h"
#include "train/run/failure.h"
#include "train/small_run.h"

namespace reigen::train {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

// The error for a model of 1,001,000 elements, or empty. It has 3.8 MiB of weights, 15.3 MiB with gradients and AdamW's
// states. `there`: the free memory, in addition to the weights that exist already.
std::string refusal(
    int ranks, const char* shard, std::uint64_t there, const char* backend = "auto",
    const std::function<void(Config&)>& change = [](Config&) {}) {
  std::string text;
  InitOptions how;
  how.backend = backend;
  try {
    run_threads(
        ranks,
        [&](Communicator& world) {
          const torch::nn::Linear model(1000, 1000);
          Config config;
          config.parallel.shard = shard;
          change(config);
          parallel::LayoutInputs inputs =
              parallel::layout_inputs(*model, world, data_parallel_options(config.parallel, world));
          inputs.choices.states = states_of(config.optim);
          require_room(*model, inputs, config, 8, world, [&] {
            return base::AvailableMemory{.bytes = there, .source = "limit of the test", .identity = "one"};
          });
        },
        how);
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kOsResource);
    text = error.what();
  }
  return text;
}

TEST(MemoryFit, OneRankIsToldHowManyWould) {
  EXPECT_EQ(refusal(1, "auto", 12 * kMiB), "");
  EXPECT_THAT(refusal(1, "auto", 8 * kMiB),
              AllOf(HasSubstr("do not fit into memory"), HasSubstr("15.3 MiB for 1 rank here"),
                    HasSubstr("limit of the test"), HasSubstr("2 ranks with as much memory each")));
  // There are 62 blocks, the last one not full. Four ranks would have 15.3 each on average, but one of them has 16.
  // These need more than the 3.82 MiB of the weights, which count as room.
  EXPECT_THAT(refusal(1, "auto", 0), HasSubstr("5 ranks with as much memory each, over a network, with "
                                               "--parallel.shard parameters need 3.25 MiB each"));
}

TEST(MemoryFit, RanksOfOneMachineAreAddedUpAndToldWhichDivisionWouldFit) {
  EXPECT_EQ(refusal(2, "none", 23 * kMiB), "");
  EXPECT_THAT(refusal(2, "none", 10 * kMiB),
              AllOf(HasSubstr("30.5 MiB for 2 ranks here with parallel.shard none"),
                    HasSubstr("fix: --parallel.shard parameters needs 15.3 MiB"), Not(HasSubstr("optimizer needs"))));
  EXPECT_THAT(refusal(2, "none", 20 * kMiB), HasSubstr("--parallel.shard optimizer needs 19.1 MiB"));
  EXPECT_EQ(refusal(2, "parameters", 8 * kMiB), "");
}

TEST(MemoryFit, WhatIsTakenBesideIsRefusedOnEveryRankWhereItDoesNotFit) {
  const auto refusals = [](std::uint64_t there) {
    std::mutex mutex;
    std::vector<std::string> texts;
    run_threads(2, [&](Communicator& world) {
      try {
        require_room("the test", std::int64_t{3} << 20, "take less", world, [&] {
          return base::AvailableMemory{.bytes = there, .source = "limit of the test", .identity = "one"};
        });
      } catch (const Error& error) {
        EXPECT_TRUE(error.is_common());
        EXPECT_EQ(error.exit_code(), ExitCode::kOsResource);
        const std::lock_guard guard(mutex);
        texts.emplace_back(error.what());
      }
    });
    return texts;
  };
  EXPECT_THAT(refusals(6 * kMiB), SizeIs(0));
  const auto texts = refusals(5 * kMiB);
  EXPECT_THAT(texts, SizeIs(2));
  EXPECT_THAT(texts, Each(AllOf(HasSubstr("the test does not fit into memory"), HasSubstr("6 MiB more for 2 ranks"),
                                HasSubstr("at most 5 MiB (limit of the test)"), HasSubstr("take less"))));
}

TEST(MemoryFit, AnErrorOfAGpuNamesOptionsThatTheTaskHas) {
  OutOfMemory what{.text = "no memory", .step = 3, .samples = 8};
  const std::string usual = to_error(what, {}).what();
  EXPECT_THAT(usual, AllOf(HasSubstr("step 3"), HasSubstr("--train.micro_batch 4"), Not(HasSubstr("fitted"))));
  what.has_micro_batches = false;
  const std::string manual = to_error(what, {}).what();
  EXPECT_THAT(manual, AllOf(Not(HasSubstr("micro_batch")), HasSubstr("half the --train.global_batch")));
}

TEST(MemoryFit, AnErrorOfAGpuNamesWhatFitted) {
  OutOfMemory what{.text = "no memory", .step = 3, .samples = 8, .fitting = Fitting{.micro_batch = 2}};
  EXPECT_THAT(to_error(what, {}).what(),
              HasSubstr("fix: --train.micro_batch 2, with which forward and backward of this step fitted"));
  what.fitting = Fitting{.micro_batch = 1, .recomputes = true};
  EXPECT_THAT(to_error(what, {}).what(), HasSubstr("fix: --train.micro_batch 1 --train.activation_checkpoint 1, with"));
  what.fitting = Fitting{.micro_batch = 8, .recomputes = true};
  EXPECT_THAT(to_error(what, {}).what(), HasSubstr("fix: --train.activation_checkpoint 1, with"));
  what.allocator = {.reserved = 40 * kMiB, .fragmented = 3 * kMiB};
  EXPECT_THAT(to_error(what, {}).what(), Not(HasSubstr("expandable_segments")));
  what.allocator->fragmented = 4 * kMiB;
  EXPECT_THAT(to_error(what, {}).what(),
              AllOf(HasSubstr("4 MiB of the 40 MiB that LibTorch keeps are pieces between tensors"),
                    HasSubstr("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True")));
}

TEST(MemoryFit, StatesOnADiskTakeNoMemory) {
  EXPECT_THAT(refusal(1, "auto", 10 * kMiB), HasSubstr("--parallel.offload DIRECTORY needs 7.64 MiB"));
}

TEST(MemoryFit, OverANetworkWeightsAreThereOnceARank) {
  EXPECT_THAT(refusal(2, "optimizer", 10 * kMiB, "tcp"), HasSubstr("22.9 MiB for 2 ranks here"));
  EXPECT_EQ(refusal(2, "parameters", 8 * kMiB, "tcp"), "");
}

// The copies have 11.5 MiB, the size of a checkpoint of this model.
TEST(MemoryFit, CopiesForCheckpointsAreCounted) {
  const auto copies = [](Config& config) { config.checkpoint.asynchronous = true; };
  EXPECT_EQ(refusal(1, "auto", 23 * kMiB + kMiB / 2, "auto", copies), "");
  EXPECT_THAT(refusal(1, "auto", 20 * kMiB, "auto", copies),
              AllOf(HasSubstr("copies for checkpoint.asynchronous"), HasSubstr("26.7 MiB for 1 rank here"),
                    HasSubstr("--checkpoint.asynchronous false needs 15.3 MiB")));
  // Only rank 0 has copies, or each rank has copies of its share. So a machine has one copy.
  EXPECT_THAT(refusal(2, "none", 20 * kMiB, "auto", copies), HasSubstr("42 MiB for 2 ranks here"));
  EXPECT_THAT(refusal(2, "parameters", 10 * kMiB, "tcp", copies), HasSubstr("26.7 MiB for 2 ranks here"));
}

// Adasum keeps three times the weights on each rank, which are 11.5 MiB.
TEST(MemoryFit, WhatAStrategyKeepsIsCounted) {
  const auto adasum = [](Config& config) { config.parallel.strategy.name = "adasum"; };
  EXPECT_THAT(
      refusal(2, "none", 40 * kMiB, "tcp", adasum),
      AllOf(HasSubstr("what strategy adasum keeps"), HasSubstr("53.5 MiB for 2 ranks here"),
            HasSubstr("--parallel.strategy plain needs 30.5 MiB"), Not(HasSubstr("--parallel.shard optimizer"))));
  EXPECT_EQ(refusal(2, "none", 46 * kMiB, "tcp", adasum), "");
  EXPECT_EQ(refusal(2, "none", 23 * kMiB, "tcp", [](Config& config) { config.parallel.strategy.name = "bf16"; }), "");
}

TEST(MemoryFit, WholeGradientsBetweenMicroBatchesAreCounted) {
  const auto adds_up = [](Config& config) { config.train.micro_batch = 4; };
  EXPECT_THAT(refusal(2, "parameters", 10 * kMiB, "tcp", adds_up),
              AllOf(HasSubstr("gradients of several micro-batches"), HasSubstr("22.9 MiB for 2 ranks here"),
                    HasSubstr("--train.micro_batch 0 needs 15.3 MiB")));
  EXPECT_THAT(refusal(2, "none", 10 * kMiB, "tcp", adds_up), HasSubstr("30.5 MiB for 2 ranks here"));
  EXPECT_EQ(refusal(2, "parameters", 8 * kMiB, "tcp", [](Config& config) { config.train.micro_batch = 8; }), "");
}

struct NoMemoryForTheStep : Callback {
  std::string name() const override { return "no_memory"; }
  void before_optimizer(Moment& /*moment*/) override {
    TORCH_CHECK_WITH(OutOfMemoryError, false, "no memory for the optimizer");
  }
};

// The memory runs out in the first calls of the task. After the step, two samples and one are tried, then all four with
// activations that are computed again.
class OutOfMemoryRun : public TrainerTest {
 protected:
  std::string failure_of(int calls, bool has_units) {
    Config run = config(fmt::format("{} {}", calls, has_units));
    run.train.global_batch = 4;
    const auto prepare = [&](int, SmallTask& task, TrainerOptions&) {
      task.has_units = has_units;
      task.before_call = [&](int call) {
        TORCH_CHECK_WITH(OutOfMemoryError, call > calls, "no memory in call ", call);
      };
    };
    EXPECT_EQ(failure(1, run, prepare), ExitCode::kOsResource);
    return failure_text_;
  }
};

TEST_F(OutOfMemoryRun, TriesFewerSamplesAndThenActivationsThatAreComputedAgain) {
  EXPECT_THAT(failure_of(1, false), HasSubstr("fix: --train.micro_batch 2, with which forward and backward"));
  EXPECT_THAT(failure_of(2, true), HasSubstr("fix: --train.micro_batch 1, with which"));
  EXPECT_THAT(failure_of(3, true), HasSubstr("fix: --train.activation_checkpoint 1, with which"));
  EXPECT_THAT(failure_of(4, true), HasSubstr("fix: --train.micro_batch 2 --train.activation_checkpoint 1, with which"));
  for (const bool has_units : {false, true}) {
    EXPECT_THAT(failure_of(100, has_units), AllOf(HasSubstr("no memory in call 1;"), Not(HasSubstr("with which")),
                                                  HasSubstr("or a smaller model")));
  }
}

// LibTorch throws such an error in the first call after a kernel failed.
TEST(Failure, AKernelThatFailsIsNoBugOfReigen) {
  try {
    TORCH_CHECK(false, "CUDA error: an illegal memory access was encountered");
  } catch (...) {
    const Failure failure = failure_of(std::current_exception());
    EXPECT_EQ(failure.exit_code, static_cast<int>(ExitCode::kBug));
    EXPECT_THAT(failure.text, AllOf(HasSubstr("an illegal memory access"), HasSubstr("CUDA_LAUNCH_BLOCKING=1"),
                                    HasSubstr("compute-sanitizer"), Not(HasSubstr("please report"))));
  }
}

// In backward of the first step, when later layers have sent their gradients already: rank 0 has no memory for the
// gradient of the first layer.
TEST_F(OutOfMemoryRun, TriesBesideGradientsThatAreOnTheirWay) {
  Config run = config("run");
  run.parallel.shard = "none";
  run.parallel.bucket_mb = 1e-4;  // each gradient by itself
  std::atomic<int> gradients = 0;
  const auto prepare = [&](int rank, SmallTask& task, TrainerOptions&) {
    if (rank != 0) return;
    const auto after = std::make_shared<bool>(false);
    task.before_call = [&gradients, &task, after](int) {
      if (std::exchange(*after, true)) return;
      task.module().parameters().front().register_hook([&gradients](const at::Tensor& gradient) {
        TORCH_CHECK_WITH(OutOfMemoryError, ++gradients > 1, "no memory for a gradient");
        return gradient;
      });
    };
  };
  EXPECT_EQ(failure(2, run, prepare), ExitCode::kOsResource);
  EXPECT_THAT(failure_text_,
              HasSubstr("fix: --train.micro_batch 24, with which forward and backward of this step fitted"));
}

// What fails is the optimizer's step, where fewer samples at a time do not help.
TEST_F(OutOfMemoryRun, TriesNothingAfterForwardAndBackward) {
  Config run = config("run");
  const auto prepare = [](int, SmallTask&, TrainerOptions& options) {
    options.callbacks.push_back(std::make_shared<NoMemoryForTheStep>());
  };
  EXPECT_EQ(failure(1, run, prepare), ExitCode::kOsResource);
  EXPECT_THAT(failure_text_, AllOf(HasSubstr("no memory for the optimizer"), Not(HasSubstr("fitted"))));
}

}  // namespace
}  // namespace reigen::train
