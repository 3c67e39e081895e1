// The contract on the NCCL backend over a stand-in for NCCL and CUDA. It tests the logic without a GPU, not the speed.
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "comm/contract.h"
#include "fakes/nccl/stand_in.h"
#include "reigen/base/error.h"
#include "reigen/comm/byte_strings.h"
#include "reigen/comm/call_list.h"

namespace reigen::testing {

namespace {

// Each rank has a device of its own, whose streams begin their work only when somebody needs it, or in an order that a
// seed decides.
void lazily(int rank) {
  stand_in::use_device_of(rank);
  stand_in::be_lazy();
}
void at_random(int rank) {
  stand_in::use_device_of(rank);
  stand_in::delay_streams(std::chrono::microseconds(50), 1);
}
ContractParameter threads(int ranks, void (*streams)(int rank)) {
  return {.backend = "nccl", .kind = RankKind::kThreads, .ranks = ranks, .prepare = streams};
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(NcclStandInLazyStreams, CommunicatorContract,
                         ::testing::Values(threads(1, lazily), threads(2, lazily), threads(3, lazily),
                                           threads(4, lazily), threads(7, lazily)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(NcclStandInRandomStreams, CommunicatorContract,
                         ::testing::Values(threads(1, at_random), threads(2, at_random), threads(3, at_random),
                                           threads(4, at_random), threads(7, at_random)),
                         name_of);

namespace {

using ::testing::HasSubstr;

RankOptions ranks(int count) { return {.ranks = count, .backend = "nccl", .prepare = &stand_in::use_device_of}; }

// No object is left on the device after a test, whether it passed or failed.
class NothingIsLeft : public ::testing::EmptyTestEventListener {
  void OnTestEnd(const ::testing::TestInfo& /*info*/) override {
    EXPECT_EQ(stand_in::what_lives(), "communicators 0, streams 0, events 0, blocks 0");
  }
};
const bool kListens = [] {
  ::testing::UnitTest::GetInstance()->listeners().Append(new NothingIsLeft);
  return true;
}();

// Keeps the default stream of the calling thread's device busy.
class BusyDevice {
 public:
  BusyDevice() {
    stand_in::enqueue(cudaStreamLegacy, [this] { done_.wait(false); });
  }
  ~BusyDevice() {
    finish();
    (void)cudaStreamSynchronize(cudaStreamLegacy);
  }
  // Enqueues a kernel that runs after finish().
  void then(std::function<void()> kernel) { stand_in::enqueue(cudaStreamLegacy, std::move(kernel)); }
  void finish() {
    done_.store(true);
    done_.notify_all();
  }

 private:
  std::atomic<bool> done_{false};
};

void fill(TestBuffer<float>& data, float value) { data.fill(value); }

TEST(NcclStandIn, ACallBeginsAfterWhatTheDefaultStreamHasToDo) {
  run_ranks(ranks(2), [](Rank& r) {
    auto& world = r.world();
    TestBuffer<float> x(world, 1000, false);
    TestBuffer<float> small(world, 10, false);
    fill(x, -1);
    fill(small, -1);
    BusyDevice device;
    device.then([&] {
      fill(x, 1);
      fill(small, 5);
    });
    const comm::StartOptions async{};
    const Work sum = world.start_all_reduce(x.data(), x.data(), x.size(), DataType::kFloat32, ReduceOp::kSum, async);
    const Work send = r.rank() == 0 ? world.start_send(small.data(), 10, DataType::kFloat32, 1, async)
                                    : world.start_recv(small.data(), 10, DataType::kFloat32, 0, async);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_FALSE(sum.is_completed());
    EXPECT_FALSE(send.is_completed());
    device.finish();
    sum.wait();
    send.wait();
    EXPECT_EQ(x[999], 2);
    EXPECT_EQ(small[9], 5);
  });
}

TEST(NcclStandIn, TheCallersDeviceMayBeAnother) {
  run_ranks(ranks(2), [](Rank& r) {
    auto& world = r.world();
    TestBuffer<float> x(world, 1000, false);
    TestBuffer<float> y(world, 1000, false);
    fill(x, 1);
    stand_in::use_device_of(7);
    world.all_reduce(x.data(), x.data(), x.size(), DataType::kFloat32, ReduceOp::kSum, {.factor = 2});
    CallList calls;
    calls.send(x.data(), x.size(), DataType::kFloat32, 1 - r.rank());
    calls.recv(y.data(), y.size(), DataType::kFloat32, 1 - r.rank());
    world.run(calls);
    EXPECT_EQ(y[999], 4);
    auto half = world.split(0);
    half->barrier();
    int device = -1;
    EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
    EXPECT_EQ(device, 7);
  });
}

TEST(NcclStandIn, AStreamOfTheGroupsDeviceFollowsFromAThreadOnAnother) {
  run_ranks(ranks(2), [](Rank& r) {
    auto& world = r.world();
    TestBuffer<float> x(world, 1000, false);
    fill(x, 1);
    stand_in::use_device_of(7);
    const Work sum = world.start_all_reduce(x.data(), x.data(), x.size(), DataType::kFloat32, ReduceOp::kSum);
    sum.wait_on({world.device()});
    std::atomic<float> seen{0};
    stand_in::use_device_of(r.rank());
    stand_in::enqueue(cudaStreamLegacy, [&] { seen.store(x[999]); });
    EXPECT_EQ(cudaStreamSynchronize(cudaStreamLegacy), cudaSuccess);
    EXPECT_EQ(seen.load(), 2);
  });
}

// The calls on the device are refused before the calls on the host begin.
TEST(NcclStandIn, AListWithACallThatNcclDoesNotHaveRunsNothing) {
  run_ranks(ranks(2), [](Rank& r) {
    auto& world = r.world();
    TestBuffer<std::int32_t> x(world, 10, false);
    x.fill(1);
    std::int32_t host = 1;
    CallList calls;
    calls.all_reduce(&host, &host, 1, DataType::kInt32, ReduceOp::kSum);
    calls.all_reduce(x.data(), x.data(), 10, DataType::kInt32, ReduceOp::kBand);
    EXPECT_THROW(world.run(calls), InvalidArgument);
    EXPECT_EQ(host, 1);
    world.all_reduce(&host, &host, 1, DataType::kInt32, ReduceOp::kSum);
    EXPECT_EQ(host, 2);
  });
}

TEST(NcclStandIn, MemoryOfAnotherDeviceIsRefused) {
  run_ranks(ranks(2), [](Rank& r) {
    auto& world = r.world();
    stand_in::use_device_of(5);
    void* other = nullptr;
    ASSERT_EQ(cudaMalloc(&other, 4), cudaSuccess);
    auto* x = static_cast<float*>(other);
    const int peer = 1 - r.rank();
    EXPECT_THROW(world.all_reduce(x, x, 1, DataType::kFloat32, ReduceOp::kSum), InvalidArgument);
    EXPECT_THROW(world.send(x, 1, DataType::kFloat32, peer), InvalidArgument);
    EXPECT_THROW(world.recv(x, 1, DataType::kFloat32, peer), InvalidArgument);
    ASSERT_EQ(cudaFree(other), cudaSuccess);
    TestBuffer<float> own(world, 1, false);
    own.fill(1);
    world.all_reduce(own.data(), own.data(), 1, DataType::kFloat32, ReduceOp::kSum);  // no refused call got a number
    if (r.rank() == 0) world.send(own.data(), 1, DataType::kFloat32, 1);
    if (r.rank() == 1) world.recv(own.data(), 1, DataType::kFloat32, 0);
    EXPECT_EQ(own[0], 2);
  });
}

// The output of the second call is dropped before that call has begun.
TEST(NcclStandIn, MemoryThatIsDroppedBeforeItsCallBeginsIsKept) {
  run_ranks(ranks(2), [](Rank& r) {
    auto& world = r.world();
    world.barrier();
    if (r.rank() == 1) r.store().get("dropped", Deadline::after(std::chrono::seconds(30)));
    TestBuffer<float> x(world, 1, false);
    TestBuffer<float> y(world, 1, false);
    x.fill(1);
    y.fill(2);
    auto block = world.allocate(sizeof(float), world.device());
    const comm::StartOptions async{};
    const Work first = world.start_all_reduce(x.data(), x.data(), 1, DataType::kFloat32, ReduceOp::kSum, async);
    const Work second = world.start_all_reduce(y.data(), block.get(), 1, DataType::kFloat32, ReduceOp::kSum, async);
    block.reset();
    r.store().set("dropped", "1");
    first.wait();
    second.wait();
    EXPECT_EQ(x[0], 2);
  });
}

// Both ranks send before either receives.
TEST(NcclStandIn, ShortSendsDoNotWaitForTheirRecv) {
  run_ranks(ranks(2), [](Rank& r) {
    auto& world = r.world();
    const int peer = 1 - r.rank();
    TestBuffer<float> own(world, 256, false);  // 1 KiB
    TestBuffer<float> other(world, 256, false);
    TestBuffer<float> one(world, 1, false);
    TestBuffer<float> came(world, 1, false);
    for (int round = 0; round < 3; ++round) {
      for (int k = 0; k < 20; ++k) {
        fill(own, static_cast<float>(100 * r.rank() + k));
        world.send(own.data(), 256, DataType::kFloat32, peer);
        one.fill(static_cast<float>(r.rank()) + 10);
        world.send(one.data(), 1, DataType::kFloat32, peer);
      }
      world.barrier();
      for (int k = 0; k < 20; ++k) {
        world.recv(other.data(), 256, DataType::kFloat32, peer);
        world.recv(came.data(), 1, DataType::kFloat32, peer);
        ASSERT_EQ(other[255], static_cast<float>(100 * peer + k));
        ASSERT_EQ(came[0], static_cast<float>(peer) + 10);
      }
    }
  });
}

// There are more messages than a lane has room for. The rest wait, and none is lost.
TEST(NcclStandIn, ManyShortSendsWaitForRoom) {
  run_ranks(ranks(2), [](Rank& r) {
    auto& world = r.world();
    constexpr int kMessages = 300;
    if (r.rank() == 0) {
      TestBuffer<std::int32_t> data(world, kMessages, false);
      std::vector<Work> works;
      for (int k = 0; k < kMessages; ++k) {
        data[static_cast<std::size_t>(k)] = k;
        works.push_back(world.start_send(&data[static_cast<std::size_t>(k)], 1, DataType::kInt32, 1));
      }
      for (const Work& work : works) work.wait();
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      TestBuffer<std::int32_t> came(world, 1, false);
      for (int k = 0; k < kMessages; ++k) {
        world.recv(came.data(), 1, DataType::kInt32, 0);
        ASSERT_EQ(came[0], k);
      }
    }
  });
}

// If both ranks enqueued sends and recvs in this order, NCCL would wait for ever.
TEST(NcclStandIn, MessagesCrossInAnyOrder) {
  run_ranks(ranks(3), [](Rank& r) {
    auto& world = r.world();
    constexpr std::size_t kCount = 30000;
    std::vector<std::unique_ptr<TestBuffer<float>>> buffers;
    const auto buffer = [&] {
      buffers.push_back(std::make_unique<TestBuffer<float>>(world, kCount, false));
      return buffers.back().get();
    };
    const comm::StartOptions async{};
    std::vector<Work> works;
    std::vector<std::pair<int, TestBuffer<float>*>> came;
    for (int round = 0; round < 10; ++round) {
      for (int step = 0; step < 4; ++step) {
        const int peer = (r.rank() + 1 + (step + r.rank()) % 2) % 3;
        const bool sends = (step / 2 + r.rank() + round) % 2 == 0;
        auto* data = buffer();
        fill(*data, sends ? static_cast<float>(r.rank()) : -1.0F);
        if (!sends) came.emplace_back(peer, data);
        works.push_back(sends ? world.start_send(data->data(), kCount, DataType::kFloat32, peer, async)
                              : world.start_recv(data->data(), kCount, DataType::kFloat32, peer, async));
      }
      works.push_back(world.start_barrier(async));
      // The matching halves: recvs for the sends of the others, and sends for their recvs.
      for (int step = 0; step < 4; ++step) {
        const int peer = (r.rank() + 1 + (step + r.rank()) % 2) % 3;
        const bool sends = (step / 2 + r.rank() + round) % 2 != 0;
        auto* data = buffer();
        fill(*data, sends ? static_cast<float>(r.rank()) : -1.0F);
        if (!sends) came.emplace_back(peer, data);
        works.push_back(sends ? world.start_send(data->data(), kCount, DataType::kFloat32, peer, async)
                              : world.start_recv(data->data(), kCount, DataType::kFloat32, peer, async));
      }
    }
    for (const Work& work : works) work.wait();
    for (const auto& [peer, data] : came) ASSERT_EQ((*data)[kCount - 1], static_cast<float>(peer));
  });
}

template <typename T>
void expect_sums_with_factors(Rank& r, DataType type, T one, T sum) {
  auto& world = r.world();
  const auto p = static_cast<std::size_t>(r.size());
  constexpr std::size_t kCount = 700;
  TestBuffer<T> in(world, kCount * p, false);
  TestBuffer<T> out(world, kCount, false);
  const comm::CallOptions factor{.factor = r.rank() == 1 ? 1.0 : 0.5};  // a factor of 1 counts as none
  in.fill(one);
  world.all_reduce(in.data(), out.data(), kCount, type, ReduceOp::kSum, factor);
  ASSERT_EQ(out[kCount - 1], sum);
  world.reduce(in.data(), r.rank() == 0 ? out.data() : nullptr, kCount, type, ReduceOp::kSum, 0, factor);
  ASSERT_EQ(out[0], sum);
  world.reduce_scatter(in.data(), out.data(), kCount, type, ReduceOp::kSum, factor);
  ASSERT_EQ(out[kCount - 1], sum);
  const std::vector<std::size_t> counts(p, kCount - 1);
  world.reduce_scatter_v(in.data(), out.data(), counts, type, ReduceOp::kSum, factor);
  ASSERT_EQ(out[kCount - 2], sum);
  ASSERT_TRUE(elements_are(in, in.size(), one)) << "input changed";
  world.reduce_scatter(in.data(), in.data() + static_cast<std::size_t>(r.rank()) * kCount, kCount, type, ReduceOp::kSum,
                       factor);
  ASSERT_EQ(in[static_cast<std::size_t>(r.rank()) * kCount], sum);
}

TEST(NcclStandIn, FactorsOfSomeRanksOnly) {
  run_ranks(ranks(3), [](Rank& r) {
    expect_sums_with_factors<float>(r, DataType::kFloat32, 4, 8);
    expect_sums_with_factors<double>(r, DataType::kFloat64, 4, 8);
    expect_sums_with_factors<std::uint16_t>(r, DataType::kFloat16, 0x4400, 0x4800);
    expect_sums_with_factors<std::uint16_t>(r, DataType::kBfloat16, 0x4080, 0x4100);
  });
}

// All calls use the same scratch memory, which grows meanwhile.
TEST(NcclStandIn, FactorsOfCallsInFlight) {
  run_ranks(ranks(2), [](Rank& r) {
    auto& world = r.world();
    std::vector<std::unique_ptr<TestBuffer<double>>> in;
    std::vector<std::unique_ptr<TestBuffer<double>>> out;
    std::vector<Work> works;
    for (std::size_t k = 0; k < 40; ++k) {
      const std::size_t count = 500 * (k % 7 + 1) + k;
      in.push_back(std::make_unique<TestBuffer<double>>(world, 2 * count, false));
      out.push_back(std::make_unique<TestBuffer<double>>(world, count, false));
      in.back()->fill(static_cast<double>(k));
      works.push_back(world.start_reduce_scatter(in.back()->data(), out.back()->data(), count, DataType::kFloat64,
                                                 ReduceOp::kSum, {.factor = r.rank() + 0.25}));
    }
    for (const Work& work : works) work.wait();
    for (std::size_t k = 0; k < 40; ++k) ASSERT_EQ((*out[k])[out[k]->size() - 1], 1.5 * static_cast<double>(k));
  });
}

// The number counts modulo the visible devices, because a scheduler may show each rank only one device, as number 0.
TEST(NcclStandIn, ADeviceThatIsAskedForIsTaken) {
  stand_in::use_device_of(5);
  Communicator world({.rank = 0, .size = 1, .device = Device::cuda(2), .device_backend = "nccl"});
  cudaPointerAttributes attributes{};
  EXPECT_EQ(world.device(), Device::cuda(2));
  const auto block = world.allocate(8, world.device());
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, block.get()), cudaSuccess);
  EXPECT_EQ(attributes.device, 2);
  int current = -1;
  EXPECT_EQ(cudaGetDevice(&current), cudaSuccess);
  EXPECT_EQ(current, 5);
}

TEST(NcclStandIn, RanksOnOneDeviceAreNamed) {
  run_ranks({.ranks = 2, .backend = "nccl", .device = Device::cuda(3)}, [](Rank& r) {
    try {
      r.world();
      ADD_FAILURE() << "two ranks on one GPU";
    } catch (const BackendError& error) {
      EXPECT_THAT(error.what(), HasSubstr("ranks 0 and 1 use the same GPU"));
      EXPECT_THAT(error.what(), HasSubstr("0000:03:00.0"));
      EXPECT_THAT(error.what(), HasSubstr("device_backend cuda_ipc"));
      EXPECT_EQ(error.exit_code(), ExitCode::kUnavailable);
    }
  });
}

}  // namespace
}  // namespace reigen::testing
