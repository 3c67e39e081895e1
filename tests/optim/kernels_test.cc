// Every instruction set gives the same bits, also for tails and odd alignments.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "optim/kernels/kernels.h"

namespace reigen::optim::kernels {
namespace {

constexpr Layout kLayouts[] = {Layout::kFloat64, Layout::kFloat32,        Layout::kFloat32Bfloat16, Layout::kBfloat16,
                               Layout::kFloat16, Layout::kBfloat16Master, Layout::kFloat16Master};
constexpr std::int64_t kCounts[] = {0, 1, 7, 16, 33, 515, 1111};

bool has_masters(Layout layout) { return layout == Layout::kBfloat16Master || layout == Layout::kFloat16Master; }

std::size_t value_size(Layout layout) {
  if (layout == Layout::kFloat64) return 8;
  return layout == Layout::kFloat32 || layout == Layout::kFloat32Bfloat16 ? 4 : 2;
}

std::size_t state_size(Layout layout) {
  if (layout == Layout::kFloat32Bfloat16) return 2;
  return has_masters(layout) ? 4 : value_size(layout);
}

// Random numbers of all magnitudes, some infinite or zero, in elements of `size` bytes.
std::vector<unsigned char> numbers(std::size_t size, std::int64_t count, unsigned seed, bool positive) {
  std::minstd_rand generator(seed);
  std::vector<unsigned char> bytes(static_cast<std::size_t>(count) * size);
  std::normal_distribution<double> normal;
  for (std::int64_t i = 0; i < count; ++i) {
    double value = normal(generator) * std::exp2(static_cast<double>(generator() % 40) - 30);
    if (generator() % 97 == 0) value = std::numeric_limits<double>::infinity();
    if (generator() % 53 == 0) value = 0;
    if (positive) value = std::abs(value);
    unsigned char* to = bytes.data() + static_cast<std::size_t>(i) * size;
    const auto single = static_cast<float>(value);
    std::uint32_t bits = 0;
    std::memcpy(&bits, &single, 4);
    const auto half = static_cast<std::uint16_t>(bits >> 16);
    if (size == 8) std::memcpy(to, &value, 8);
    if (size == 4) std::memcpy(to, &single, 4);
    if (size == 2) std::memcpy(to, &half, 2);
  }
  return bytes;
}

// The memory of one optimizer, and the block that points to it.
struct Memory {
  std::vector<unsigned char> values, gradients, states[kMaxStates], masters;
  Block block;

  Memory(Layout layout, std::int64_t count) {
    const std::size_t size = value_size(layout);
    values = numbers(size, count, 1, false);
    gradients = numbers(size, count, 2, false);
    block = {.values = values.data(),
             .gradients = gradients.data(),
             .count = count,
             .key = 77,
             .first = 16384,
             .gradient_factor = 0.7,
             .gradient_limit = 3};
    for (int i = 0; i < kMaxStates; ++i) {
      states[i] = numbers(state_size(layout), count, 3 + static_cast<unsigned>(i), true);
      block.states[i] = states[i].data();
    }
    if (!has_masters(layout)) return;
    // Some values are the rounding of their masters, others are not.
    masters = numbers(4, count, 1, false);
    for (std::int64_t i = 0; i < count; i += 3) {
      float other = 0.3F;
      std::memcpy(masters.data() + 4 * i, &other, 4);
    }
    block.masters = masters.data();
  }
  // Compares all bytes, also those of NaN.
  bool same_as(const Memory& other) const {
    for (int i = 0; i < kMaxStates; ++i) {
      if (states[i] != other.states[i]) return false;
    }
    return values == other.values && gradients == other.gradients && masters == other.masters;
  }
};

using Pass = void (*)(const Kernels&, Layout, const Block&);

const std::pair<const char*, Pass> kPasses[] = {
    {"sgd", [](const Kernels& k, Layout l, const Block& b) { k.sgd(l, b, {.lr = 0.1, .l2 = 0.01}); }},
    {"momentum",
     [](const Kernels& k, Layout l, const Block& b) {
       k.sgd(l, b, {.lr = 0.1, .l2 = 0.01, .momentum = 0.9, .share = 0.9, .has_momentum = true});
     }},
    {"nesterov",
     [](const Kernels& k, Layout l, const Block& b) {
       k.sgd(l, b, {.lr = 0.1, .l2 = 0.01, .momentum = 0.9, .has_momentum = true, .nesterov = true});
     }},
    {"adam",
     [](const Kernels& k, Layout l, const Block& b) {
       k.adam(l, b, {.rate = 0.1, .keep = 0.99, .beta1 = 0.9, .beta2 = 0.999, .root = 1.7, .eps = 1e-8});
     }},
    {"amsgrad",
     [](const Kernels& k, Layout l, const Block& b) {
       k.adam(l, b, {.rate = 0.1, .l2 = 0.01, .beta1 = 0.9, .beta2 = 0.999, .root = 1.7, .eps = 1e-8, .amsgrad = true});
     }},
    {"adagrad",
     [](const Kernels& k, Layout l, const Block& b) { k.adagrad(l, b, {.rate = 0.1, .l2 = 0.01, .eps = 1e-10}); }},
    {"rmsprop", [](const Kernels& k, Layout l,
                   const Block& b) { k.rmsprop(l, b, {.lr = 0.1, .l2 = 0.01, .alpha = 0.99, .eps = 1e-8}); }},
    {"rmsprop momentum",
     [](const Kernels& k, Layout l, const Block& b) {
       k.rmsprop(l, b, {.lr = 0.1, .l2 = 0.01, .alpha = 0.99, .eps = 1e-8, .momentum = 0.9, .has_momentum = true});
     }},
    {"rmsprop centered",
     [](const Kernels& k, Layout l, const Block& b) {
       k.rmsprop(l, b, {.lr = 0.1, .l2 = 0.01, .alpha = 0.99, .eps = 1e-8, .centered = true});
     }},
    {"rmsprop all",
     [](const Kernels& k, Layout l, const Block& b) {
       k.rmsprop(l, b,
                 {.lr = 0.1, .alpha = 0.99, .eps = 1e-8, .momentum = 0.9, .centered = true, .has_momentum = true});
     }},
    {"lion", [](const Kernels& k, Layout l,
                const Block& b) { k.lion(l, b, {.lr = 0.1, .weight_decay = 0.01, .beta1 = 0.9, .beta2 = 0.99}); }},
    {"lars", [](const Kernels& k, Layout l,
                const Block& b) { k.lars(l, b, {.rate = 0.1, .weight_decay = 0.01, .momentum = 0.9}); }},
    {"lamb_apply",
     [](const Kernels& k, Layout l, const Block& b) {
       k.lamb_apply(l, b, {.rate = 0.1, .weight_decay = 0.01, .scale = 1.1, .root = 1.7, .eps = 1e-6});
     }},
    {"change_gradients", [](const Kernels& k, Layout l, const Block& b) { k.change_gradients(l, b); }},
    {"average",
     [](const Kernels& k, Layout l, const Block& b) {
       // The average of 16-bit values is fp32, so only half as many elements fit into the memory of the values.
       const std::int64_t count = value_size(l) == 2 ? b.count / 2 : b.count;
       k.average(l, b.values, b.gradients, count, 0.1);
     }},
};

class InstructionSets : public testing::TestWithParam<const char*> {};

TEST_P(InstructionSets, GiveTheSameBits) {
  const Kernels* kernels = kernels_for_test(GetParam());
  if (kernels == nullptr) GTEST_SKIP() << "this processor has no " << GetParam();
  EXPECT_STREQ(kernels->instruction_set, GetParam());
  const Kernels& portable = *kernels_for_test("portable");
  for (const Layout layout : kLayouts) {
    for (const std::int64_t count : kCounts) {
      for (const auto& [name, pass] : kPasses) {
        Memory expected(layout, count);
        Memory got(layout, count);
        pass(portable, layout, expected.block);
        pass(*kernels, layout, got.block);
        EXPECT_TRUE(got.same_as(expected)) << name << " layout " << static_cast<int>(layout) << " count " << count;
      }
    }
  }
}

bool same_bits(double a, double b) { return std::memcmp(&a, &b, sizeof a) == 0 || (std::isnan(a) && std::isnan(b)); }

TEST_P(InstructionSets, GiveTheSameSums) {
  const Kernels* kernels = kernels_for_test(GetParam());
  if (kernels == nullptr) GTEST_SKIP() << "this processor has no " << GetParam();
  const Kernels& portable = *kernels_for_test("portable");
  const LambStep step{.weight_decay = 0.01, .beta1 = 0.9, .beta2 = 0.999, .scale = 1.1, .root = 1.7, .eps = 1e-6};
  for (const Layout layout : kLayouts) {
    for (const std::int64_t count : kCounts) {
      Memory a(layout, count);
      Memory b(layout, count);
      const Squares lamb_a = portable.lamb_moments(layout, a.block, step);
      const Squares lamb_b = kernels->lamb_moments(layout, b.block, step);
      EXPECT_TRUE(a.same_as(b)) << count;
      EXPECT_TRUE(same_bits(lamb_a.first, lamb_b.first) && same_bits(lamb_a.second, lamb_b.second)) << count;
      const Squares lars_a = portable.value_squares(layout, a.block);
      const Squares lars_b = kernels->value_squares(layout, b.block);
      EXPECT_TRUE(same_bits(lars_a.first, lars_b.first) && same_bits(lars_a.second, lars_b.second)) << count;
      EXPECT_TRUE(same_bits(portable.squares(layout, a.block.gradients, count),
                            kernels->squares(layout, b.block.gradients, count)));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, InstructionSets, testing::Values("portable", "avx2", "avx512"));

TEST(Rounding, AtRandomIsBetweenTheNeighboursAndRightOnAverage) {
  constexpr std::int64_t kCount = 1 << 16;
  // One third between 1 and the next bfloat16.
  const float wanted = 1 + 1.0F / 128 / 3;
  std::vector<float> values(kCount, 0);
  std::vector<float> gradients(kCount, wanted);
  std::vector<std::uint16_t> momentum(kCount, 0);
  const auto round = [&](std::uint32_t key) {
    Block block{.values = values.data(),
                .gradients = gradients.data(),
                .states = {momentum.data()},
                .count = kCount,
                .key = key,
                .gradient_limit = std::numeric_limits<double>::infinity()};
    kernels().sgd(Layout::kFloat32Bfloat16, block, {.lr = 0.1, .momentum = 0, .share = 1, .has_momentum = true});
    std::int64_t up = 0;
    for (const std::uint16_t bits : momentum) {
      EXPECT_TRUE(bits == 0x3f80 || bits == 0x3f81);
      up += bits == 0x3f81 ? 1 : 0;
    }
    return static_cast<double>(up) / kCount;
  };
  for (const std::uint32_t key : {0U, 1U, 2U, 0xdeadbeefU}) EXPECT_NEAR(round(key), 1.0 / 3, 0.01) << key;
}

TEST(Rounding, SpecialValuesStay) {
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> gradients{infinity, -infinity, std::nanf(""), 0.0F, -0.0F, std::numeric_limits<float>::max()};
  std::vector<float> values(gradients.size(), 0);
  std::vector<std::uint16_t> momentum(gradients.size(), 0);
  Block block{.values = values.data(),
              .gradients = gradients.data(),
              .states = {momentum.data()},
              .count = static_cast<std::int64_t>(gradients.size()),
              .key = 5,
              .gradient_limit = std::numeric_limits<double>::infinity()};
  kernels().sgd(Layout::kFloat32Bfloat16, block, {.lr = 0.1, .share = 1, .has_momentum = true});
  EXPECT_EQ(momentum[0], 0x7f80);
  EXPECT_EQ(momentum[1], 0xff80);
  EXPECT_GT(momentum[2] & 0x7fff, 0x7f80);
  EXPECT_EQ(momentum[3] & 0x7fff, 0);
  EXPECT_TRUE(momentum[5] == 0x7f7f || momentum[5] == 0x7f80);
}

}  // namespace
}  // namespace reigen::optim::kernels
