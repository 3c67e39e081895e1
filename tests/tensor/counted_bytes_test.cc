#include "tensor/hooks/counted_bytes.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <optional>
#include <thread>

namespace reigen::tensor {
namespace {

constexpr std::int64_t kBytes = 4096;

at::Tensor made() { return at::zeros({kBytes}, at::kByte); }

TEST(CountedBytes, CountWhatLivesAndTheMostAtOnce) {
  const at::Tensor before = made();
  at::Tensor kept;
  std::optional<CountedBytes> bytes(std::in_place);
  EXPECT_EQ(bytes->live(), 0);
  kept = made();
  { const at::Tensor gone = made(); }
  EXPECT_EQ(bytes->live(), kBytes);
  EXPECT_EQ(bytes->peak(), 2 * kBytes);
  kept = at::Tensor();
  EXPECT_EQ(bytes->live(), 0);
  kept = made();
  bytes.reset();
  kept = made();  // the counted memory is freed when counting has ended
}

TEST(CountedBytes, AreOfTheThreadThatMadeThemWhereverTheyDie) {
  const CountedBytes bytes;
  at::Tensor passed = made();
  at::Tensor of_other;
  std::thread([&] {
    of_other = made();
    const CountedBytes own;
    passed = at::Tensor();
    EXPECT_EQ(own.live(), 0);
  }).join();
  EXPECT_EQ(bytes.live(), 0);
  EXPECT_EQ(bytes.peak(), kBytes);
}

// The memory that a graph keeps exists after forward and is freed after backward. Convolutions allocate memory without
// a tensor.
TEST(CountedBytes, HoldWhatAForwardKeepsForItsBackward) {
  const at::Tensor weight = at::ones({8, 4, 3, 3}).requires_grad_();
  const at::Tensor input = at::ones({2, 4, 16, 16});
  for (int i = 0; i < 2; ++i) {
    const CountedBytes bytes;
    at::Tensor loss = at::tanh(at::conv2d(input, weight)).sum();
    const std::int64_t kept = bytes.live();
    EXPECT_GE(kept, 2 * 8 * 14 * 14 * 4);
    loss.backward();
    loss = at::Tensor();
    EXPECT_GT(bytes.peak(), kept);
    EXPECT_LE(bytes.live(), static_cast<std::int64_t>(weight.nbytes()) + 4096);
  }
}

}  // namespace
}  // namespace reigen::tensor
