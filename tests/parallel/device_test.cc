// Data parallelism on GPUs gives the gradients, buffers and weights of the CPU, bit by bit. LibTorch's device and CUDA
// are the stand-ins of tests/fakes/: an access by the host to the GPU's memory is SIGSEGV.
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/flight_log.h"
#include "fakes/cuda/stand_in.h"
#include "flight/read.h"
#include "flight/recorder.h"
#include "harness/torch.h"
#include "reigen/base/error.h"
#include "reigen/mesh/mesh.h"
#include "reigen/nn/init.h"
#include "reigen/optim/sgd.h"
#include "reigen/parallel/data_parallel.h"
#include "reigen/parallel/distributed_optimizer.h"
#include "reigen/parallel/join.h"
#include "reigen/parallel/replicas.h"
#include "reigen/parallel/strategies.h"
#include "reigen/runtime/init.h"
#include "reigen/tensor/gpu_work.h"
#include "reigen/tensor/tensor_files.h"

namespace reigen::parallel {
namespace {

using ::testing::HasSubstr;

// The stand-in computes on the thread that runs backward, so threads must not change the bits.
const bool kPrepared = [] {
  reigen::testing::stand_in::hide_memory();
  reigen::testing::stand_in::be_lazy();
  at::set_num_threads(1);
  return true;
}();

// `used`: whether the rank's loss depends on the layer `sometimes`.
struct Net : torch::nn::Module {
  Net()
      : first(register_module("first", torch::nn::Linear(6, 33))),
        norm(register_module("norm", torch::nn::BatchNorm1d(33))),
        sometimes(register_module("sometimes", torch::nn::Linear(33, 33))),
        never(register_module("never", torch::nn::Linear(3, 3))),
        last(register_module("last", torch::nn::Linear(33, 2))) {
    to(torch::kDouble);
    nn::initialize(*this, 1);
  }
  at::Tensor forward(const at::Tensor& x, bool used) {
    at::Tensor y = at::tanh(norm(first(x)));
    if (used) y = y + sometimes(y);
    return last(y);
  }
  torch::nn::Linear first;
  torch::nn::BatchNorm1d norm;
  torch::nn::Linear sometimes, never, last;
};

at::Tensor input_of(int rank, int step) {
  at::Tensor input = at::empty({4, 6}, at::kDouble);
  nn::fill_uniform(input, "input", static_cast<std::uint64_t>(100 * rank + step), 1.0);
  return input;
}

using Body = std::function<void(Communicator& world, const at::Device& device)>;

// Each rank is a thread with a GPU of its own ("cuda"), on the GPU of all ranks ("cuda:1"), or on the CPU. LibTorch's
// current stream is a stream of the rank.
void on(const char* name, int ranks, const Body& body) {
  const Device wanted = parse_device(name);
  run_threads(ranks,
              [&](Communicator& world) {
                if (wanted.is_cpu()) return body(world, at::kCPU);
                const at::Device gpu(at::kCUDA, static_cast<c10::DeviceIndex>(world.device().index));
                if (wanted.index >= 0) {
                  separate_gpu_work(world);
                  return body(world, gpu);
                }
                const c10::StreamGuard guard(c10::impl::VirtualGuardImpl(at::kCUDA).getNewStream(gpu));
                body(world, gpu);
              },
              {.device = wanted});
}

std::vector<at::Tensor> copies(const torch::nn::Module& module) {
  std::vector<at::Tensor> all;
  for (const tensor::NamedTensor& item : tensor::tensors_of(module)) all.push_back(item.tensor.detach().cpu().clone());
  return all;
}

// The weights and buffers of all ranks after some steps.
std::vector<std::vector<at::Tensor>> trained(const char* device, int ranks, const DataParallelOptions& options) {
  std::vector<std::vector<at::Tensor>> results(static_cast<std::size_t>(ranks));
  on(device, ranks, [&](Communicator& world, const at::Device& there) {
    Net net;
    if (world.rank() > 0) torch::nn::init::zeros_(net.first->weight);  // rank 0's values count
    net.to(there);
    auto parallel = data_parallel(net, world, options);
    optim::SGD sgd(parallel.parameters(), {.lr = 0.1, .momentum = 0.9});
    for (int step = 0; step < 6; ++step) {
      // Only the last rank uses the layer, and nobody does in some steps.
      const bool used = step % 3 != 2 && world.rank() == world.size() - 1;
      const auto backward = [&](int part) {
        parallel(input_of(world.rank(), 10 * step + part).to(there), used).square().sum().backward();
      };
      {
        const auto only_adds_up = parallel.no_sync();
        backward(0);
      }
      backward(1);
      EXPECT_EQ(net.sometimes->weight.grad().defined(), step % 3 != 2) << "rank " << world.rank() << " step " << step;
      EXPECT_FALSE(net.never->weight.grad().defined());
      sgd.step();
      sgd.zero_grad();
    }
    std::vector<tensor::NamedTensor> weights;
    for (const auto& item : net.named_parameters()) weights.push_back({item.key(), item.value()});
    EXPECT_FALSE(compare_replicas(weights, world).has_value());
    results[static_cast<std::size_t>(world.rank())] = copies(net);
  });
  return results;
}

TEST(DeviceDataParallel, TrainsTheModelOfTheCpu) {
  ASSERT_TRUE(kPrepared);
  const std::vector<std::pair<const char*, DataParallelOptions>> cases = {
      {"plain", {}},
      {"small buckets", {.bucket_mb = 0}},
      {"no overlap", {.overlap = false}},
      {"averaged buffers", {.buffers = BufferPolicy::kAverage}},
      {"compressed", {.strategy = compressed(at::kBFloat16)}},
  };
  for (const int ranks : {1, 2, 4}) {
    for (auto [name, options] : cases) {
      options.share_cores = false;
      const auto expected = trained("cpu", ranks, options);
      for (const char* gpus : {"cuda", "cuda:1"}) {
        const auto got = trained(gpus, ranks, options);
        for (std::size_t rank = 0; rank < expected.size(); ++rank) {
          ASSERT_EQ(got[rank].size(), expected[rank].size());
          for (std::size_t i = 0; i < expected[rank].size(); ++i) {
            EXPECT_TRUE(at::equal(got[rank][i], expected[rank][i]))
                << name << ", " << gpus << ", rank " << rank << ", tensor " << i;
          }
        }
      }
    }
  }
}

// A strategy of a user's own, which does not say that it works on a GPU.
struct OnlyOnCpu : GradientStrategy {
  std::string description() const override { return "mine"; }
  std::uint64_t bytes_given() const override { return 0; }
  void begin(const GradientBucket&) override {}
  void end(const GradientBucket&) override {}
};

TEST(DeviceDataParallel, AStrategyThatDoesNotKnowGpusIsRefused) {
  on("cuda", 2, [&](Communicator& world, const at::Device& there) {
    Net net;
    net.to(there);
    try {
      data_parallel(net, world, {.strategy = [](const Communicator&) { return std::make_unique<OnlyOnCpu>(); }});
      ADD_FAILURE();
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr("strategy mine is for models on the CPU"));
    }
  });
}

TEST(DeviceDataParallel, OffloadPutsOnlyStatesIntoPinnedMemory) {
  on("cuda", 2, [](Communicator& world, const at::Device& there) {
    const auto memory_of = [](const at::Tensor& tensor) {
      cudaPointerAttributes attributes;
      EXPECT_EQ(cudaPointerGetAttributes(&attributes, tensor.const_data_ptr()), cudaSuccess);
      return attributes.type;
    };
    Net net;
    net.to(there);
    auto parallel = data_parallel(net, world, {.offload = "pinned", .share_cores = false});
    optim::SGD sgd(parallel.parameters(), {.lr = 0.1, .momentum = 0.9});
    for (const tensor::NamedTensor& state : sgd.state()) {
      if (state.name.ends_with(".step")) continue;
      EXPECT_EQ(memory_of(state.tensor), cudaMemoryTypeHost) << state.name;
      EXPECT_TRUE(state.tensor.is_cuda());
    }
    for (const at::Tensor& weight : net.parameters()) EXPECT_EQ(memory_of(weight), cudaMemoryTypeDevice);
  });
}

TEST(DeviceDataParallel, WorksWithLibTorchsOptimizers) {
  std::vector<std::vector<at::Tensor>> results;
  for (const char* device : {"cpu", "cuda"}) {
    on(device, 2, [&](Communicator& world, const at::Device& there) {
      Net net;
      net.to(there);
      DistributedOptimizer optimizer(
          std::make_shared<torch::optim::SGD>(net.parameters(), torch::optim::SGDOptions(0.1)), net, world,
          {.gradient_predivide_factor = 2, .share_cores = false});
      for (int step = 0; step < 3; ++step) {
        optimizer.zero_grad();
        net.forward(input_of(world.rank(), step).to(there), true).square().sum().backward();
        optimizer.step();
      }
      if (world.rank() == 0) results.push_back(copies(net));
    });
  }
  for (std::size_t i = 0; i < results[0].size(); ++i) EXPECT_TRUE(at::equal(results[0][i], results[1][i])) << i;
}

class DeviceJoin : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, DeviceJoin, ::testing::Values(1, 2, 4), ::testing::PrintToStringParamName());

TEST_P(DeviceJoin, LetsRanksEndEarlier) {
  std::vector<std::vector<at::Tensor>> results;
  for (const char* device : {"cpu", "cuda"}) {
    on(device, GetParam(), [&](Communicator& world, const at::Device& there) {
      Net net;
      net.to(there);
      auto parallel = data_parallel(net, world, {.share_cores = false});
      optim::SGD sgd(parallel.parameters(), {.lr = 0.1});
      const auto step = [&] {
        sgd.step();
        sgd.zero_grad();
      };
      Join join(parallel);
      for (int i = 0; i < 2 + 2 * world.rank(); ++i) {
        parallel(input_of(world.rank(), i).to(there), true).square().sum().backward();
        step();
      }
      join.finish(step);
      if (world.rank() == 0) results.push_back(copies(net));
    });
  }
  for (std::size_t i = 0; i < results[0].size(); ++i) EXPECT_TRUE(at::equal(results[0][i], results[1][i])) << i;
}

// The host waits for no other rank in backward: rank 1 begins its backward only after that of rank 0 has returned.
TEST(DeviceDataParallel, ABackwardReturnsBeforeOtherRanksHaveBegun) {
  std::atomic<bool> has_returned{false};
  on("cuda", 2, [&](Communicator& world, const at::Device& there) {
    Net net;
    for (const at::Tensor& parameter : net.never->parameters()) at::Tensor(parameter).set_requires_grad(false);
    net.to(there);
    auto parallel = data_parallel(net, world, {.share_cores = false});
    const at::Tensor loss = parallel(input_of(world.rank(), 0).to(there), true).square().sum();
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (world.rank() == 1 && !has_returned && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
    EXPECT_EQ(has_returned, world.rank() == 1);
    loss.backward();
    if (world.rank() == 0) has_returned = true;
    EXPECT_TRUE(net.first->weight.grad().abs().sum().item<double>() > 0);
  });
}

// The layers have different types, so each has a range of its own.
struct TwoTypes : torch::nn::Module {
  TwoTypes()
      : first(register_module("first", torch::nn::Linear(6, 33))),
        last(register_module("last", torch::nn::Linear(33, 2))) {
    first->to(torch::kDouble);
  }
  at::Tensor forward(const at::Tensor& x, const std::function<void()>& between) {
    at::Tensor middle = first(x);
    middle.register_hook([between](const at::Tensor& gradient) {
      between();
      return gradient;
    });
    return last(middle.to(at::kFloat));
  }
  torch::nn::Linear first, last;
};

// On ranks 2 and 3 the first sum has arrived before the second begins, on ranks 0 and 1 it has not. Sums between
// replicas, which are calls of another group, must begin in the same order all the same: with NCCL, ranks that begin
// calls of two groups in different orders wait for each other for ever.
TEST(DeviceDataParallel, EveryRankBeginsTheSumsOfAllGroupsInTheSameOrder) {
  const auto store = store::make_memory_store();
  std::mutex mutex;
  std::vector<std::vector<std::string>> orders;
  on("cuda", 4, [&](Communicator& world, const at::Device& there) {
    comm::GroupOptions own{
        .rank = world.rank(), .size = 4, .store = store, .name = "recorded", .device = world.device()};
    own.recorder = comm::open_recorder(own.rank, own.size);
    Communicator recorded(own);
    TwoTypes net;
    net.to(there);
    auto parallel = data_parallel(net, recorded,
                                  {.shard = Shard::kGradients,
                                   .mesh = mesh::Mesh(recorded, {{"dp_replicate", 2}, {"dp_shard", 2}}),
                                   .share_cores = false});
    const auto wait = [&] {
      if (own.rank >= 2) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    };
    parallel(input_of(own.rank, 0).to(there), wait).square().sum().backward();
    recorded.barrier();
    // "reduce_scatter_v recorded/1": the groups of an axis have names like recorded/1.0.
    std::vector<std::string> order;
    for (const flight::ReadOperation& one : flight::read_record(own.recorder->record()).operations) {
      const bool is_sum = one.group.ends_with(".cuda") && one.kind != "broadcast";
      if (is_sum) order.push_back(one.kind + " " + one.group.substr(0, one.group.find('.')));
    }
    const std::lock_guard lock(mutex);
    orders.push_back(order);
  });
  EXPECT_THAT(orders,
              ::testing::Each(::testing::ElementsAre("reduce_scatter_v recorded/1", "reduce_scatter_v recorded/1",
                                                     "all_reduce recorded/0", "all_reduce recorded/0")));
}

std::string refusal(const std::function<void()>& body) {
  try {
    body();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "no error";
}

TEST(DeviceDataParallel, RefusesAGroupWithoutTheModelsGpu) {
  run_threads(2, [](Communicator& world) {
    Net net;
    net.to(at::Device(at::kCUDA, 3));
    EXPECT_THAT(refusal([&] { data_parallel(net, world); }), HasSubstr("a model on cuda:3"));
  });
}

TEST(DeviceDataParallel, RefusesThreadsThatShareAGpu) {
  run_threads(2,
              [](Communicator& world) {
                Net net;
                net.to(at::Device(at::kCUDA, 2));
                EXPECT_THAT(refusal([&] { data_parallel(net, world); }),
                            HasSubstr("ranks 0 and 1 are threads of one process"));
              },
              {.device = Device::cuda(2)});
}

TEST(DeviceDataParallel, RefusesABackwardOnAnotherThreadWhereThreadsShareAGpu) {
  on("cuda:2", 2, [](Communicator& world, const at::Device& there) {
    Net net;
    net.to(there);
    auto parallel = data_parallel(net, world, {.share_cores = false});
    const at::Tensor loss = parallel(input_of(world.rank(), 0).to(there), true).square().sum();
    std::string said;
    std::thread([&] { said = refusal([&] { loss.backward(); }); }).join();
    EXPECT_THAT(said, HasSubstr("this backward runs on a thread of all ranks"));
  });
}

TEST(DeviceDataParallel, RefusesRanksOnDifferentKindsOfDevices) {
  on("cuda", 2, [](Communicator& world, const at::Device& there) {
    Net net;
    if (world.rank() == 0) net.to(there);
    EXPECT_THAT(refusal([&] { data_parallel(net, world); }), HasSubstr("device of the weights"));
  });
}

TEST(DeviceDataParallel, RefusesAModelOnTwoDevices) {
  Net net;
  net.last->to(at::Device(at::kCUDA, 0));
  EXPECT_THAT(refusal([&] { data_parallel(net, Communicator()); }), HasSubstr("move the whole model to one device"));
}

}  // namespace
}  // namespace reigen::parallel
