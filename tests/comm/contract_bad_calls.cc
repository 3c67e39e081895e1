// The part of the contract on wrong calls: they are refused with a message before any data moves, and the group remains
// usable.
#include <gmock/gmock.h>

#include <functional>

#include "comm/contract.h"
#include "harness/sanitizer.h"
#include "reigen/base/error.h"

namespace reigen::testing {
namespace {

using ::testing::HasSubstr;

// Checks that the call is refused, with a message that contains all these words.
void expect_refusal(const std::function<void()>& call, const std::vector<std::string>& words) {
  try {
    call();
    ADD_FAILURE() << "accepted: " << words.front();
  } catch (const InvalidArgument& error) {
    for (const auto& word : words) EXPECT_THAT(error.what(), HasSubstr(word));
  }
}

}  // namespace

TEST_P(CommunicatorContract, BuffersThatOverlapAreRefused) {
  run_ranks(options(), [](Rank& r) {
    auto& w = r.world();
    const auto p = static_cast<std::size_t>(r.size());
    std::vector<float> data(40 * p);
    float* const x = data.data();
    const auto type = DataType::kFloat32;
    const auto sum = ReduceOp::kSum;
    const std::vector<std::string> words = {"overlap", "got: input", "expected: apart"};
    expect_refusal([&] { w.all_reduce(x, x + 1, 10, type, sum); }, words);
    expect_refusal([&] { w.all_to_all(x, x, 10, type); }, words);
    expect_refusal([&] { w.all_gather(x + static_cast<std::size_t>(r.rank()) * 10 + 1, x, 10, type); }, words);
    expect_refusal([&] { w.reduce_scatter(x, x + static_cast<std::size_t>(r.rank()) * 10 + 1, 9, type, sum); }, words);
    w.all_reduce(x, x + 10, 10, type, sum);  // buffers side by side do not overlap
  });
}

TEST_P(CommunicatorContract, UnknownTypesAndReductionsAreRefused) {
  run_ranks(options(), [](Rank& r) {
    auto& w = r.world();
    float x = 1;
    const auto no_type = static_cast<DataType>(77);
    const auto no_op = static_cast<ReduceOp>(99);
    expect_refusal([&] { w.broadcast(&x, 1, no_type, 0); }, {"unknown data type", "77"});
    expect_refusal([&] { w.all_reduce(&x, &x, 1, no_type, ReduceOp::kSum); }, {"unknown data type", "77"});
    expect_refusal([&] { w.all_reduce(&x, &x, 1, DataType::kFloat32, no_op); }, {"there is no"});
    expect_refusal([&] { w.all_reduce(&x, &x, 1, DataType::kFloat32, ReduceOp::kBor); }, {"there is no", "float32"});
    expect_refusal([&] { w.all_reduce(&x, &x, 1, DataType::kBool, ReduceOp::kAvg); }, {"there is no", "bool"});
    w.all_reduce(&x, &x, 1, DataType::kFloat32, ReduceOp::kSum);
    EXPECT_EQ(x, static_cast<float>(r.size()));
  });
}

TEST_P(CommunicatorContract, WaitingTwiceIsWaitingOnce) {
  run_ranks(options(), [](Rank& r) {
    TestBuffer<float> data(r.world(), 50000, true);
    data.fill(1);
    const Work work =
        r.world().start_all_reduce(data.data(), data.data(), data.size(), DataType::kFloat32, ReduceOp::kSum);
    const Work copy = work;
    work.wait();
    work.wait();
    copy.wait(Deadline::after(std::chrono::seconds(0)));
    EXPECT_TRUE(copy.is_completed());
    EXPECT_EQ(data[49999], static_cast<float>(r.size()));
  });
}

TEST_P(CommunicatorContract, WaitingTwiceForWhatFailedSaysItTwice) {
  if (GetParam().ranks < 2) GTEST_SKIP() << "needs two ranks";
  if (!compares_calls(GetParam().backend)) GTEST_SKIP() << "a count that differs is not seen";
  run_ranks(options(), [](Rank& r) {
    std::vector<float> data(10);
    const Work work = r.world().start_all_reduce(data.data(), data.data(), r.rank() == 0 ? 9 : 10, DataType::kFloat32,
                                                 ReduceOp::kSum);
    EXPECT_THROW(work.wait(), CollectiveMismatch);
    EXPECT_THROW(work.wait(), CollectiveMismatch);
    EXPECT_TRUE(work.is_completed());
    EXPECT_THROW(r.world().barrier(), Aborted);
    EXPECT_THROW(r.world().split(0), Aborted);
    EXPECT_THROW((void)r.world().start_barrier(), Aborted);
  });
}

// The caller may drop a block while operations on it are in flight. The block is kept for them, and no other caller
// gets it meanwhile.
TEST_P(CommunicatorContract, MemoryThatIsDroppedEarlyIsKeptForItsOperation) {
  run_ranks(options(), [](Rank& r) {
    auto& w = r.world();
    constexpr std::size_t kBytes = 1 << 20;
    for (int round = 0; round < rounds(10); ++round) {
      Work work;
      {
        const auto block = w.allocate(kBytes);
        auto* const x = static_cast<float*>(block.get());
        for (std::size_t i = 0; i < kBytes / 4; ++i) x[i] = 1;
        work = w.start_all_reduce(x, x, kBytes / 4, DataType::kFloat32, ReduceOp::kSum);
      }
      const auto next = w.allocate(kBytes);
      auto* const y = static_cast<float*>(next.get());
      for (std::size_t i = 0; i < kBytes / 4; ++i) y[i] = 7;
      work.wait();
      w.barrier();  // all ranks have written their results
      ASSERT_TRUE(elements_are(y, kBytes / 4, 7)) << "round " << round;
    }
  });
}

}  // namespace reigen::testing
