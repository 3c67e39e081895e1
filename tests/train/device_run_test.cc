// A run on a GPU trains the model of a run on the CPU, bit by bit. LibTorch's device and CUDA are the stand-ins of
// tests/fakes/: an access by the host to the GPU's memory is SIGSEGV.
#include <atomic>

#include "device/cuda.h"
#include "fakes/cuda/stand_in.h"
#include "tensor/gpu/device_graph.h"
#include "train/small_run.h"

namespace reigen::train {
namespace {

const bool kHidden = [] {
  testing::stand_in::hide_memory();
  testing::stand_in::be_lazy();
  return true;
}();

class DeviceRunTest : public TrainerTest {
 protected:
  DeviceRunTest() { device_ = usual_device_ = Device::cpu(); }  // a test chooses the device itself

  // On a GPU ranks have shares as over a network. So ranks on the CPU that share something use one.
  void fit_on(const char* device, int ranks, Config run, const Prepare& prepare = {}) {
    run.train.device = device;
    device_ = parse_device(device);
    backend_ = device_.is_cpu() && run.parallel.shard != "none" ? "tcp" : "auto";
    fit(ranks, run, prepare);
    backend_ = "auto";
  }
  // Trains on the CPU and on `gpus`, and expects the same losses and files.
  void expect_same(int ranks, const std::string& name, const char* gpus,
                   const std::function<void(Config&)>& change = {}, const Prepare& prepare = {}) {
    ASSERT_TRUE(kHidden);
    for (const char* device : {"cpu", gpus}) {
      Config run = config(name + device);
      run.train.device = device;
      run.parallel.shard = "none";
      if (change) change(run);
      fit_on(device, ranks, run, prepare);
    }
    EXPECT_EQ(losses(name + gpus), losses(name + "cpu")) << name;
    EXPECT_TRUE(model(name + gpus) == model(name + "cpu")) << name;
    EXPECT_EQ(summary(name + gpus)["test_loss"], summary(name + "cpu")["test_loss"]) << name;
  }
  // The ranks are threads. Each has a GPU of its own, or all use the same GPU.
  static constexpr const char* kOneEach = "cuda";
  static constexpr const char* kOneForAll = "cuda:1";
};

TEST_F(DeviceRunTest, TrainsTheModelOfTheCpu) {
  for (const int ranks : {1, 2, 4}) expect_same(ranks, std::to_string(ranks), kOneEach);
  EXPECT_THAT(output_, HasSubstr("small: 4 ranks (cuda_ipc on cuda:0)"));
  for (const int ranks : {2, 4}) expect_same(ranks, "one for " + std::to_string(ranks), kOneForAll);
  EXPECT_THAT(output_, HasSubstr("small: 4 ranks (cuda_ipc on cuda:1)"));
}

// Each rank holds its share of states, gradients and weights. The CPU's ranks share them over a network, because ranks
// that share memory average in another way.
TEST_F(DeviceRunTest, TrainsTheModelOfTheCpuInShares) {
  width_ = 5000;  // several blocks of 16384 weights for each rank
  for (const int ranks : {2, 4}) {
    for (const char* shard : {"optimizer", "gradients", "parameters"}) {
      for (const std::int64_t micro : {0, 7}) {
        const std::string name = std::string(shard) + std::to_string(ranks) + std::to_string(micro);
        expect_same(ranks, name, micro > 0 ? kOneForAll : kOneEach, [&](Config& c) {
          c.parallel.shard = shard;
          c.train.micro_batch = micro;
          c.train.clip_norm = 0.1;
        });
      }
    }
  }
}

TEST_F(DeviceRunTest, TrainsTheModelOfTheCpuWithEveryOption) {
  using Change = std::function<void(Config&)>;
  const std::vector<std::pair<const char*, Change>> changes = {
      {"micro", [](Config& c) { c.train.micro_batch = 7; }},
      {"clip", [](Config& c) { c.train.clip_norm = 0.1; }},
      {"value", [](Config& c) { c.train.clip_value = 1e-3; }},
      {"skip", [](Config& c) { c.train.not_finite = "skip"; }},
      {"ema", [](Config& c) { c.optim.ema_decay = 0.9; }},
      {"single", [](Config& c) { c.train.precision = "fp32"; }},
      {"compressed", [](Config& c) { c.parallel.strategy.name = "bf16"; }},
      {"top_k", [](Config& c) { c.parallel.strategy = parallel::TopKOptions{.share = 0.3}; }},
      {"local_sgd", [](Config& c) { c.parallel.strategy = parallel::LocalSgdOptions{.every = 2, .start_step = 1}; }},
      {"diloco", [](Config& c) { c.parallel.strategy = parallel::DilocoOptions{.every = 2}; }},
      {"gossip", [](Config& c) { c.parallel.strategy.name = "gossip"; }},
      {"hierarchical_sgd", [](Config& c) { c.parallel.strategy.name = "hierarchical_sgd"; }},
      {"power_sgd", [](Config& c) { c.parallel.strategy = parallel::PowerSgdOptions{.rank = 1, .start_step = 1}; }},
      {"async_gossip", [](Config& c) { c.parallel.strategy = parallel::AsyncGossipOptions{.staleness = 0}; }},
      {"stale", [](Config& c) { c.parallel.strategy = parallel::StaleSynchronousOptions{.staleness = 0}; }},
      {"copied_in_the_step", [](Config& c) { c.data.device_prefetch = 0; }},
      {"buckets", [](Config& c) { c.parallel.bucket_mb = 0; }},
      {"no_overlap", [](Config& c) { c.parallel.overlap = false; }},
      {"verified", [](Config& c) { c.train.verify = 2; }},
  };
  for (const auto& [name, change] : changes) expect_same(2, name, kOneForAll, change);
}

// One rank, and four, with what other tests run on two ranks.
TEST_F(DeviceRunTest, TrainsTheModelOfTheCpuOnOtherNumbersOfRanks) {
  using Change = std::function<void(Config&)>;
  const std::vector<std::pair<std::string, Change>> changes = {
      {"micro", [](Config& c) { c.train.micro_batch = 7; }},
      {"clip", [](Config& c) { c.train.clip_norm = 0.1; }},
      {"top_k", [](Config& c) { c.parallel.strategy = parallel::TopKOptions{.share = 0.3}; }},
      {"diloco", [](Config& c) { c.parallel.strategy = parallel::DilocoOptions{.every = 2}; }},
      {"gossip", [](Config& c) { c.parallel.strategy.name = "gossip"; }},
      {"power_sgd", [](Config& c) { c.parallel.strategy = parallel::PowerSgdOptions{.rank = 1, .start_step = 1}; }},
  };
  for (const auto& [name, change] : changes) {
    expect_same(1, name + "1", kOneEach, change);
    expect_same(4, name + "4", kOneEach, change);
  }
}

TEST_F(DeviceRunTest, TrainsTheModelOfTheCpuWithActivationsThatAreComputedAgain) {
  width_ = 5000;
  const Prepare units = [](int, SmallTask& task, TrainerOptions&) { task.has_units = true; };
  for (const auto& [ranks, shard] : {std::pair(1, "none"), {2, "none"}, {4, "parameters"}, {2, "gradients"}}) {
    const auto change = [shard = shard](Config& c) {
      c.parallel.shard = shard;
      c.train.activation_checkpoint = 1;
    };
    expect_same(ranks, shard + std::to_string(ranks), kOneEach, change, units);
  }
}

// Optimizer states, and the average of the weights, are in pinned memory of the host.
TEST_F(DeviceRunTest, TrainsTheModelOfTheCpuWithStatesInTheMemoryOfTheHost) {
  width_ = 5000;
  for (const char* shard : {"none", "optimizer", "parameters"}) {
    const std::string name = shard;
    const auto change = [&](Config& c) {
      c.parallel.shard = shard;
      c.optim.ema_decay = 0.9;
      c.train.clip_norm = 0.1;
      if (c.train.device != "cpu") c.parallel.offload = "pinned";
    };
    for (const int ranks : {1, 2}) {
      if (ranks > 1 || name == "none") expect_same(ranks, name + std::to_string(ranks), kOneEach, change);
    }
  }
}

// A sample counts once, twice or three times, so the weights of a batch's parts differ in each step.
class UnevenTerms final : public data::Dataset {
 public:
  explicit UnevenTerms(data::DatasetPtr samples) : samples_(std::move(samples)) {}
  std::int64_t size() const override { return samples_->size(); }
  const std::string& name() const override { return samples_->name(); }
  std::int64_t terms(std::int64_t index) const override { return 1 + index % 3; }
  data::Samples gather(std::span<const std::int64_t> indices) const override { return samples_->gather(indices); }

 private:
  data::DatasetPtr samples_;
};

// 64 steps in whole batches and 8 in smaller ones. The learning rate changes in each step.
TEST_F(DeviceRunTest, AGraphOfTheStepGivesTheSameBits) {
  ASSERT_TRUE(kHidden);
  for (const char* device : {"cpu", "cuda"}) {
    for (const char* graph : {"none", "step"}) {
      const std::string name = std::string(device) + graph;
      if (name == "cpustep") continue;
      Config run = config(name);
      run.run.ranks = "processes";
      run.train.graph = graph;
      run.train.epochs = 8;
      run.train.global_batch = 24;
      run.train.micro_batch = 9;
      run.train.clip_norm = 0.1;
      run.optim.ema_decay = 0.9;
      run.optim.warmup_steps = 20;
      run.optim.schedule.name = "cosine";
      fit_on(device, 1, run, [](int, SmallTask& task, TrainerOptions&) {
        task.dropout = 0.3;
        task.data = std::make_shared<UnevenTerms>(made_data(195, at::kDouble, "train"));
        task.log_step = [](SmallTask& self, const at::Tensor& scores, const at::Tensor& target) {
          self.note("mean_score", scores.mean());
          self.note("hits", accuracy(scores, target));
        };
      });
    }
  }
  // What was logged in each step, and over each epoch.
  const auto logged = [&](const std::string& name) {
    std::vector<std::string> all;
    std::ifstream in(root_ / name / "metrics.jsonl");
    for (std::string line; std::getline(in, line);) {
      const auto json = nlohmann::json::parse(line);
      if (json.contains("hits")) all.push_back(json["hits"].dump() + " " + json["mean_score"].dump());
      if (json.contains("epoch_means")) all.push_back(json["epoch_means"].dump());
    }
    return all;
  };
  EXPECT_EQ(logged("cpunone").size(), 72U + 8);
  for (const char* other : {"cudanone", "cudastep"}) {
    EXPECT_EQ(losses(other), losses("cpunone")) << other;
    EXPECT_TRUE(model(other) == model("cpunone")) << other;
    EXPECT_EQ(logged(other), logged("cpunone")) << other;
  }
}

TEST_F(DeviceRunTest, ATaskThatCannotBeCapturedIsRefused) {
  ASSERT_TRUE(kHidden);
  Config run = config("run");
  run.train.device = "cuda";
  run.train.graph = "step";
  run.train.global_batch = 24;
  device_ = Device::cuda();
  const Prepare waits = [](int, SmallTask& task, TrainerOptions&) {
    task.before_call = [](std::int64_t) { at::ones({1}, at::Device(at::kCUDA, 0)).item<float>(); };
  };
  EXPECT_EQ(failure(1, run, waits), ExitCode::kConfiguration);
  EXPECT_THAT(failure_text_, AllOf(HasSubstr("this task cannot be captured"), HasSubstr("no .item()")));
  const Prepare logs = [](int, SmallTask& task, TrainerOptions&) {
    task.log_step = [](SmallTask& self, const at::Tensor&, const at::Tensor&) { self.note("of_host", 1.0); };
  };
  run.run.dir = (root_ / "logs").string();
  EXPECT_EQ(failure(1, run, logs), ExitCode::kConfiguration);
  EXPECT_THAT(failure_text_, AllOf(HasSubstr("a figure of the host is logged"), HasSubstr("of_host")));
  EXPECT_EQ(failure(2, run), ExitCode::kConfiguration);
  EXPECT_THAT(failure_text_, HasSubstr("train.graph step is for one rank"));
  device_ = Device::cpu();
  run.train.device = "cpu";
  EXPECT_EQ(failure(1, run), ExitCode::kConfiguration);
  EXPECT_THAT(failure_text_, HasSubstr("train.graph step is for a model on a GPU"));
}

// An event that is polled in a capture, and memory that is allocated in it, end the capture.
TEST_F(DeviceRunTest, ACaptureRefusesCallsThatWaitOrAllocate) {
  const c10::DeviceGuard on(at::Device(at::kCUDA, 2));
  const c10::StreamGuard stream(c10::impl::VirtualGuardImpl(at::kCUDA).getNewStream(at::Device(at::kCUDA, 2)));
  const at::Tensor x = at::ones({4}, at::Device(at::kCUDA, 2));
  const device::Event event(2);
  const std::vector<std::pair<const char*, std::function<void()>>> calls = {
      {"cudaEventQuery", [&] { (void)event.is_done("a poll"); }},
      {"cudaMalloc", [&] { (void)device::allocate(2, 64); }},
      {"a wait of the host", [&] { (void)x.select(0, 0).item<float>(); }},
  };
  for (const auto& one : calls) {
    tensor::DeviceGraph graph(at::Device(at::kCUDA, 2));
    std::string said;
    try {
      graph.capture([&] {
        const at::Tensor y = x + 1;
        try {
          one.second();
        } catch (const std::exception&) {
        }
      });
    } catch (const c10::Error& error) {
      said = error.what();
    }
    EXPECT_THAT(said, HasSubstr(one.first));
  }
}

// The graph reads what its memory holds when it is replayed. The capture itself computes nothing.
TEST_F(DeviceRunTest, AGraphComputesOnlyWhenItIsReplayed) {
  const at::Device gpu(at::kCUDA, 2);
  const c10::DeviceGuard on(gpu);
  const c10::StreamGuard stream(c10::impl::VirtualGuardImpl(at::kCUDA).getNewStream(gpu));
  const at::Tensor x = at::full({4}, 2, gpu);
  const at::Tensor sum = at::zeros({}, at::TensorOptions().dtype(at::kLong).device(gpu));
  tensor::DeviceGraph graph(gpu);
  graph.capture([&] { sum.add_((x * x).sum()); });
  EXPECT_EQ(sum.item<std::int64_t>(), 0);
  for (const int value : {3, 5}) {
    x.fill_(value);
    graph.replay();
  }
  EXPECT_EQ(sum.item<std::int64_t>(), 4 * 9 + 4 * 25);
}

// These strategies add up the elements of a tensor.
TEST_F(DeviceRunTest, TrainsTheSameModelWithSumsOfElements) {
  width_ = 130;  // parameters of several blocks of 256 elements, the last one smaller
  const std::vector<std::pair<std::string, parallel::AnyStrategy>> strategies = {
      {"one_bit", parallel::OneBitOptions{.start_step = 1}},
      {"adasum", parallel::AdasumOptions{}},
      {"adasum_of_gradients", parallel::AdasumOptions{.of = parallel::AdasumOf::kGradients}}};
  for (const auto& [name, strategy] : strategies) {
    for (const auto& [ranks, precision] : {std::pair(2, "fp64"), {5, "fp64"}, {3, "fp32"}}) {
      const std::string which = name + std::to_string(ranks);
      for (const char* device : {"cpu", "cuda"}) {
        Config run = config(which + device);
        run.parallel.shard = "none";
        run.parallel.strategy = strategy;
        run.train.precision = precision;
        fit_on(device, ranks, run);
      }
      EXPECT_EQ(losses(which + "cuda"), losses(which + "cpu")) << which;
      EXPECT_TRUE(model(which + "cuda") == model(which + "cpu")) << which;
    }
  }
}

// LibTorch computes other operators in 16 bits on a GPU than on a CPU.
TEST_F(DeviceRunTest, TrainsNearlyTheSameModelIn16Bits) {
  for (const std::string precision : {"bf16", "fp16"}) {
    for (const char* device : {"cpu", "cuda"}) {
      Config run = config(precision + device);
      run.train.precision = precision;
      if (precision == "fp16") run.train.loss_scale = 1024;
      run.parallel.shard = "none";
      fit_on(device, 2, run);
    }
    const auto expected = losses(precision + "cpu");
    const auto got = losses(precision + "cuda");
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 0.02) << precision << i;
    EXPECT_NE(got, expected);  // it does compute in 16 bits
  }
}

// The gradients of the third step overflow with the usual loss scale. The step is left out on all ranks.
TEST_F(DeviceRunTest, LeavesAStepOutWhoseScaledGradientsOverflow) {
  for (const char* device : {"cpu", "cuda"}) {
    Config run = config(device);
    run.train.precision = "fp16";
    run.train.max_steps = 4;
    run.parallel.shard = "none";
    fit_on(device, 2, run);
    std::vector<bool> stepped;
    std::ifstream in(root_ / device / "metrics.jsonl");
    for (std::string line; std::getline(in, line);) {
      const auto json = nlohmann::json::parse(line);
      if (json.contains("loss")) stepped.push_back(json.contains("grad_norm"));
    }
    EXPECT_EQ(stepped, (std::vector<bool>{true, true, false, true})) << device;
  }
}

class ResumedDeviceRunTest : public DeviceRunTest, public ::testing::WithParamInterface<std::pair<const char*, int>> {};
INSTANTIATE_TEST_SUITE_P(Shards, ResumedDeviceRunTest,
                         ::testing::Values(std::pair("none", 1), std::pair("none", 2), std::pair("optimizer", 2),
                                           std::pair("gradients", 4), std::pair("parameters", 2)));

TEST_P(ResumedDeviceRunTest, GoesOnOnEitherDevice) {
  width_ = 5000;
  const auto [shard, ranks] = GetParam();
  for (const char* first : {"cpu", "cuda"}) {
    for (const char* second : {"cpu", "cuda"}) {
      const std::string name = std::string(first) + second;
      Config run = config(name);
      run.parallel.shard = shard;
      run.train.max_steps = 4;
      fit_on(first, ranks, run);
      run.train.max_steps = 0;
      run.run.resume = "true";
      fit_on(second, ranks, run);
    }
  }
  for (const char* other : {"cpucuda", "cudacpu", "cudacuda"}) {
    EXPECT_TRUE(model(other) == model("cpucpu")) << other;
    EXPECT_EQ(losses(other), losses("cpucpu")) << other;
  }
}

// A strategy's state is saved from one device and loaded on the other.
TEST_F(DeviceRunTest, AStrategyGoesOnOnEitherDevice) {
  const std::vector<std::pair<std::string, parallel::AnyStrategy>> strategies = {
      {"top_k", parallel::TopKOptions{.share = 0.3}},
      {"power_sgd", parallel::PowerSgdOptions{.rank = 1, .start_step = 1}},
      {"diloco", parallel::DilocoOptions{.every = 2}},
      {"stale", parallel::StaleSynchronousOptions{.staleness = 0}}};
  for (const auto& [strategy_name, strategy] : strategies) {
    for (const char* first : {"cpu", "cuda"}) {
      for (const char* second : {"cpu", "cuda"}) {
        Config run = config(strategy_name + first + second);
        run.parallel.shard = "none";
        run.parallel.strategy = strategy;
        run.train.max_steps = 4;
        fit_on(first, 2, run);
        run.train.max_steps = 0;
        run.run.resume = "true";
        fit_on(second, 2, run);
      }
    }
    for (const char* other : {"cpucuda", "cudacpu", "cudacuda"})
      EXPECT_TRUE(model(strategy_name + other) == model(strategy_name + "cpucpu")) << strategy_name << other;
  }
}

TEST_F(DeviceRunTest, GoesBackToACheckpointAfterANumberThatIsNone) {
  for (const char* device : {"cpu", "cuda"}) {
    Config run = config(device);
    run.parallel.shard = "none";
    run.train.not_finite = "rollback";
    run.checkpoint.every_steps = 2;
    fit_on(device, 2, run, [](int, SmallTask& task, TrainerOptions&) { task.poison_call = 5; });
  }
  EXPECT_TRUE(model("cuda") == model("cpu"));
}

// The checkpoint is three steps back, and the next two steps are enqueued when the host finds out.
TEST_F(DeviceRunTest, GoesBackSeveralSteps) {
  for (const char* shard : {"none", "parameters"}) {
    for (const char* device : {"cpu", "cuda"}) {
      Config run = config(std::string(device) + shard);
      run.parallel.shard = shard;
      run.train.not_finite = "rollback";
      run.checkpoint.every_steps = 4;
      fit_on(device, 2, run, [](int, SmallTask& task, TrainerOptions&) { task.poison_call = 7; });
    }
    EXPECT_TRUE(model(std::string("cuda") + shard) == model(std::string("cpu") + shard)) << shard;
  }
}

// The host learns of the step after it has enqueued the next ones. Step 6 is the last of an epoch.
TEST_F(DeviceRunTest, NamesTheRankWhoseNumberIsNone) {
  for (const std::int64_t step : {5, 6}) {
    for (const char* shard : {"none", "parameters"}) {
      for (const bool of_loss : {true, false}) {
        SCOPED_TRACE(std::to_string(step) + shard + (of_loss ? "loss" : "gradient"));
        Config run = config("run" + std::to_string(step) + shard + (of_loss ? "loss" : "gradient"));
        run.train.device = "cuda";
        run.parallel.shard = shard;
        run.checkpoint.every_steps = 4;
        device_ = Device::cuda();
        const auto poison = [&](int rank, SmallTask& task, TrainerOptions&) {
          if (rank != 1) return;
          (of_loss ? task.poison_call : task.poison_gradient_call) = step;
          task.poison_lasts = !of_loss;
        };
        EXPECT_EQ(failure(2, run, poison), ExitCode::kNotANumber);
        const std::string what = of_loss ? "the loss of step " : "the gradient norm of step ";
        EXPECT_THAT(failure_text_, AllOf(HasSubstr(what + std::to_string(step)), HasSubstr("the checkpoint of step 4"),
                                         HasSubstr(of_loss ? "rank 1: loss nan" : "rank 1: gradient of fc")));
      }
    }
  }
}

TEST_F(DeviceRunTest, StopsAtTheSameStepOnAllRanks) {
  Config run = config("run");
  run.train.device = "cuda";
  run.parallel.shard = "none";
  device_ = Device::cuda();
  std::atomic<int> calls{0};
  const auto stop_once = [&](int rank, SmallTask&, TrainerOptions& options) {
    options.stop_requested = [&, rank] { return rank == 1 && ++calls == 3; };
  };
  const FitResult stopped = fit(2, run, stop_once);
  EXPECT_TRUE(stopped.stopped);
  EXPECT_LT(stopped.steps, 8);
  run.run.resume = "true";
  fit(2, run);
  Config whole = config("whole");
  whole.train.device = "cuda";
  whole.parallel.shard = "none";
  fit(2, whole);
  EXPECT_TRUE(model("run") == model("whole"));
  EXPECT_EQ(losses("run"), losses("whole"));
}

TEST_F(DeviceRunTest, SaysWhatFitsIntoTheMemoryOfTheGpu) {
  namespace stand_in = testing::stand_in;
  Config run = config("run");
  run.train.device = "cuda";
  run.parallel.shard = "none";
  device_ = Device::cuda();
  width_ = 400'000;  // 33.6 MiB of weights in fp64, 134 with gradients and states
  stand_in::leave_memory(std::size_t{110} << 20);
  EXPECT_EQ(failure(2, run), ExitCode::kOsResource);
  EXPECT_THAT(failure_text_, AllOf(HasSubstr("do not fit into memory"), HasSubstr("free memory of host"),
                                   HasSubstr("GPU 0000:"), HasSubstr("--parallel.shard parameters needs")));
  stand_in::leave_memory(std::size_t{250} << 20);  // no room for the activations of 49 samples, 149 MiB a tensor
  const Prepare units = [](int, SmallTask& task, TrainerOptions&) { task.has_units = true; };
  EXPECT_EQ(failure(2, run, units), ExitCode::kOsResource);
  EXPECT_THAT(failure_text_, AllOf(HasSubstr("out of memory of the GPU in step 1, in the forward of unit fc1"),
                                   HasSubstr("samples at a time"), HasSubstr("weights 33.6 MiB"),
                                   HasSubstr("fix: --train.micro_batch "),
                                   HasSubstr(", with which forward and backward of this step fitted")));
  stand_in::leave_memory(stand_in::kMemory);
}

// The setting that the error names fits into the same memory. The weights take 8.4 MiB, and a hidden tensor 0.8 for
// each sample.
TEST_F(DeviceRunTest, NamesASettingThatFits) {
  namespace stand_in = testing::stand_in;
  width_ = 100'000;
  for (const auto& [ranks, mib] : {std::pair(1, 70U), {2, 100U}}) {
    const std::string name = fmt::format("{} ranks, {} MiB", ranks, mib);
    Config run = config("run");
    run.train.device = "cuda";
    run.train.max_steps = 1;
    run.parallel.shard = "none";
    device_ = Device::cuda();
    const auto prepare = [](int, SmallTask& task, TrainerOptions&) {
      task.samples_a_call = 2;
      task.held_out = made_data(4, at::kDouble, "test");
    };
    stand_in::leave_memory(std::size_t{mib} << 20);
    EXPECT_EQ(failure(ranks, run, prepare), ExitCode::kOsResource) << name;
    const std::string begin = "fix: --train.micro_batch ";
    const auto at = failure_text_.find(begin);
    ASSERT_NE(at, std::string::npos) << name << failure_text_;
    EXPECT_THAT(failure_text_, HasSubstr(", with which forward and backward of this step fitted")) << name;
    run.train.micro_batch = std::stoi(failure_text_.substr(at + begin.size()));
    std::filesystem::remove_all(root_ / "run");
    fit(ranks, run, prepare);
    EXPECT_EQ(summary("run")["steps"], 1) << name;
    std::filesystem::remove_all(root_ / "run");
    stand_in::leave_memory(stand_in::kMemory);
  }
}

// What the run says of its memory adds up to what LibTorch's allocator and the group have given out.
TEST_F(DeviceRunTest, TellsTheMemoryOfTheGpu) {
  testing::stand_in::leave_memory(testing::stand_in::kMemory);
  width_ = 10'000;
  for (const char* shard : {"none", "optimizer", "parameters"}) {
    Config run = config(shard);
    run.parallel.shard = shard;
    fit_on("cuda", 2, run);
    const nlohmann::json memory = summary(shard)["memory_bytes"];
    for (std::size_t rank = 0; rank < 2; ++rank) {
      const auto of = [&](const char* part) { return memory[part]["by_rank"][rank].get<double>(); };
      double told = 0;
      for (const char* part : {"parameters", "gradients", "optimizer", "buffers", "step", "batches"}) told += of(part);
      const double there = of("allocator_in_steps") + of("of_the_group");
      EXPECT_NEAR(told / there, 1, 0.03) << shard << ", rank " << rank << memory;
      EXPECT_GE(of("allocator_peak"), of("allocator_in_steps")) << shard;
      EXPECT_GE(of("allocator_reserved"), of("allocator_peak")) << shard;
      EXPECT_GT(of("activations"), 0) << shard;
      EXPECT_GE(of("step"), of("activations")) << shard;
    }
  }
  EXPECT_THAT(output_, HasSubstr("of the GPU LibTorch gave out at most"));
}

TEST_F(DeviceRunTest, RefusesWhatGpusDoNotHave) {
  Config run = config("run");
  run.train.device = "cuda";
  EXPECT_EQ(failure(2, run), ExitCode::kConfiguration);
  EXPECT_THAT(failure_text_, AllOf(HasSubstr("train.device cuda"), HasSubstr("memory of cpu")));
  device_ = Device::cuda();
  run.train.device = "cuda:7";
  EXPECT_EQ(failure(2, run), ExitCode::kConfiguration);
  EXPECT_THAT(failure_text_, HasSubstr("train.device cuda:7"));
  run.train.device = "cuda";
  run.parallel.shard = "optimizer";
  run.parallel.offload = root_.string();
  for (const int ranks : {2, 1}) {
    EXPECT_EQ(failure(ranks, run), ExitCode::kConfiguration);
    EXPECT_THAT(failure_text_, AllOf(HasSubstr("offload to a directory is for models on the CPU"),
                                     HasSubstr("choose offload pinned")));
  }
}

}  // namespace
}  // namespace reigen::train
