// Random numbers for one sample at one place of a pipeline. They are a function of (seed, epoch, sample, place) and of
// how many numbers were drawn before, and of nothing else. So no thread, batch or rank changes them. Generator:
// Philox 4x32-10 (Salmon et al., SC 2011).
//
//   Random random({.seed = 1, .epoch = 3, .sample = 1009, .place = 2});
//   if (random.chance(0.5)) flip(picture);
//
// Thread rule: a value; every thread may have its own copy.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace reigen {

class Random {
 public:
  struct Of {
    std::uint64_t seed = 0;
    std::int64_t epoch = 0;
    std::int64_t sample = 0;  // the sample's index in its dataset
    std::uint32_t place = 0;  // which step of the pipeline draws
  };

  explicit Random(const Of& of);

  std::uint32_t next() {
    if (used_ == block_.size()) refill();
    return block_[used_++];
  }
  // Uniform in [0, 1), with 2^32 different values, and in [low, high).
  double uniform() { return next() * 0x1p-32; }
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  // Uniform in 0..bound-1.
  std::uint32_t below(std::uint32_t bound) { return static_cast<std::uint32_t>(std::uint64_t{next()} * bound >> 32); }
  // True with this probability.
  bool chance(double probability) { return uniform() < probability; }
  // From the normal distribution with mean 0 and deviation 1 (Box and Muller 1958; takes two numbers).
  double normal();

  // With these members the distributions of <random> accept a Random. Their results differ between standard libraries.
  using result_type = std::uint32_t;
  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return std::numeric_limits<result_type>::max(); }
  result_type operator()() { return next(); }

 private:
  void refill();

  std::uint64_t key_;      // of (seed, epoch)
  std::uint64_t sample_;   // upper half of the counter
  std::uint64_t counter_;  // place and number of the block, the lower half of the counter
  std::array<std::uint32_t, 4> block_{};
  std::size_t used_ = 4;
};

}  // namespace reigen
