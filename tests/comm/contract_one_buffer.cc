// The part of the contract on calls in flight at once on the same memory: each call finds the results of the previous
// one.
#include <chrono>
#include <thread>
#include <vector>

#include "comm/contract.h"
#include "harness/sanitizer.h"
#include "reigen/comm/call_list.h"

namespace reigen::testing {
namespace {

// Makes the calls that add(list) adds. `lazily`: only poll() and wait() drive them; otherwise they block. The ranks of
// a call may use different forms.
template <class Add>
void begin(const Communicator& world, bool lazily, const Add& add, std::vector<Work>& works) {
  CallList calls;
  add(calls);
  if (lazily)
    works.push_back(world.start(calls, comm::Progress::kCaller));
  else
    world.run(calls);
}

}  // namespace

// The second call reads memory that the first one writes. It must not begin on a rank just because the rank's own part
// of the first call is done.
TEST_P(CommunicatorContract, CallsOnOneBufferRunOneAfterTheOther) {
  run_ranks(options(), [](Rank& r) {
    auto& world = r.world();
    constexpr std::size_t kCount = 60000;
    const auto p = static_cast<std::size_t>(r.size());
    TestBuffer<float> x(world, kCount, false);
    TestBuffer<float> gathered(world, kCount * p, false);
    for (int round = 0; round < rounds(30); ++round) {
      for (std::size_t i = 0; i < kCount; ++i) x[i] = static_cast<float>(r.rank() + 1);
      std::vector<Work> works;
      const comm::StartOptions async{.progress = comm::Progress::kCaller};
      works.push_back(world.start_all_reduce(x.data(), x.data(), kCount, DataType::kFloat32, ReduceOp::kSum, async));
      works.push_back(
          world.start_all_reduce(x.data(), x.data(), kCount / 3, DataType::kFloat32, ReduceOp::kSum, async));
      works.push_back(world.start_all_gather(x.data(), gathered.data(), kCount, DataType::kFloat32, async));
      works.push_back(world.start_broadcast(x.data(), kCount, DataType::kFloat32, r.size() - 1, async));
      for (const auto& work : works) work.wait();
      const auto sum = static_cast<float>(p * (p + 1) / 2);
      const auto expected = [&](std::size_t i) { return i < kCount / 3 ? sum * static_cast<float>(p) : sum; };
      ASSERT_TRUE(elements_are(x, kCount, expected));
      ASSERT_TRUE(elements_are(gathered.data() + (p - 1) * kCount, kCount, expected));
    }
  });
}

// A rank that has copied the root's data may be done while another rank has not copied yet. Its next call must wait for
// that rank. The rank after the root announces its calls first, and copies only when the next rank can do no more.
TEST_P(CommunicatorContract, WhatOthersStillCopyFromARootIsNotOverwritten) {
  run_ranks(options(), [](Rank& r) {
    auto& world = r.world();
    constexpr std::size_t kCount = 400000;
    const auto p = static_cast<std::size_t>(r.size());
    TestBuffer<float> x(world, kCount, false);
    TestBuffer<float> y(world, kCount, false);
    TestBuffer<float> blocks(world, kCount * p, false);
    for (int round = 0; round < 3; ++round) {
      const int root = round % r.size();
      const int place = (r.rank() - root + r.size()) % r.size();
      const auto given = static_cast<float>(round);
      for (std::size_t i = 0; i < kCount; ++i) x[i] = y[i] = place == 0 ? given : -1.0F;
      for (std::size_t i = 0; place == 0 && i < kCount * p; ++i) blocks[i] = given;
      if (place == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      std::vector<Work> works;
      const auto call = [&](const auto& add) { begin(world, place < 2, add, works); };
      const float* const input = place == 0 ? blocks.data() : nullptr;
      call([&](CallList& c) { c.broadcast(x.data(), kCount, DataType::kFloat32, root); });
      call([&](CallList& c) { c.all_reduce(x.data(), x.data(), kCount, DataType::kFloat32, ReduceOp::kSum); });
      call([&](CallList& c) { c.scatter(input, y.data(), kCount, DataType::kFloat32, root); });
      call([&](CallList& c) { c.all_reduce(y.data(), y.data(), kCount, DataType::kFloat32, ReduceOp::kSum); });
      if (place == 1) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      for (const auto& work : works) work.wait();
      ASSERT_TRUE(elements_are(x, kCount, static_cast<float>(p) * given)) << "round " << round;
      ASSERT_TRUE(elements_are(y, kCount, static_cast<float>(p) * given)) << "round " << round;
    }
  });
}

// A quick rank's sum reads the gathered data. It must wait, because another rank may still gather.
TEST_P(CommunicatorContract, ASumOfWhatWasGatheredWaitsForTheGather) {
  run_ranks(options(), [](Rank& r) {
    auto& world = r.world();
    constexpr std::size_t kCount = 100000;
    const auto p = static_cast<std::size_t>(r.size());
    TestBuffer<float> x(world, kCount, false);
    TestBuffer<float> gathered(world, kCount * p, false);
    for (int round = 0; round < rounds(30); ++round) {
      x.fill(static_cast<float>(round + r.rank()));
      const comm::StartOptions async{.progress = comm::Progress::kCaller};
      const Work gather = world.start_all_gather(x.data(), gathered.data(), kCount, DataType::kFloat32, async);
      world.all_reduce(gathered.data(), gathered.data(), kCount * p, DataType::kFloat32, ReduceOp::kSum);
      ASSERT_TRUE(gather.is_completed());
      for (std::size_t q = 0; q < p; ++q) {
        const auto expected = static_cast<float>(p) * (static_cast<float>(round) + static_cast<float>(q));
        ASSERT_TRUE(elements_are(gathered.data() + q * kCount, kCount, expected)) << q;
      }
    }
  });
}

// The sum of a foreign input is computed in the staging area and copied out at the end, when other ranks may be done.
TEST_P(CommunicatorContract, WhatIsCopiedOutLateIsNotReadEarly) {
  run_ranks(options(), [](Rank& r) {
    auto& world = r.world();
    constexpr std::size_t kCount = 70001;
    const auto p = static_cast<std::size_t>(r.size());
    const bool foreign = r.rank() == r.size() - 1;
    const int root = r.size() - 1;
    TestBuffer<float> x(world, kCount, foreign);
    TestBuffer<float> sum(world, kCount, false);
    TestBuffer<float> gathered(world, kCount * p, false);
    TestBuffer<float> sent(world, kCount, false);
    for (int round = 0; round < rounds(30); ++round) {
      x.fill(static_cast<float>(round + r.rank()));
      std::vector<Work> works;
      const auto call = [&](const auto& add) { begin(world, foreign, add, works); };
      float* const result = r.rank() == root ? sent.data() : nullptr;
      call([&](CallList& c) { c.all_reduce(x.data(), sum.data(), kCount, DataType::kFloat32, ReduceOp::kSum); });
      call([&](CallList& c) { c.all_gather(sum.data(), gathered.data(), kCount, DataType::kFloat32); });
      call([&](CallList& c) { c.reduce(x.data(), result, kCount, DataType::kFloat32, ReduceOp::kMax, root); });
      call([&](CallList& c) { c.broadcast(sent.data(), kCount, DataType::kFloat32, root); });
      for (const auto& work : works) work.wait();
      const auto ranks = static_cast<int>(p);
      const auto expected = static_cast<float>(ranks * round + ranks * (ranks - 1) / 2);
      ASSERT_TRUE(elements_are(gathered.data() + (p - 1) * kCount, kCount, expected)) << "round " << round;
      ASSERT_TRUE(elements_are(sent, kCount, static_cast<float>(round + ranks - 1))) << "round " << round;
    }
  });
}

}  // namespace reigen::testing
