// A stream of random numbers for one item (an epoch's order, one image). The counter of Philox is (purpose, item,
// number of the draw), so the numbers of any item can be computed without those of other items.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/philox.h"

namespace reigen::data {

// The purpose of the numbers, so that two uses of one seed get different numbers.
enum class Purpose : std::uint32_t {
  kOrder = 1,
  kTrainDigit = 2,
  kTestDigit = 3,
  kTrainPicture = 4,
  kTestPicture = 5,
  kAugment = 6
};

class RandomStream {
 public:
  RandomStream(std::uint64_t seed, Purpose purpose, std::uint64_t item)
      : seed_(seed), item_(item), counter_(std::uint64_t{static_cast<std::uint32_t>(purpose)} << 32) {}

  std::uint32_t next() {
    if (used_ == block_.size()) {
      block_ = base::philox(seed_, counter_++, item_);
      used_ = 0;
    }
    return block_[used_++];
  }
  std::uint64_t next64() {
    const std::uint64_t low = next();
    return low | std::uint64_t{next()} << 32;
  }
  // Uniform in [low, high), with 2^32 different values.
  double uniform(double low, double high) { return low + (high - low) * base::unit_interval(next()); }
  // Uniform in 0..bound-1.
  std::uint32_t below(std::uint32_t bound) { return static_cast<std::uint32_t>(std::uint64_t{next()} * bound >> 32); }

 private:
  std::uint64_t seed_;
  std::uint64_t item_;
  std::uint64_t counter_;
  std::array<std::uint32_t, 4> block_{};
  std::size_t used_ = 4;
};

}  // namespace reigen::data
