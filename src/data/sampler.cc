#include "reigen/data/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "base/check.h"
#include "data/random_stream.h"
#include "reigen/base/error.h"

namespace reigen::data {
namespace {

__extension__ using Wide = unsigned __int128;  // for the product of two 64-bit numbers

// Uniform in 0..bound-1. The deviation from uniform, 2^-64 · bound, is too small to be measured.
std::uint64_t below(RandomStream& random, std::uint64_t bound) {
  return static_cast<std::uint64_t>(Wide{random.next64()} * bound >> 64);
}

// Fisher and Yates, in Durstenfeld's form (1964).
void permute(std::span<std::int64_t> values, RandomStream& random) {
  for (std::size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[below(random, i)]);
}

}  // namespace

Range share_of(Range range, int rank, int world_size) {
  // Returns range.begin + n·r/P for n positions and P ranks, without computing n·r, which could exceed 64 bits.
  const auto cut = [&](std::int64_t r) {
    const std::int64_t quotient = range.count() / world_size;
    const std::int64_t remainder = range.count() % world_size;
    return range.begin + quotient * r + remainder * r / world_size;
  };
  return {cut(rank), cut(std::int64_t{rank} + 1)};
}

Order::Order(std::int64_t size, const Shuffle& shuffle, std::uint64_t seed, std::int64_t epoch) {
  REIGEN_CHECK(shuffle.block >= 1 && shuffle.window >= 1, "a shuffle's block and window must be at least 1, got {}, {}",
               shuffle.block, shuffle.window);
  if (shuffle.kind == Shuffle::kNone) return;
  table_.reserve(static_cast<std::size_t>(size));
  RandomStream random(seed, Purpose::kOrder, static_cast<std::uint64_t>(epoch));
  if (shuffle.kind == Shuffle::kFull) {
    table_.resize(static_cast<std::size_t>(size));
    std::iota(table_.begin(), table_.end(), std::int64_t{0});
    permute(table_, random);
    return;
  }
  std::vector<std::int64_t> blocks(static_cast<std::size_t>((size - 1) / shuffle.block + 1));
  std::iota(blocks.begin(), blocks.end(), std::int64_t{0});
  permute(blocks, random);
  for (const std::int64_t block : blocks) {
    const std::int64_t begin = block * shuffle.block;
    for (std::int64_t i = begin; i < begin + std::min(shuffle.block, size - begin); ++i) table_.push_back(i);
  }
  const std::span<std::int64_t> all(table_);
  for (std::size_t begin = 0; begin < all.size(); begin += static_cast<std::size_t>(shuffle.window)) {
    permute(all.subspan(begin, std::min(static_cast<std::size_t>(shuffle.window), all.size() - begin)), random);
  }
}

Sampler::Sampler(const SamplerOptions& options) : options_(options) {
  REIGEN_CHECK(options.global_batch >= 1, "the global batch must be at least 1, got {}", options.global_batch);
  if (options.size < 1) throw DataError("the dataset is empty");
  if (options.drop_last && options.size < options.global_batch) {
    throw DataError(Report{.what = "no full batch in the dataset, and drop_last leaves out the others",
                           .got = fmt::format("{} samples", options.size),
                           .expected = fmt::format("at least one global batch of {}", options.global_batch),
                           .fix = "use a smaller batch, more data, or drop_last = false"});
  }
}

Order Sampler::order(std::int64_t epoch) const {
  REIGEN_CHECK(epoch >= 0, "an epoch must not be negative, got {}", epoch);
  return {options_.size, options_.shuffle, options_.seed, epoch};
}

std::int64_t Sampler::steps(std::int64_t start) const {
  REIGEN_CHECK(start >= 0 && start <= options_.size, "start position {} is outside of the epoch's {} samples", start,
               options_.size);
  const std::int64_t left = options_.size - start;
  const std::int64_t full = left / options_.global_batch;
  return full + (!options_.drop_last && left % options_.global_batch != 0 ? 1 : 0);
}

Range Sampler::positions(std::int64_t start, std::int64_t step) const {
  REIGEN_CHECK(step >= 0 && step < steps(start), "step {} is outside of the {} steps from position {}", step,
               steps(start), start);
  const std::int64_t begin = start + step * options_.global_batch;
  return {begin, begin + std::min(options_.global_batch, options_.size - begin)};
}

}  // namespace reigen::data
