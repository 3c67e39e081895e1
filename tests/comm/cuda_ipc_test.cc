// The contract on ranks that share a GPU, over the stand-in for CUDA. It checks the logic, and that sums have the same
// bits as on the host.
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "comm/contract.h"
#include "device/cuda.h"
#include "fakes/cuda/stand_in.h"
#include "reigen/base/error.h"
#include "reigen/comm/call_list.h"

namespace reigen::testing {

namespace {

using Prepare = void (*)(int rank);
void lazily(int) { stand_in::be_lazy(); }
void at_random(int) { stand_in::delay_streams(std::chrono::microseconds(50), 1); }

ContractParameter threads(int ranks, Prepare streams) {
  return {
      .backend = "cuda_ipc", .kind = RankKind::kThreads, .ranks = ranks, .prepare = streams, .device = Device::cuda(0)};
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(CudaIpcLazyStreams, CommunicatorContract,
                         ::testing::Values(threads(1, lazily), threads(2, lazily), threads(3, lazily),
                                           threads(4, lazily), threads(7, lazily)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(CudaIpcRandomStreams, CommunicatorContract,
                         ::testing::Values(threads(1, at_random), threads(2, at_random), threads(3, at_random),
                                           threads(4, at_random), threads(7, at_random)),
                         name_of);

namespace {

using ::testing::HasSubstr;

RankOptions ranks(int count) { return {.ranks = count, .device = Device::cuda(0)}; }

TEST(CudaIpc, EachKindOfMemoryHasItsOwnBackend) {
  run_ranks(ranks(2), [](Rank& r) {
    auto& world = r.world();
    EXPECT_EQ(world.backend(), "shared_memory");
    EXPECT_EQ(world.device_backend(), "cuda_ipc");
    EXPECT_EQ(world.device(), Device::cuda(0));
    TestBuffer<float> x(world, 1000, false);
    x.fill(static_cast<float>(r.rank() + 1));
    float host = 5;
    const Work sum = world.start_all_reduce(x.data(), x.data(), 1000, DataType::kFloat32, ReduceOp::kSum);
    world.all_reduce(&host, &host, 1, DataType::kFloat32, ReduceOp::kSum);
    sum.wait();
    EXPECT_EQ(x[999], 3);
    EXPECT_EQ(host, 10);
    auto part = world.split(0, -r.rank());
    ASSERT_TRUE(part);
    EXPECT_EQ(part->device(), Device::cuda(0));
    part->all_reduce(x.data(), x.data(), 1000, DataType::kFloat32, ReduceOp::kSum);
    EXPECT_EQ(x[0], 6);
  });
}

TEST(CudaIpc, ACallOnBothKindsOfMemoryIsRefused) {
  run_ranks(ranks(2), [](Rank& r) {
    auto& world = r.world();
    TestBuffer<float> x(world, 10, false);
    std::vector<float> host(10);
    try {
      world.all_reduce(host.data(), x.data(), 10, DataType::kFloat32, ReduceOp::kSum);
      ADD_FAILURE() << "not refused";
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr("input on cpu, output on cuda:0"));
    }
    const auto other = device::allocate(5, 40);
    EXPECT_THROW(world.all_reduce(other.get(), other.get(), 10, DataType::kFloat32, ReduceOp::kSum), InvalidArgument);
    EXPECT_THROW(world.allocate(10, Device::cuda(5)), InvalidArgument);
    world.barrier({.after = {world.device()}});  // no refused call has begun on any rank
  });
}

// Rank 1 has no memory left for the new group. All ranks throw its error at once, and the group that is split goes on.
TEST(CudaIpc, ASplitThatFailsOnOneRankFailsOnAll) {
  run_ranks({.ranks = 3, .device = Device::cuda()}, [](Rank& r) {
    auto& world = r.world();
    TestBuffer<float> x(world, 1000, false);
    world.all_reduce(x.data(), x.data(), 1000, DataType::kFloat32, ReduceOp::kSum);
    r.world().barrier();
    if (r.rank() == 0) stand_in::leave_memory(std::size_t{32} << 20);
    r.world().barrier();
    std::shared_ptr<void> all_of_it;
    if (r.rank() == 1) all_of_it = device::allocate(world.device().index, std::size_t{31} << 20);
    const auto began = std::chrono::steady_clock::now();
    try {
      world.split(0);
      ADD_FAILURE() << "rank " << r.rank() << " has the group";
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::kOsResource) << error.what();
      EXPECT_THAT(error.what(), HasSubstr("out of memory of the GPU"));
      EXPECT_EQ(std::string(error.what()).starts_with("rank 1 of 3: "), r.rank() != 1) << error.what();
    }
    EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(20));  // a rank waits 60 s for others
    all_of_it.reset();
    EXPECT_TRUE(world.split(0));
    world.all_reduce(x.data(), x.data(), 1000, DataType::kFloat32, ReduceOp::kSum);
    r.world().barrier();
    if (r.rank() == 0) stand_in::leave_memory(stand_in::kMemory);
    r.world().barrier();
  });
}

TEST(CudaIpc, BackendsThatAreNoneOrTwoAreRefused) {
  const auto message_of = [](const comm::GroupOptions& options) {
    try {
      const Communicator world(options);
    } catch (const InvalidArgument& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_THAT(message_of({.device_backend = "tcp"}), HasSubstr("expected: auto, nccl, cuda_ipc"));
  EXPECT_THAT(message_of({.backend = "nccl", .device_backend = "cuda_ipc"}),
              HasSubstr("backend \"nccl\", device_backend \"cuda_ipc\""));
}

TEST(CudaIpc, AGroupOfTheHostsMemoryRefusesADevice) {
  run_ranks({.ranks = 2}, [](Rank& r) {
    EXPECT_TRUE(r.world().device().is_cpu());
    EXPECT_THROW(r.world().barrier({.after = {Device::cuda(0)}}), InvalidArgument);
    EXPECT_THROW(r.world().allocate(10, Device::cuda(0)), InvalidArgument);
    r.world().barrier();
  });
}

// Keeps a stream busy.
class Busy {
 public:
  explicit Busy(device::CudaStream stream) {
    stand_in::enqueue(static_cast<cudaStream_t>(stream), [this] { done_.wait(false); });
  }
  void finish() {
    done_.store(true);
    done_.notify_all();
  }

 private:
  std::atomic<bool> done_{false};
};

TEST(CudaIpc, ACallBeginsAfterWhatItsStreamHasToDo) {
  run_ranks(ranks(2), [](Rank& r) {
    auto& world = r.world();
    TestBuffer<float> x(world, 1000, false);
    TestBuffer<float> small(world, 10, false);
    x.fill(-1);
    small.fill(-1);
    const device::OwnStream stream(0);
    Busy busy(stream.get());
    stand_in::enqueue(static_cast<cudaStream_t>(stream.get()), [&] {
      x.fill(1);
      small.fill(5);
    });
    const comm::StartOptions after{.after = {world.device(), stream.get()}};
    const Work sum = world.start_all_reduce(x.data(), x.data(), x.size(), DataType::kFloat32, ReduceOp::kSum, after);
    const Work message = r.rank() == 0 ? world.start_send(small.data(), 10, DataType::kFloat32, 1, after)
                                       : world.start_recv(small.data(), 10, DataType::kFloat32, 0, after);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_FALSE(sum.is_completed());
    EXPECT_FALSE(message.is_completed());
    busy.finish();
    sum.wait();
    message.wait();
    EXPECT_EQ(x[999], 2);
    EXPECT_EQ(small[9], 5);
  });
}

TEST(CudaIpc, AStreamFollowsAWork) {
  run_ranks(ranks(2), [](Rank& r) {
    auto& world = r.world();
    TestBuffer<float> x(world, 1000, false);
    x.fill(1);
    const device::OwnStream stream(0);
    const Work sum = world.start_all_reduce(x.data(), x.data(), x.size(), DataType::kFloat32, ReduceOp::kSum,
                                            {.progress = comm::Progress::kCaller});
    sum.wait_on({world.device(), stream.get()});
    std::atomic<float> seen{0};
    stand_in::enqueue(static_cast<cudaStream_t>(stream.get()), [&] { seen.store(x[999]); });
    EXPECT_EQ(cudaStreamSynchronize(static_cast<cudaStream_t>(stream.get())), cudaSuccess);
    EXPECT_EQ(seen.load(), 2);
  });
}

// The host continues although the other rank has not made the call yet. Only the stream waits.
TEST(CudaIpc, OnlyTheStreamWaitsForALateRank) {
  run_ranks(ranks(2), [](Rank& r) {
    auto& world = r.world();
    TestBuffer<float> x(world, 1000, false);
    x.fill(1);
    const device::OwnStream stream(0);
    if (r.rank() == 1) r.store().get("followed", Deadline::after(std::chrono::seconds(30)));
    const Work sum = world.start_all_reduce(x.data(), x.data(), x.size(), DataType::kFloat32, ReduceOp::kSum);
    sum.wait_on({world.device(), stream.get()});
    std::atomic<float> seen{0};
    stand_in::enqueue(static_cast<cudaStream_t>(stream.get()), [&] { seen.store(x[999]); });
    if (r.rank() == 0) {
      EXPECT_EQ(seen.load(), 0);
      r.store().set("followed", "1");
    }
    EXPECT_EQ(cudaStreamSynchronize(static_cast<cudaStream_t>(stream.get())), cudaSuccess);
    EXPECT_EQ(seen.load(), 2);
  });
}

// A stream that waits for a call continues if the call fails.
TEST(CudaIpc, AnAbortReleasesTheStreamsThatWait) {
  run_ranks(ranks(2), [](Rank& r) {
    auto& world = r.world();
    TestBuffer<float> x(world, 1000, false);
    const device::OwnStream stream(0);
    world.barrier();
    if (r.rank() == 0) {
      const Work sum = world.start_all_reduce(x.data(), x.data(), x.size(), DataType::kFloat32, ReduceOp::kSum);
      sum.wait_on({world.device(), stream.get()});
      r.store().set("followed", "1");
      EXPECT_EQ(cudaStreamSynchronize(static_cast<cudaStream_t>(stream.get())), cudaSuccess);
    } else {
      r.store().get("followed", Deadline::after(std::chrono::seconds(30)));
      world.abort("the disk burns");
    }
    EXPECT_THROW(world.barrier(), Aborted);
  });
}

// Rank 1 makes the calls of the list one after the other, in reverse order.
TEST(CudaIpc, AListOverBothKindsOfMemoryIsDrivenOnBoth) {
  run_ranks(ranks(2), [](Rank& r) {
    auto& world = r.world();
    TestBuffer<float> x(world, 100'000, false);
    const auto foreign = device::allocate(0, 400'000);  // a send of this memory waits for its recv
    float host = 0;
    if (r.rank() == 0) {
      CallList calls;
      calls.recv(&host, 1, DataType::kFloat32, 1);
      calls.send(foreign.get(), 100'000, DataType::kFloat32, 1);
      world.run(calls);
      EXPECT_EQ(host, 7);
    } else {
      host = 7;
      world.recv(x.data(), 100'000, DataType::kFloat32, 0);
      world.send(&host, 1, DataType::kFloat32, 0);
    }
  });
}

TEST(CudaIpc, AShortMessageOfARankThatLeavesAtOnceArrives) {
  run_ranks(ranks(2), [](Rank& r) {
    auto& world = r.world();
    TestBuffer<float> x(world, 10, false);
    x.fill(static_cast<float>(r.rank()));
    world.barrier();
    if (r.rank() == 0) {
      x.fill(7);
      world.send(x.data(), 10, DataType::kFloat32, 1);
      return r.leave();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(300));  // rank 0's leaving waits for the recv
    world.recv(x.data(), 10, DataType::kFloat32, 0);
    EXPECT_EQ(x[9], 7);
  });
}

TEST(CudaIpc, StreamsOfOtherDevicesAndInFrontOfTheHostAreRefused) {
  run_ranks(ranks(2), [](Rank& r) {
    auto& world = r.world();
    TestBuffer<float> x(world, 10, false);
    x.fill(1);
    float host = 1;
    const comm::CallOptions other{.after = {Device::cuda(3)}};
    EXPECT_THROW(world.all_reduce(x.data(), x.data(), 10, DataType::kFloat32, ReduceOp::kSum, other), InvalidArgument);
    const comm::CallOptions own{.after = {world.device()}};
    EXPECT_THROW(world.all_reduce(&host, &host, 1, DataType::kFloat32, ReduceOp::kSum, own), InvalidArgument);
    const Work sum = world.start_all_reduce(x.data(), x.data(), 10, DataType::kFloat32, ReduceOp::kSum);
    EXPECT_THROW(sum.wait_on({Device::cuda(3)}), InvalidArgument);
    sum.wait_on({});  // for a stream of the CPU, the caller itself waits
    EXPECT_EQ(x[9], 2);
  });
}

// All ranks are threads here and share one default stream. If it waited for one rank's call, it would block the calls
// of the others.
TEST(CudaIpc, ADefaultStreamThatRanksShareIsNotKeptWaiting) {
  run_ranks(ranks(3), [](Rank& r) {
    auto& world = r.world();
    TestBuffer<float> x(world, 1000, false);
    x.fill(1);
    for (int i = 0; i < 5; ++i) {
      const Work sum = world.start_all_reduce(x.data(), x.data(), x.size(), DataType::kFloat32, ReduceOp::kMax);
      sum.wait_on({world.device()});
    }
    EXPECT_EQ(x[999], 1);
  });
}

// Sums are added in rank order, so they have the same bits as on the host.
TEST(CudaIpc, SumsHaveTheBitsOfTheHost) {
  run_ranks(ranks(3), [](Rank& r) {
    auto& world = r.world();
    constexpr std::size_t kCount = 100'003;
    TestBuffer<float> x(world, kCount, false);
    std::vector<float> host(kCount);
    for (std::size_t i = 0; i < kCount; ++i) {
      host[i] = x[i] = 1.0F / static_cast<float>(i * 7 + static_cast<std::size_t>(r.rank()) * 13 + 1);
    }
    const comm::CallOptions factor{.factor = 0.3 + r.rank()};
    world.all_reduce(x.data(), x.data(), kCount, DataType::kFloat32, ReduceOp::kSum, factor);
    world.all_reduce(host.data(), host.data(), kCount, DataType::kFloat32, ReduceOp::kSum, factor);
    EXPECT_EQ(std::memcmp(x.data(), host.data(), kCount * sizeof(float)), 0);
  });
}

TEST(CudaIpc, AnAbortEndsCallsOfBothKindsOfMemory) {
  run_ranks(ranks(3), [](Rank& r) {
    auto& world = r.world();
    TestBuffer<float> x(world, 100'000, false);
    world.barrier();
    meet(r, "left the barrier");
    if (r.rank() == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      world.abort("the disk burns");
    }
    try {
      world.all_reduce(x.data(), x.data(), 100'000, DataType::kFloat32, ReduceOp::kSum);
      ADD_FAILURE() << "a call of a group that has ended";
    } catch (const Aborted& error) {
      EXPECT_THAT(error.what(), HasSubstr("the disk burns"));
    }
    EXPECT_THROW(world.barrier(), Aborted);
  });
}

TEST(CudaIpc, NothingOfADeviceIsLeft) {
  EXPECT_EQ(stand_in::what_lives(), "communicators 0, streams 0, events 0, blocks 0");
}

}  // namespace
}  // namespace reigen::testing
