// Compares the kernels of every instruction set with a plain reference, and bit by bit with each other.
#include <gtest/gtest.h>
#include <array>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "comm/reduce/reduce.h"

namespace reigen::comm::reduce {
namespace {

float half_to_float(std::uint16_t h) {
  const int exponent = (h >> 10) & 31;
  const int mantissa = h & 1023;
  const double sign = (h & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == 31)
    return mantissa != 0 ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(sign * INFINITY);
  const double value = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return static_cast<float>(sign * value);
}

// The nearest half, ties to even, found by a search of the two neighbours.
std::uint16_t float_to_half(float value) {
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(static_cast<double>(value));
  if (std::isnan(value)) return static_cast<std::uint16_t>(sign | 0x7e00);
  if (magnitude >= 65520.0) return static_cast<std::uint16_t>(sign | 0x7c00);
  std::uint16_t low = 0;
  std::uint16_t high = 0x7c00;
  while (high - low > 1) {
    const auto middle = static_cast<std::uint16_t>((low + high) / 2);
    (static_cast<double>(half_to_float(middle)) <= magnitude ? low : high) = middle;
  }
  const double below = magnitude - static_cast<double>(half_to_float(low));
  const double above = (high == 0x7c00 ? 65536.0 : static_cast<double>(half_to_float(high))) - magnitude;
  const std::uint16_t nearest = below < above || (below == above && low % 2 == 0) ? low : high;
  return static_cast<std::uint16_t>(sign | nearest);
}

std::vector<std::byte> run_kernel(Kernel kernel, const std::vector<std::vector<std::byte>>& inputs, std::size_t count,
                                  DataType type, ReduceOp op) {
  std::vector<const std::byte*> in;
  for (const auto& input : inputs) in.push_back(input.data());
  std::vector<std::byte> output(count * size_of(type));
  std::byte* out = output.data();
  kernel({.inputs = in.data(),
          .outputs = &out,
          .input_count = static_cast<int>(inputs.size()),
          .output_count = 1,
          .count = count,
          .type = type,
          .op = op});
  return output;
}

std::vector<std::byte> random_bytes(std::size_t bytes, unsigned seed) {
  std::mt19937 generator(seed);
  std::vector<std::byte> data(bytes);
  for (auto& b : data) b = static_cast<std::byte>(generator());
  return data;
}

class Kernels : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    kernel_ = kernel_for_test(GetParam());
    if (kernel_ == nullptr) GTEST_SKIP() << "this processor has no " << GetParam();
  }
  Kernel kernel_ = nullptr;
};

TEST_P(Kernels, SumsFloatsInRankOrder) {
  for (const int ranks : {1, 2, 3, 8}) {
    for (const std::size_t count : {0u, 1u, 15u, 1024u, 5003u}) {
      std::vector<std::vector<std::byte>> inputs;
      std::vector<float> expected(count);
      for (int q = 0; q < ranks; ++q) {
        std::vector<float> values(count);
        for (std::size_t i = 0; i < count; ++i)
          values[i] = 0.1f * static_cast<float>(i % 97) + 1e-3f * static_cast<float>(q);
        for (std::size_t i = 0; i < count; ++i) expected[i] = q == 0 ? values[i] : expected[i] + values[i];
        const auto* bytes = reinterpret_cast<const std::byte*>(values.data());
        inputs.emplace_back(bytes, bytes + count * sizeof(float));
      }
      const auto output = run_kernel(kernel_, inputs, count, DataType::kFloat32, ReduceOp::kSum);
      EXPECT_TRUE(std::equal(output.begin(), output.end(), reinterpret_cast<const std::byte*>(expected.data())))
          << ranks << " ranks, " << count << " elements";
    }
  }
}

// Replaces every NaN by the same one, because kernels may give different NaNs.
std::vector<std::byte> with_one_nan(std::vector<std::byte> data, DataType type) {
  const auto canonical = [&]<typename T>(T exponent, T mantissa) {
    for (std::size_t i = 0; i < data.size(); i += sizeof(T)) {
      T bits{};
      std::memcpy(&bits, data.data() + i, sizeof(T));
      if ((bits & exponent) == exponent && (bits & mantissa) != 0) bits = static_cast<T>(exponent | mantissa);
      std::memcpy(data.data() + i, &bits, sizeof(T));
    }
  };
  if (type == DataType::kFloat16) canonical(std::uint16_t{0x7c00}, std::uint16_t{0x03ff});
  if (type == DataType::kBfloat16) canonical(std::uint16_t{0x7f80}, std::uint16_t{0x007f});
  if (type == DataType::kFloat32) canonical(std::uint32_t{0x7f800000}, std::uint32_t{0x007fffff});
  if (type == DataType::kFloat64) canonical(std::uint64_t{0x7ff0000000000000}, std::uint64_t{0x000fffffffffffff});
  return data;
}

struct Layout {
  int inputs;
  int outputs;
  bool in_place;
  bool streaming;
  std::size_t after_line = 8;  // bytes from the begin of a cache line to the begin of the outputs
};

// The outputs of a pass, one after the other.
std::vector<std::byte> run_layout(Kernel kernel, const Layout& layout, std::vector<std::vector<std::byte>> inputs,
                                  std::size_t count, DataType type, ReduceOp op, const double* factors = nullptr) {
  const std::size_t bytes = count * size_of(type);
  std::vector<std::vector<std::byte>> outputs(static_cast<std::size_t>(layout.outputs),
                                              std::vector<std::byte>(bytes + 128));
  std::vector<const std::byte*> in;
  std::vector<std::byte*> out;
  for (auto& input : inputs) in.push_back(input.data());
  for (std::size_t q = 0; q < outputs.size(); ++q) {
    const auto begin = reinterpret_cast<std::uintptr_t>(outputs[q].data());
    std::byte* const line = outputs[q].data() + (64 - begin % 64) % 64;
    out.push_back(layout.in_place ? inputs[q].data() : line + layout.after_line);
  }
  kernel({.inputs = in.data(),
          .outputs = out.data(),
          .input_count = layout.inputs,
          .output_count = layout.outputs,
          .count = count,
          .type = type,
          .op = op,
          .factors = factors,
          .streaming = layout.streaming});
  std::vector<std::byte> all;
  for (const std::byte* output : out) all.insert(all.end(), output, output + bytes);
  return all;
}

// For any number of inputs and outputs, in place or with non-temporal stores, each output is the plain fold over the
// inputs.
TEST_P(Kernels, EveryLayoutGivesTheSameBits) {
  constexpr std::size_t kCount = 2051;
  for (const auto type :
       {DataType::kInt8, DataType::kUint8, DataType::kInt16, DataType::kInt32, DataType::kInt64, DataType::kFloat16,
        DataType::kBfloat16, DataType::kFloat32, DataType::kFloat64, DataType::kBool}) {
    for (const auto op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kProd, ReduceOp::kMin, ReduceOp::kMax,
                          ReduceOp::kBand, ReduceOp::kBor, ReduceOp::kBxor}) {
      if (!is_defined(op, type)) continue;
      for (const Layout layout :
           {Layout{1, 1, false, false}, Layout{1, 1, true, false}, Layout{2, 1, false, false},
            Layout{2, 2, false, false}, Layout{2, 2, true, false}, Layout{2, 2, false, true},
            Layout{1, 1, false, true, 0}, Layout{2, 2, false, true, 0}, Layout{5, 3, false, true, 0},
            Layout{3, 3, true, false}, Layout{4, 4, false, false}, Layout{5, 3, false, true}}) {
        std::vector<std::vector<std::byte>> inputs;
        for (int q = 0; q < layout.inputs; ++q) {
          inputs.push_back(random_bytes(kCount * size_of(type), static_cast<unsigned>(5 * q + 3)));
        }
        const auto one = with_one_nan(
            run_layout(kernel_for_test("portable"), {layout.inputs, 1, false, false}, inputs, kCount, type, op), type);
        std::vector<std::byte> expected;
        for (int q = 0; q < layout.outputs; ++q) expected.insert(expected.end(), one.begin(), one.end());
        EXPECT_TRUE(with_one_nan(run_layout(kernel_, layout, inputs, kCount, type, op), type) == expected)
            << name_of(type) << " " << name_of(op) << ": " << layout.inputs << " inputs, " << layout.outputs
            << " outputs" << (layout.in_place ? ", in place" : "") << (layout.streaming ? ", streaming" : "") << ", "
            << layout.after_line << " bytes after a line";
      }
    }
  }
}

// The copy may begin anywhere in a cache line. No byte around it changes.
TEST_P(Kernels, CopiesPastTheCachesWhatIsAsked) {
  const Copy copy = streaming_copy_for_test(GetParam());
  const std::vector<std::byte> from = random_bytes(3000, 9);
  for (const std::size_t at : {0UL, 1UL, 8UL, 63UL}) {
    for (const std::size_t bytes : {0UL, 1UL, 63UL, 64UL, 65UL, 127UL, 2048UL, 2901UL}) {
      alignas(64) std::array<std::byte, 3072> to;
      to.fill(std::byte{7});
      copy(to.data() + at, from.data() + 5, bytes);
      std::array<std::byte, 3072> expected;
      expected.fill(std::byte{7});
      std::copy_n(from.begin() + 5, bytes, expected.begin() + static_cast<std::ptrdiff_t>(at));
      EXPECT_TRUE(to == expected) << bytes << " bytes to a line's byte " << at;
    }
  }
}

TEST_P(Kernels, MultipliesEveryInputByItsFactor) {
  constexpr std::size_t kCount = 1100;
  const double factors[] = {0.5, -3.0, 0.25};
  std::vector<std::vector<std::byte>> inputs;
  std::vector<float> expected(kCount);
  for (int q = 0; q < 3; ++q) {
    std::vector<float> values(kCount);
    for (std::size_t i = 0; i < kCount; ++i) {
      values[i] = static_cast<float>(i) + 0.1f * static_cast<float>(q);
      const float part = values[i] * static_cast<float>(factors[q]);
      expected[i] = q == 0 ? part : expected[i] + part;
    }
    const auto* bytes = reinterpret_cast<const std::byte*>(values.data());
    inputs.emplace_back(bytes, bytes + kCount * sizeof(float));
  }
  const auto got =
      run_layout(kernel_, {3, 2, false, false}, inputs, kCount, DataType::kFloat32, ReduceOp::kSum, factors);
  for (int output = 0; output < 2; ++output) {
    EXPECT_EQ(std::memcmp(got.data() + static_cast<std::size_t>(output) * kCount * sizeof(float), expected.data(),
                          kCount * sizeof(float)),
              0);
  }
}

// Random bit patterns contain NaN, infinities and subnormal numbers of every type.
TEST_P(Kernels, GivesTheBitsOfThePortableLoops) {
  for (const auto type : {DataType::kInt8, DataType::kUint8, DataType::kInt16, DataType::kInt32, DataType::kInt64,
                          DataType::kFloat16, DataType::kBfloat16, DataType::kFloat32, DataType::kFloat64}) {
    for (const auto op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kProd, ReduceOp::kMin, ReduceOp::kMax}) {
      constexpr std::size_t kCount = 3001;
      std::vector<std::vector<std::byte>> inputs;
      for (unsigned q = 0; q < 3; ++q) inputs.push_back(random_bytes(kCount * size_of(type), 7 * q + 1));
      EXPECT_TRUE(with_one_nan(run_kernel(kernel_, inputs, kCount, type, op), type) ==
                  with_one_nan(run_kernel(kernel_for_test("portable"), inputs, kCount, type, op), type))
          << name_of(type) << " " << name_of(op);
    }
  }
}

TEST_P(Kernels, ConvertsEveryHalfExactly) {
  std::vector<std::uint16_t> halves(65536);
  for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<std::uint16_t>(i);
  const auto* bytes = reinterpret_cast<const std::byte*>(halves.data());
  const auto output =
      run_kernel(kernel_, {{bytes, bytes + 2 * halves.size()}}, halves.size(), DataType::kFloat16, ReduceOp::kSum);
  const auto* result = reinterpret_cast<const std::uint16_t*>(output.data());
  for (std::size_t i = 0; i < halves.size(); ++i) {
    const bool is_nan = (i & 0x7c00) == 0x7c00 && (i & 0x3ff) != 0;
    if (is_nan) {
      EXPECT_TRUE(std::isnan(half_to_float(result[i]))) << i;
    } else {
      EXPECT_EQ(result[i], i);
    }
  }
}

TEST_P(Kernels, RoundsHalfSumsToNearestEven) {
  std::mt19937 generator(3);
  std::vector<std::uint16_t> a(20000);
  std::vector<std::uint16_t> b(a.size());
  for (auto& x : a) x = static_cast<std::uint16_t>(generator());
  for (auto& x : b) x = static_cast<std::uint16_t>(generator());
  const auto* pa = reinterpret_cast<const std::byte*>(a.data());
  const auto* pb = reinterpret_cast<const std::byte*>(b.data());
  const auto output = run_kernel(kernel_, {{pa, pa + 2 * a.size()}, {pb, pb + 2 * b.size()}}, a.size(),
                                 DataType::kFloat16, ReduceOp::kSum);
  const auto* result = reinterpret_cast<const std::uint16_t*>(output.data());
  for (std::size_t i = 0; i < a.size(); ++i) {
    const float sum = half_to_float(a[i]) + half_to_float(b[i]);
    if (std::isnan(sum)) {
      EXPECT_TRUE(std::isnan(half_to_float(result[i])));
    } else {
      EXPECT_EQ(result[i], float_to_half(sum)) << a[i] << " + " << b[i];
    }
  }
}

TEST_P(Kernels, Bfloat16AccumulatesInFloat) {
  // 256 + 1 + 1 is 258 in fp32. Additions in bfloat16 would give 256.
  const std::uint16_t big = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(256.0f) >> 16);
  const std::uint16_t one = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(1.0f) >> 16);
  const auto bytes = [](std::uint16_t value) {
    std::vector<std::byte> data(2);
    std::memcpy(data.data(), &value, 2);
    return data;
  };
  const auto output = run_kernel(kernel_, {bytes(big), bytes(one), bytes(one)}, 1, DataType::kBfloat16, ReduceOp::kSum);
  std::uint16_t result = 0;
  std::memcpy(&result, output.data(), 2);
  EXPECT_EQ(std::bit_cast<float>(static_cast<std::uint32_t>(result) << 16), 258.0f);
}

TEST_P(Kernels, AveragesOverMoreRanksThanTheTypeCanCount) {
  const std::vector<std::vector<std::byte>> inputs(256, std::vector<std::byte>(1, std::byte{0}));
  for (const auto type : {DataType::kInt8, DataType::kUint8}) {
    EXPECT_EQ(run_kernel(kernel_, inputs, 1, type, ReduceOp::kAvg)[0], std::byte{0});
  }
}

TEST_P(Kernels, NanInAnyInputStays) {
  for (const auto op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kProd, ReduceOp::kMin, ReduceOp::kMax}) {
    for (const std::size_t at : {0u, 1u, 2u}) {
      std::vector<std::vector<std::byte>> inputs;
      for (std::size_t q = 0; q < 3; ++q) {
        const float value = q == at ? NAN : 1.0f;
        std::vector<std::byte> data(4);
        std::memcpy(data.data(), &value, 4);
        inputs.push_back(data);
      }
      float result = 0;
      std::memcpy(&result, run_kernel(kernel_, inputs, 1, DataType::kFloat32, op).data(), 4);
      EXPECT_TRUE(std::isnan(result)) << name_of(op);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(InstructionSets, Kernels, ::testing::Values("portable", "avx2", "avx512", "neon"),
                         [](const auto& suite) { return std::string(suite.param); });

}  // namespace
}  // namespace reigen::comm::reduce
